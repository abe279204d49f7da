// All rows of the run, and which of them are shown: filtered, and folded.
"use strict";

const Rows = (() => {
  const AT_ONCE = 20000; // rows in one answer
  const MOST_PAGES = 50;

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
    const text = Page.words.value.trim().toLowerCase();
    const shown = new Set(Page.kinds.filter((each) => each.checked).map((each) => each.value));
    const filtered = Boolean(text || Page.outcome.value);
    let hits = 0;
    for (const table of Page.tables.values()) {
      table.rows = [];
    }
    let kept = [];
    let depth = 0;
    let segment = null;
    for (let each = Rows.all.length - 1; each >= 0; each -= 1) {
      const row = Rows.all[each];
      if (row.segment !== segment) {
        [segment, depth] = [row.segment, 0];
      }
      const kindIsShown = shown.has(row.type);
      const hit = kindIsShown && wants(row, text, Page.outcome.value);
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
    Rows.flat = [];
    for (const row of kept) {
      if (row.segment !== segment) {
        [segment, below] = [row.segment, Infinity];
      }
      if (row.depth > below) {
        continue;
      }
      below = Page.collapsed.has(row.span_id) ? row.depth : Infinity;
      const table = Page.tables.get(row.segment);
      if (!table) {
        location.reload(); // a segment has begun that this page has no table for
        return;
      }
      row.index = table.rows.push(row) - 1;
      row.order = Rows.flat.push(row) - 1;
    }
    const total = Rows.all.length;
    document.getElementById("found").textContent = hits === total ? "" : `${hits} of ${total}`;
    document.getElementById("none").hidden = hits > 0;
    Viewport.refresh();
  }

  async function load() {
    const found = [];
    let segments = [];
    let after = -1;
    for (let each = 0; each < MOST_PAGES && after !== null; each += 1) {
      const answer = await fetch(`/api${Page.path}/timeline?limit=${AT_ONCE}&after=${after}`);
      if (!answer.ok) {
        throw new Error(answer.statusText);
      }
      const part = await answer.json();
      segments = part.segments;
      found.push(...part.rows);
      after = part.next;
    }
    const known = Rows.places;
    const first = Rows.all.length === 0;
    Rows.all = found;
    Rows.places = new Map(Rows.all.map((row, place) => [row.span_id, place]));
    Rows.all.forEach((row, place) => {
      const next = Rows.all[place + 1];
      row.parent = Boolean(next && next.segment === row.segment && next.depth > row.depth);
      row.text = [row.name, row.outcome, row.error, ...row.facts].join(" ").toLowerCase();
      row.fresh = !first && !known.has(row.span_id);
    });
    for (const each of segments) {
      const table = Page.tables.get(each.place);
      if (table) {
        table.length = each.length_ns;
      }
    }
    accept();
  }

  return {
    all: [],
    places: new Map(), // span id -> place in all
    flat: [], // rows that are accepted, top to bottom
    of: (span) => Rows.all[Rows.places.get(span)],
    shows: (row) => Boolean(row) && Rows.flat[row.order] === row,
    accept,
    load,
  };
})();
