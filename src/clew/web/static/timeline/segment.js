// The table of one segment: its axis, its zoom, and those of its rows that are on screen.
"use strict";

const Segment = (() => {
  const AROUND = 12; // rows kept above and below the screen
  const LETTER = 6.6; // pixels of a letter on the axis, at most
  const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];

  class Segment {
    constructor(element) {
      this.element = element;
      this.place = Number(element.dataset.segment);
      this.body = element.tBodies[0];
      this.ticks = element.querySelector(".ticks");
      this.heading = element.previousElementSibling?.matches("h2.segment")
        ? element.previousElementSibling
        : null;
      this.rows = [];
      this.length = 1;
      this.zoom = null;
      this.from = this.to = 0;
      this.made = new Map();
      this.above = gap();
      this.below = gap();
      this.ticks.classList.remove(...[...this.ticks.classList].filter((each) => /^g-/.test(each)));
    }

    get window() {
      if (this.zoom) {
        return this.zoom;
      }
      const [step, steps] = axis(this.length);
      return { from: 0, to: step * steps };
    }

    // Show rows anew: they, their order or the axis have changed.
    reset() {
      this.made.clear();
      this.from = this.to = 0;
      this.body.replaceChildren(this.above, this.below);
      const empty = this.rows.length === 0;
      this.element.classList.toggle("nothing", empty);
      this.heading?.classList.toggle("nothing", empty);
      this.element.setAttribute("aria-rowcount", String(this.rows.length + 1));
      this.axis();
    }

    axis() {
      const { from, to } = this.window;
      const [step] = axis(to - from);
      const steps = Math.max(1, Math.round((to - from) / step));
      this.element.style.setProperty("--steps", String(steps));
      const labels = Array.from({ length: steps }, (_, each) => label(from + step * each, step));
      // As many labels as there is room for, at equal distances.
      const room = (this.ticks.clientWidth || 400) / steps;
      const every = Math.ceil((8 + LETTER * Math.max(...labels.map((each) => each.length))) / room);
      this.ticks.classList.add("measured");
      this.ticks.replaceChildren(
        ...labels.map((text, each) => {
          const tick = document.createElement("span");
          tick.textContent = each % every ? "" : text;
          return tick;
        }),
      );
      this.element.classList.toggle("zoomed", this.zoom !== null);
    }

    // Bring those rows into the document that are on screen, and a few around them.
    render() {
      const top = this.body.getBoundingClientRect().top;
      const last = this.rows.length;
      const clamp = (value) => Math.min(last, Math.max(0, value));
      const from = clamp(Math.floor(-top / Page.height) - AROUND);
      const to = clamp(Math.ceil((innerHeight - top) / Page.height) + AROUND);
      if (from === this.from && to === this.to && this.made.size) {
        return;
      }
      const make = (start, end) => {
        const made = document.createDocumentFragment();
        for (let each = start; each < end; each += 1) {
          const element = Row.build(this.rows[each], this, each);
          this.made.set(each, element);
          made.append(element);
        }
        return made;
      };
      const drop = (start, end) => {
        for (let each = start; each < end; each += 1) {
          this.made.get(each)?.remove();
          this.made.delete(each);
        }
      };
      if (to <= this.from || from >= this.to) {
        drop(this.from, this.to);
        this.above.after(make(from, to));
      } else {
        drop(this.from, from);
        drop(to, this.to);
        if (from < this.from) {
          this.above.after(make(from, this.from));
        }
        if (to > this.to) {
          this.below.before(make(this.to, to));
        }
      }
      [this.from, this.to] = [from, to];
      size(this.above, from * Page.height);
      size(this.below, (last - to) * Page.height);
    }

    // Zoom to a stretch, widened to whole steps of the axis; null is all of it.
    show(stretch) {
      if (stretch === null) {
        this.zoom = null;
      } else {
        const whole = Math.max(1, this.length);
        const length = Math.min(whole, Math.max(100, stretch.to - stretch.from));
        const [step] = axis(length);
        const from = Math.max(0, Math.min(whole - length, stretch.from));
        const start = Math.floor(from / step) * step;
        const end = start + Math.max(1, Math.ceil((from + length - start) / step)) * step;
        this.zoom = start <= 0 && end >= whole ? null : { from: start, to: end };
      }
      this.axis();
      for (const [each, element] of this.made) {
        Row.draw(element, this.rows[each], this);
      }
    }

    scaled(factor) {
      const { from, to } = this.window;
      const row = Rows.of(Page.current);
      const middle = (from + to) / 2;
      let centre = middle;
      if (row && row.segment === this.place) {
        const own = row.start_ns + row.length_ns / 2;
        centre = own > from && own < to ? own : middle;
      }
      const half = ((to - from) * factor) / 2;
      this.show({ from: centre - half, to: centre + half });
    }

    moved(share) {
      const { from, to } = this.window;
      if (this.zoom) {
        const by = (to - from) * share;
        this.show({ from: from + by, to: to + by });
      }
    }
  }

  function gap() {
    const row = document.createElement("tr");
    row.className = "gap";
    row.setAttribute("aria-hidden", "true");
    const cell = document.createElement("td");
    cell.colSpan = 7;
    row.append(cell);
    row.hidden = true;
    return row;
  }

  function size(row, pixels) {
    row.hidden = pixels <= 0;
    row.firstElementChild.style.height = `${pixels}px`;
  }

  function axis(length) {
    for (let magnitude = 1; ; magnitude *= 10) {
      for (const factor of [1, 2, 5]) {
        const step = factor * magnitude;
        if (step * 10 >= length) {
          return [step, Math.max(1, Math.ceil(length / step))];
        }
      }
    }
  }

  function label(at, step) {
    if (!at) {
      return "0";
    }
    const [unit, size] = UNITS.find((each) => step * 10 > each[1]) ?? ["ns", 1];
    if (size < 1e9 && at >= 60e9) {
      // Deep in a long run: minutes, seconds, and as many digits as the step has.
      const digits = Math.min(9, Math.ceil(-Math.log10(step / 1e9)));
      const seconds = ((at % 60e9) / 1e9).toFixed(digits).padStart(digits + 3, "0");
      return `${Math.floor(at / 60e9)}:${seconds}`;
    }
    return `${Number((at / size).toPrecision(12))} ${unit}`;
  }

  return Segment;
})();
