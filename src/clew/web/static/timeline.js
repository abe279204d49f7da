// The timeline of a run on top of a page that works without it: all rows at once with only those
// on screen in the document, filter, zoom, keys, details beside the rows, and news while it runs.
"use strict";

(() => {
  const body = document.getElementById("body");
  const panel = document.getElementById("panel");
  const head = document.getElementById("head");
  const form = document.getElementById("filter");
  if (!body || !panel || !head || !form) {
    return;
  }
  const run = body.dataset.run;
  const page = `/runs/${run}`;
  const SVG = "http://www.w3.org/2000/svg";
  const AROUND = 12; // rows kept above and below the screen
  const NARROWEST = 0.4; // percent of the axis
  const LETTER = 6.6; // pixels of a letter on the axis, at most
  const AT_ONCE = 20000; // rows in one answer
  const MOST_PAGES = 50;
  const QUIET = 10 * 60 * 1000; // without news for this long, watching ends
  const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]];
  const template = document.getElementById("row").content.firstElementChild;
  const badges = new Map(
    [...document.getElementById("badges").content.querySelectorAll("[data-outcome]")].map(
      (each) => [each.dataset.outcome, each.firstElementChild],
    ),
  );
  const words = form.elements.q;
  const outcome = form.elements.outcome;
  const ruler = document.getElementById("ruler");
  const kinds = [...form.querySelectorAll("[name=kind]")];

  let rows = [];
  let places = new Map(); // span id -> place in rows
  let flat = []; // rows that are accepted, top to bottom
  let current = null; // span id of the row that keys go on from
  let selected = new URLSearchParams(location.search).get("span");
  let height = 26;
  const collapsed = new Set();
  const tables = new Map();

  // --- one segment -----------------------------------------------------------------------------

  class Table {
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
      const from = clamp(Math.floor(-top / height) - AROUND);
      const to = clamp(Math.ceil((innerHeight - top) / height) + AROUND);
      if (from === this.from && to === this.to && this.made.size) {
        return;
      }
      const make = (start, end) => {
        const made = document.createDocumentFragment();
        for (let each = start; each < end; each += 1) {
          const element = build(this.rows[each], this, each);
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
      size(this.above, from * height);
      size(this.below, (last - to) * height);
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
        draw(element, this.rows[each], this);
      }
    }

    scaled(factor) {
      const { from, to } = this.window;
      const row = rows[places.get(current)];
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

  // --- one row -----------------------------------------------------------------------------------

  function build(row, table, index) {
    const element = template.cloneNode(true);
    const find = (selector) => element.querySelector(selector);
    element.id = `s-${row.span_id}`;
    element.dataset.type = row.type;
    element.setAttribute("aria-rowindex", String(index + 2));
    element.classList.add(`r-${row.type}`);
    for (const [name, on] of [
      ["denied", row.denied],
      ["failed", row.failed],
      ["going", row.open],
      ["aside", row.aside],
      ["selected", row.span_id === selected],
      ["fresh", row.fresh],
    ]) {
      element.classList.toggle(name, Boolean(on));
    }
    find(".seq").textContent = row.seq ?? "";
    const twist = find(".twist");
    if (row.parent) {
      twist.setAttribute("aria-expanded", String(!collapsed.has(row.span_id)));
    } else {
      twist.remove();
    }
    const name = find(".in");
    name.classList.add(`d-${row.depth}`);
    const glyph = find(".glyph");
    glyph.classList.add(`c-${row.type}`);
    glyph.firstElementChild.setAttribute("href", `#t-${row.type}`);
    const link = find(".whole");
    link.href = address(row.span_id);
    link.title = row.name;
    link.firstElementChild.textContent = row.name || "(no name)";
    if (row.span_id === selected) {
      link.setAttribute("aria-current", "true");
    }
    if (row.outcome && row.type !== "run") {
      name.append(badge(row.outcome));
    }
    if (row.error) {
      name.append(badge("(error)", row.error));
    } else if (row.failed && !row.outcome) {
      name.append(badge("(error)"));
    }
    if (row.facts.length) {
      name.append(said(row.facts.join(" · ")));
    }
    if (row.orphan) {
      name.append(said("parent not received"));
    }
    find(".start").textContent = row.start;
    if (row.open) {
      const going = document.createElement("span");
      going.className = "ongoing";
      going.textContent = "going on";
      find(".dur").append(going);
    } else {
      find(".dur").textContent = row.duration;
    }
    find(".tok").textContent = row.tokens;
    find(".cost").textContent = row.cost;
    draw(element, row, table);
    return element;
  }

  function badge(known, text) {
    const found = badges.get(known);
    const made = (found ?? badges.get("(other)")).cloneNode(true);
    if (text !== undefined || !found) {
      made.querySelector("bdi").textContent = text ?? known;
    }
    return made;
  }

  function said(text) {
    const made = document.createElement("span");
    made.className = "facts";
    const inner = document.createElement("bdi");
    inner.textContent = text;
    made.append(inner);
    return made;
  }

  function draw(element, row, table) {
    const svg = element.querySelector(".lane > svg");
    const { from, to } = table.window;
    const share = (at) => (100 * (at - from)) / (to - from);
    let left = share(row.start_ns);
    let right = share(row.start_ns + row.length_ns);
    svg.replaceChildren();
    if (table.zoom && (right < 0 || left > 100)) {
      return;
    }
    const mark = (row.type === "decision" || row.type === "event") && right - left < NARROWEST;
    left = Math.min(100 - NARROWEST, Math.max(0, left));
    right = Math.min(100, Math.max(left + NARROWEST, right));
    if (mark) {
      const outer = shape("svg", { class: `mark c-${row.type}`, x: `${left}%`, y: "50%", overflow: "visible" });
      outer.append(shape("path", { d: row.type === "decision" ? "M0-6 6 0 0 6-6 0z" : "M-1-8H1V8H-1z" }));
      svg.append(outer);
      return;
    }
    const look = `bar c-${row.type}${row.open ? " open" : ""}`;
    svg.append(shape("rect", { class: look, x: `${left}%`, y: "6", width: `${right - left}%`, height: "12", rx: "2.5" }));
    if (row.wait_ns) {
      const end = Math.min(right, share(row.start_ns + row.wait_ns));
      if (end > left) {
        svg.append(shape("rect", { class: "wait", x: `${left}%`, y: "7.5", width: `${end - left}%`, height: "9", rx: "1.5" }));
      }
    }
  }

  function shape(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
    return made;
  }

  // --- which rows --------------------------------------------------------------------------------

  function query() {
    const asked = new URLSearchParams();
    const text = words.value.trim();
    if (text) {
      asked.set("q", text);
    }
    if (outcome.value) {
      asked.set("outcome", outcome.value);
    }
    if (kinds.some((each) => !each.checked)) {
      for (const each of kinds.filter((kind) => kind.checked)) {
        asked.append("kind", each.value);
      }
    }
    return asked;
  }

  function address(span) {
    const asked = query();
    if (span) {
      asked.set("span", span);
    }
    const text = asked.toString();
    return `${page}${text ? `?${text}` : ""}${span ? `#s-${span}` : ""}`;
  }

  function wants(row, text, kind) {
    if (text && !row.text.includes(text)) {
      return false;
    }
    const waits = ["awaiting_approval", "awaiting_input", "require_approval"].includes(row.outcome);
    switch (kind) {
      case "denied":
        return row.denied;
      case "failed":
        return row.failed;
      case "problem":
        return row.denied || row.failed;
      case "waiting":
        return waits;
      case "ok":
        return !(row.denied || row.failed || waits);
      default:
        return true;
    }
  }

  // Accept rows: those that are looked for, and what they stand below; then fold what is folded.
  function accept() {
    const text = words.value.trim().toLowerCase();
    const shown = new Set(kinds.filter((each) => each.checked).map((each) => each.value));
    const filtered = Boolean(text || outcome.value);
    let hits = 0;
    for (const table of tables.values()) {
      table.rows = [];
    }
    let kept = [];
    let depth = 0;
    let segment = null;
    for (let each = rows.length - 1; each >= 0; each -= 1) {
      const row = rows[each];
      if (row.segment !== segment) {
        [segment, depth] = [row.segment, 0];
      }
      const kindIsShown = shown.has(row.type);
      const hit = kindIsShown && wants(row, text, outcome.value);
      const above = filtered && row.depth < depth;
      if (hit || above) {
        depth = row.depth;
        if (kindIsShown) {
          row.aside = !hit;
          kept.push(row);
        }
      }
      hits += hit ? 1 : 0;
    }
    kept.reverse();
    let below = Infinity;
    flat = [];
    for (const row of kept) {
      if (row.segment !== segment) {
        [segment, below] = [row.segment, Infinity];
      }
      if (row.depth > below) {
        continue;
      }
      below = collapsed.has(row.span_id) ? row.depth : Infinity;
      const table = tables.get(row.segment);
      if (!table) {
        location.reload(); // a segment has begun that this page has no table for
        return;
      }
      row.index = table.rows.push(row) - 1;
      row.order = flat.push(row) - 1;
    }
    const everything = hits === rows.length;
    document.getElementById("found").textContent = everything ? "" : `${hits} of ${rows.length}`;
    document.getElementById("none").hidden = hits > 0;
    refresh();
  }

  function refresh() {
    const focused = document.activeElement?.closest?.("tr.row")?.id;
    for (const table of tables.values()) {
      table.reset();
    }
    render();
    rule();
    if (focused) {
      document.getElementById(focused)?.querySelector(".whole").focus({ preventScroll: true });
    }
  }

  // Beside the browser's scroll bar: where on this page denials and failures are.
  function rule() {
    const marks = new Map();
    const whole = document.documentElement.scrollHeight;
    const scale = innerHeight / whole;
    ruler.toggleAttribute("hidden", whole < 2 * innerHeight);
    for (const table of tables.values()) {
      const top = table.body.getBoundingClientRect().top + scrollY;
      for (const row of table.rows) {
        if (row.denied || row.failed) {
          const y = Math.round((top + (row.index + 0.5) * height) * scale);
          marks.set(y, marks.get(y) === "denied" || row.denied ? "denied" : "failed");
        }
      }
    }
    ruler.replaceChildren(
      ...[...marks].map(([y, look]) =>
        shape("rect", { class: look, x: look === "denied" ? "0" : "6", y: String(y - 1), width: "6", height: "2" }),
      ),
    );
  }

  let planned = false;

  function render() {
    for (const table of tables.values()) {
      table.render();
    }
  }

  function plan() {
    if (!planned) {
      planned = true;
      requestAnimationFrame(() => {
        planned = false;
        render();
      });
    }
  }

  async function load() {
    const found = [];
    let segments = [];
    let after = -1;
    for (let each = 0; each < MOST_PAGES && after !== null; each += 1) {
      const answer = await fetch(`/api${page}/timeline?limit=${AT_ONCE}&after=${after}`);
      if (!answer.ok) {
        throw new Error(answer.statusText);
      }
      const part = await answer.json();
      segments = part.segments;
      found.push(...part.rows);
      after = part.next;
    }
    const known = places;
    const first = rows.length === 0;
    rows = found;
    places = new Map(rows.map((row, place) => [row.span_id, place]));
    rows.forEach((row, place) => {
      const next = rows[place + 1];
      row.parent = Boolean(next && next.segment === row.segment && next.depth > row.depth);
      row.text = [row.name, row.outcome, row.error, ...row.facts].join(" ").toLowerCase();
      row.fresh = !first && !known.has(row.span_id);
    });
    for (const each of segments) {
      const table = tables.get(each.place);
      if (table) {
        table.length = each.length_ns;
      }
    }
    accept();
  }

  // --- where we are -------------------------------------------------------------------------------

  function visit(row, { centre = false } = {}) {
    if (!row) {
      return;
    }
    current = row.span_id;
    const table = tables.get(row.segment);
    const y = table.body.getBoundingClientRect().top + row.index * height;
    const top = edge();
    const bottom = floor();
    if (centre ? y < top + 26 || y > bottom - 60 : y < top || y > bottom - height - 6) {
      const goal = centre ? (top + bottom) / 2 : y < top ? top + height * 2 : bottom - height * 3;
      scrollBy(0, y - goal);
    }
    render();
    table.made.get(row.index)?.querySelector(".whole").focus({ preventScroll: true });
  }

  // What stays at the top of the screen covers the rows below it.
  function edge() {
    return (getComputedStyle(form).position === "sticky" ? form.offsetHeight : 0) + 34;
  }

  function floor() {
    const covers = body.classList.contains("open") && getComputedStyle(panel).position === "fixed";
    return innerHeight - (covers ? panel.offsetHeight : 0);
  }

  function here() {
    const row = rows[places.get(current ?? selected)];
    return row && flat[row.order] === row ? row.order : -1;
  }

  function move(step) {
    const next = flat[Math.min(flat.length - 1, Math.max(0, here() + step))];
    visit(next);
    if (next && body.classList.contains("open")) {
      show(next.span_id);
    }
  }

  function problem(step) {
    const start = here();
    for (let each = 1; each <= flat.length; each += 1) {
      const place = (start + step * each + flat.length * 2) % flat.length;
      if (flat[place].denied || flat[place].failed) {
        move(place - start);
        return;
      }
    }
  }

  function fold(shut) {
    const row = flat[here()];
    if (!row) {
      return;
    }
    if (row.parent && shut !== collapsed.has(row.span_id)) {
      turn(row);
    } else if (shut) {
      for (let each = row.order - 1; each >= 0; each -= 1) {
        if (flat[each].depth < row.depth) {
          visit(flat[each]);
          return;
        }
      }
    } else if (row.parent) {
      move(1);
    }
  }

  function turn(row) {
    if (!collapsed.delete(row.span_id)) {
      collapsed.add(row.span_id);
    }
    accept();
  }

  function zoomed() {
    const row = rows[places.get(current ?? selected)];
    const inView = [...tables.values()].find((each) => each.element.getBoundingClientRect().bottom > 60);
    return (row && tables.get(row.segment)) ?? inView ?? tables.values().next().value;
  }

  // Zoom to what is on screen, apart from what lasts as long as the whole run.
  function screen() {
    const table = zoomed();
    const top = table?.body.getBoundingClientRect().top;
    const covered = edge();
    const seen = (table?.rows ?? []).filter((row, index) => {
      const y = top + index * height;
      return y > covered && y < innerHeight && row.type !== "run" && row.type !== "event";
    });
    if (seen.length) {
      const from = Math.min(...seen.map((row) => row.start_ns));
      const to = Math.max(...seen.map((row) => row.start_ns + row.length_ns));
      table.show({ from, to });
    }
  }

  function fit() {
    const row = rows[places.get(current ?? selected)];
    if (row) {
      const edge = Math.max(50, row.length_ns * 0.08);
      tables.get(row.segment).show({
        from: row.start_ns - edge,
        to: row.start_ns + row.length_ns + edge,
      });
    }
  }

  // --- details ------------------------------------------------------------------------------------

  let asked = null;

  async function show(span) {
    asked?.abort();
    const question = (asked = new AbortController());
    const goal = address(span);
    try {
      const answer = await fetch(`${page}/spans/${span}?fragment=1`, { signal: question.signal });
      if (!answer.ok) {
        throw new Error(answer.statusText);
      }
      // Server-rendered and escaped there, like the page itself.
      panel.innerHTML = await answer.text();
    } catch (error) {
      if (error.name !== "AbortError") {
        location.href = goal;
      }
      return;
    }
    panel.scrollTop = 0;
    mark(span);
    history.replaceState(null, "", goal);
    const row = rows[places.get(span)];
    if (floor() < innerHeight && flat[row?.order] === row) {
      visit(row); // the details may have come over it
    }
  }

  function mark(span) {
    for (const row of body.querySelectorAll(".row.selected")) {
      row.classList.remove("selected");
      row.querySelector(".whole").removeAttribute("aria-current");
    }
    selected = span;
    const row = span && document.getElementById(`s-${span}`);
    row?.classList.add("selected");
    row?.querySelector(".whole").setAttribute("aria-current", "true");
    body.classList.toggle("open", Boolean(span));
  }

  function close() {
    const row = rows[places.get(selected)];
    mark(null);
    panel.replaceChildren();
    history.replaceState(null, "", address(null));
    visit(row);
  }

  // --- keys and clicks ----------------------------------------------------------------------------

  const help = document.getElementById("help");
  const actions = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    j: () => move(1),
    k: () => move(-1),
    Home: () => move(-flat.length),
    End: () => move(flat.length),
    n: () => problem(1),
    p: () => problem(-1),
    ArrowRight: () => fold(false),
    ArrowLeft: () => fold(true),
    "/": () => words.focus(),
    "+": () => zoomed()?.scaled(0.5),
    "=": () => zoomed()?.scaled(0.5),
    "-": () => zoomed()?.scaled(2),
    0: () => zoomed()?.show(null),
    f: fit,
    v: screen,
    i: () => panel.querySelector(".to-prompt a")?.click(),
    "[": () => zoomed()?.moved(-0.25),
    "]": () => zoomed()?.moved(0.25),
    "?": () => help.showModal(),
  };
  const plain = (event) => !(event.ctrlKey || event.metaKey || event.altKey);

  function listen(ready) {
    document.addEventListener("keydown", (event) => {
      if (!plain(event) || help.open) {
        return;
      }
      const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
      if (event.key === "Escape") {
        if (typing) {
          event.target.blur();
        } else if (body.classList.contains("open")) {
          ready.then(close);
        }
      } else if (!typing && Object.hasOwn(actions, event.key)) {
        event.preventDefault();
        ready.then(actions[event.key]);
      } else if (event.target === words && event.key === "ArrowDown") {
        event.preventDefault();
        words.blur();
        current = null;
        ready.then(() => visit(flat.find((each) => !each.aside)));
      }
    });
    document.addEventListener("click", (event) => {
      if (!plain(event) || event.shiftKey) {
        return;
      }
      const twist = event.target.closest(".twist");
      const row = event.target.closest("tr.row");
      if (twist && row) {
        current = row.id.slice(2);
        turn(rows[places.get(current)]);
      } else if (row && places.has(row.id.slice(2))) {
        event.preventDefault();
        current = row.id.slice(2);
        show(current);
      } else if (event.target.closest(".panel .close")) {
        event.preventDefault();
        close();
      } else {
        follow(event);
      }
    });
    body.addEventListener("focusin", (event) => {
      current = event.target.closest("tr.row")?.id.slice(2) ?? current;
    });
    for (const [id, act] of [
      ["in", () => zoomed()?.scaled(0.5)],
      ["out", () => zoomed()?.scaled(2)],
      ["screen", screen],
      ["all", () => tables.forEach((each) => each.show(null))],
      ["problem", () => problem(1)],
      ["keys", () => help.showModal()],
    ]) {
      document.getElementById(id).addEventListener("click", act);
    }
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", changed);
    form.addEventListener("click", (event) => {
      if (event.target.id === "clear") {
        event.preventDefault();
        words.value = outcome.value = "";
        kinds.forEach((each) => (each.checked = true));
        changed();
      }
    });
    const narrower = new ResizeObserver((changes) => {
      body.style.setProperty("--tools", `${form.offsetHeight}px`);
      for (const { target } of changes) {
        [...tables.values()].find((each) => each.ticks === target)?.axis();
      }
    });
    narrower.observe(form, { box: "border-box" });
    for (const table of tables.values()) {
      drag(table);
      narrower.observe(table.ticks);
    }
    addEventListener("scroll", plan, { passive: true });
    addEventListener("resize", () => {
      plan();
      rule();
    });
    ruler.addEventListener("click", (event) => {
      scrollTo(0, (event.clientY / innerHeight) * document.documentElement.scrollHeight - innerHeight / 2);
    });
  }

  function changed() {
    accept();
    history.replaceState(null, "", address(selected));
  }

  // A link to another span of this run is a step on this page.
  function follow(event) {
    const link = event.target.closest(".panel a");
    const goal = link && new URL(link.href);
    const row = goal?.pathname === page && rows[places.get(goal.searchParams.get("span"))];
    if (row && flat[row.order] === row) {
      event.preventDefault();
      visit(row, { centre: true });
      show(row.span_id);
    }
  }

  function drag(table) {
    const lane = table.ticks;
    lane.addEventListener("pointerdown", (start) => {
      const box = lane.getBoundingClientRect();
      const brush = document.createElement("i");
      brush.className = "brush";
      lane.append(brush);
      lane.setPointerCapture(start.pointerId);
      const share = (event) => Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      const began = share(start);
      let ended = began;
      const follows = (event) => {
        ended = share(event);
        brush.style.left = `${100 * Math.min(began, ended)}%`;
        brush.style.width = `${100 * Math.abs(ended - began)}%`;
      };
      const done = () => {
        lane.removeEventListener("pointermove", follows);
        brush.remove();
        if (Math.abs(ended - began) * box.width > 4) {
          const { from, to } = table.window;
          const at = (value) => from + value * (to - from);
          table.show({ from: at(Math.min(began, ended)), to: at(Math.max(began, ended)) });
        }
      };
      lane.addEventListener("pointermove", follows);
      lane.addEventListener("pointerup", done, { once: true });
      lane.addEventListener("pointercancel", done, { once: true });
    });
  }

  // --- while it is going on -----------------------------------------------------------------------

  const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
  const seen = () =>
    document.hidden
      ? new Promise((resolve) =>
          document.addEventListener("visibilitychange", resolve, { once: true }),
        )
      : null;

  async function watch() {
    let wait = 1000;
    let quiet = 0;
    let failures = 0;
    while ("live" in head.dataset) {
      tell(failures ? "connection lost, trying again" : "live");
      await pause(wait);
      await seen();
      quiet += wait;
      const began = performance.now();
      try {
        const answer = await fetch(`${page}/head`, {
          headers: { "If-None-Match": head.dataset.tag },
          cache: "no-store",
        });
        failures = 0;
        if (answer.status === 304) {
          wait = Math.min(5000, wait * 1.3);
        } else if (answer.ok) {
          await news(answer);
          // A long run costs more to read: never more than a tenth of the time.
          wait = Math.max(1000, 10 * (performance.now() - began));
          quiet = 0;
        } else {
          throw new Error(answer.statusText);
        }
      } catch {
        failures += 1;
        wait = Math.min(30000, wait * 2);
      }
      if (quiet > QUIET || failures > 10) {
        tell("no longer watched: reload to go on");
        return;
      }
    }
  }

  async function news(answer) {
    const text = await answer.text();
    const below = document.documentElement.scrollHeight - innerHeight;
    const follows = below > 8 && scrollY >= below - 8;
    await load();
    head.innerHTML = text;
    head.dataset.tag = answer.headers.get("etag") ?? "";
    if (!document.getElementById("live")) {
      delete head.dataset.live;
    }
    document.dispatchEvent(new Event("clew:copies"));
    for (const each of kinds) {
      const count = rows.filter((row) => row.type === each.value).length;
      each.closest("label").querySelector(".count").textContent = String(count);
      each.closest("label").classList.toggle("nothing", count === 0);
    }
    if (follows) {
      scrollTo(0, document.documentElement.scrollHeight);
    }
  }

  function tell(text) {
    const place = document.getElementById("live-words");
    if (place && place.textContent !== text) {
      place.textContent = text;
    }
  }

  // --- begin --------------------------------------------------------------------------------------

  for (const element of document.querySelectorAll("table.spans")) {
    tables.set(Number(element.dataset.segment), new Table(element));
  }
  height = document.querySelector("tr.row")?.getBoundingClientRect().height || height;
  const ready = load().then(() => {
    document.getElementById("zooms").hidden = false;
    document.getElementById("pager")?.remove();
    document.getElementById("apply").hidden = true;
    const row = rows[places.get(selected)];
    if (row && flat[row.order] === row) {
      visit(row, { centre: true });
    }
    document.documentElement.dataset.ready = "";
  });
  listen(ready);
  ready.then(watch, () => tell("the timeline could not be loaded whole"));
})();
