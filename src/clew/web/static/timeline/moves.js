// Going from row to row, folding what is below one, and zooming to some.
"use strict";

const Moves = (() => {
  function visit(row, { centre = false } = {}) {
    if (!row) {
      return;
    }
    Page.current = row.span_id;
    const table = Page.tables.get(row.segment);
    const y = table.body.getBoundingClientRect().top + row.index * Page.height;
    const top = Viewport.edge();
    const bottom = Viewport.floor();
    if (centre ? y < top + 26 || y > bottom - 60 : y < top || y > bottom - Page.height - 6) {
      const near = y < top ? top + Page.height * 2 : bottom - Page.height * 3;
      scrollBy(0, y - (centre ? (top + bottom) / 2 : near));
    }
    Viewport.render();
    table.made.get(row.index)?.querySelector(".whole").focus({ preventScroll: true });
  }

  function here() {
    const row = Rows.of(Page.current ?? Page.selected);
    return Rows.shows(row) ? row.order : -1;
  }

  function move(step) {
    const next = Rows.flat[Math.min(Rows.flat.length - 1, Math.max(0, here() + step))];
    visit(next);
    if (next && Page.body.classList.contains("open")) {
      Details.show(next.span_id);
    }
  }

  function problem(step) {
    const start = here();
    for (let each = 1; each <= Rows.flat.length; each += 1) {
      const place = (start + step * each + Rows.flat.length * 2) % Rows.flat.length;
      if (Rows.flat[place].denied || Rows.flat[place].failed) {
        move(place - start);
        return;
      }
    }
  }

  function fold(shut) {
    const row = Rows.flat[here()];
    if (!row) {
      return;
    }
    if (row.parent && shut !== Page.collapsed.has(row.span_id)) {
      turn(row);
    } else if (shut) {
      for (let each = row.order - 1; each >= 0; each -= 1) {
        if (Rows.flat[each].depth < row.depth) {
          visit(Rows.flat[each]);
          return;
        }
      }
    } else if (row.parent) {
      move(1);
    }
  }

  function turn(row) {
    if (!Page.collapsed.delete(row.span_id)) {
      Page.collapsed.add(row.span_id);
    }
    Rows.accept();
  }

  function zoomed() {
    const row = Rows.of(Page.current ?? Page.selected);
    const all = [...Page.tables.values()];
    const inView = all.find((each) => each.element.getBoundingClientRect().bottom > 60);
    return (row && Page.tables.get(row.segment)) ?? inView ?? all[0];
  }

  // Zoom to what is on screen, apart from what lasts as long as the whole run.
  function screen() {
    const table = zoomed();
    const top = table?.body.getBoundingClientRect().top;
    const covered = Viewport.edge();
    const seen = (table?.rows ?? []).filter((row, index) => {
      const y = top + index * Page.height;
      return y > covered && y < innerHeight && row.type !== "run" && row.type !== "event";
    });
    if (seen.length) {
      const from = Math.min(...seen.map((row) => row.start_ns));
      const to = Math.max(...seen.map((row) => row.start_ns + row.length_ns));
      table.show({ from, to });
    }
  }

  function fit() {
    const row = Rows.of(Page.current ?? Page.selected);
    if (row) {
      const edge = Math.max(50, row.length_ns * 0.08);
      Page.tables.get(row.segment).show({
        from: row.start_ns - edge,
        to: row.start_ns + row.length_ns + edge,
      });
    }
  }

  return { visit, move, problem, fold, turn, zoomed, screen, fit };
})();
