// One row of the timeline, made from what the server says of a span.
"use strict";

const Row = (() => {
  const SVG = "http://www.w3.org/2000/svg";
  const NARROWEST = 0.4; // percent of the axis
  const template = document.getElementById("row").content.firstElementChild;
  const badges = new Map(
    [...document.getElementById("badges").content.querySelectorAll("[data-outcome]")].map(
      (each) => [each.dataset.outcome, each.firstElementChild],
    ),
  );

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
      ["selected", row.span_id === Page.selected],
      ["fresh", row.fresh],
    ]) {
      element.classList.toggle(name, Boolean(on));
    }
    find(".seq").textContent = row.seq ?? "";
    const twist = find(".twist");
    if (row.parent) {
      twist.setAttribute("aria-expanded", String(!Page.collapsed.has(row.span_id)));
    } else {
      twist.remove();
    }
    const name = find(".in");
    name.classList.add(`d-${row.depth}`);
    const glyph = find(".glyph");
    glyph.classList.add(`c-${row.type}`);
    glyph.firstElementChild.setAttribute("href", `#t-${row.type}`);
    const link = find(".whole");
    link.href = Page.address(row.span_id);
    link.title = row.name;
    link.firstElementChild.textContent = row.name || "(no name)";
    if (row.span_id === Page.selected) {
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
      const look = `mark c-${row.type}`;
      const outer = shape("svg", { class: look, x: `${left}%`, y: "50%", overflow: "visible" });
      const diamond = row.type === "decision";
      outer.append(shape("path", { d: diamond ? "M0-6 6 0 0 6-6 0z" : "M-1-8H1V8H-1z" }));
      svg.append(outer);
      return;
    }
    const look = `bar c-${row.type}${row.open ? " open" : ""}`;
    const bar = { x: `${left}%`, y: "6", width: `${right - left}%`, height: "12", rx: "2.5" };
    svg.append(shape("rect", { class: look, ...bar }));
    const end = Math.min(right, share(row.start_ns + (row.wait_ns ?? 0)));
    if (row.wait_ns && end > left) {
      const wait = { x: `${left}%`, y: "7.5", width: `${end - left}%`, height: "9", rx: "1.5" };
      svg.append(shape("rect", { class: "wait", ...wait }));
    }
  }

  function shape(name, attributes) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      made.setAttribute(key, value);
    }
    return made;
  }

  return { build, draw, shape };
})();
