// The minimap of the inspector, measured from what the browser has laid out, and its keys.
"use strict";

(() => {
  const reading = document.getElementById("reading");
  const rail = document.getElementById("minimap");
  if (!reading || !rail) {
    return;
  }
  const LEAST = 2; // pixels of the smallest bar
  const box = document.createElement("i");
  box.className = "viewport";
  let bars = [];

  const scrollable = () => reading.scrollHeight > reading.clientHeight + 1;
  const clamp = (value, least, most) => Math.min(most, Math.max(least, value));

  function measure() {
    rail.hidden = !reading.clientHeight;
    if (rail.hidden) {
      return;
    }
    const height = rail.clientHeight;
    const whole = reading.scrollHeight;
    const top = reading.getBoundingClientRect().top - reading.scrollTop;
    const parts = [...reading.querySelectorAll("[data-part]")];
    if (bars.length !== parts.length) {
      bars = parts.map((part) => {
        const bar = document.createElement("i");
        bar.className = `strip l-${part.dataset.look}`;
        bar.title = part.dataset.part;
        bar.dataset.part = part.dataset.part;
        return bar;
      });
      rail.replaceChildren(...bars, box);
    }
    parts.forEach((part, place) => {
      const { top: at, height: size } = part.getBoundingClientRect();
      const bar = bars[place];
      bar.hidden = size === 0;
      bar.style.top = `${((at - top) / whole) * height}px`;
      bar.style.height = `${Math.max(LEAST, (size / whole) * height)}px`;
    });
    follow();
  }

  // Where the screen is: nothing to show where everything is on it.
  function follow() {
    const height = rail.clientHeight;
    const whole = reading.scrollHeight;
    box.hidden = !scrollable();
    box.style.top = `${(reading.scrollTop / whole) * height}px`;
    box.style.height = `${(reading.clientHeight / whole) * height}px`;
    const most = whole - reading.clientHeight;
    rail.setAttribute("aria-valuenow", String(most > 0 ? Math.round((100 * reading.scrollTop) / most) : 0));
  }

  function go(event) {
    const { top, height } = rail.getBoundingClientRect();
    const share = clamp((event.clientY - top) / height, 0, 1);
    reading.scrollTop = share * reading.scrollHeight - reading.clientHeight / 2;
  }

  rail.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    rail.focus({ preventScroll: true });
    rail.setPointerCapture(event.pointerId);
    go(event);
    rail.addEventListener("pointermove", go);
    const done = () => rail.removeEventListener("pointermove", go);
    rail.addEventListener("pointerup", done, { once: true });
    rail.addEventListener("pointercancel", done, { once: true });
  });
  rail.addEventListener("keydown", (event) => {
    const page = reading.clientHeight * 0.9;
    const steps = { ArrowDown: 60, ArrowUp: -60, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
    if (event.key in steps) {
      event.preventDefault();
      reading.scrollBy({ top: steps[event.key], behavior: "instant" });
    }
  });
  reading.addEventListener("scroll", follow, { passive: true });
  // Folding a schema, a font that arrives, a narrower window: all of them move what is below.
  const watcher = new ResizeObserver(measure);
  watcher.observe(reading);
  watcher.observe(rail);
  for (const each of reading.children) {
    watcher.observe(each);
  }
  rail.hidden = false;
  measure();

  // Keys: the next and the previous call, block after block.
  const plain = (event) => !(event.ctrlKey || event.metaKey || event.altKey || event.shiftKey);
  const calls = [...document.querySelectorAll("#index li > a:not(.against)")];
  const here = calls.findIndex((each) => each.getAttribute("aria-current"));

  function part(step) {
    const top = reading.getBoundingClientRect().top;
    const parts = [...reading.querySelectorAll("[data-part]")];
    const tops = parts.map((each) => each.getBoundingClientRect().top - top);
    const next = step > 0 ? tops.find((at) => at > 4) : tops.findLast((at) => at < -4);
    reading.scrollBy({ top: next ?? (step > 0 ? 1e9 : -1e9), behavior: "instant" });
  }

  document.addEventListener("keydown", (event) => {
    if (!plain(event) || event.target.matches("input, select, textarea")) {
      return;
    }
    const actions = {
      j: () => calls[here + 1]?.click(),
      k: () => calls[here - 1]?.click(),
      n: () => part(1),
      p: () => part(-1),
      Escape: () => document.querySelector(".close-call")?.click(),
    };
    if (Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });
  document.querySelector("#index .here")?.scrollIntoView({ block: "nearest" });
})();
