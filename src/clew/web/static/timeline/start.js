// The last script to run: it takes over the page that the server has made.
"use strict";

(() => {
  for (const element of document.querySelectorAll("table.spans")) {
    Page.tables.set(Number(element.dataset.segment), new Segment(element));
  }
  Page.height = document.querySelector("tr.row")?.getBoundingClientRect().height || Page.height;
  const ready = Rows.load().then(() => {
    document.getElementById("zooms").hidden = false;
    document.getElementById("pager")?.remove();
    document.getElementById("apply").hidden = true;
    const row = Rows.of(Page.selected);
    if (Rows.shows(row)) {
      Moves.visit(row, { centre: true });
    }
    document.documentElement.dataset.ready = "";
  });
  Keys.listen(ready);
  ready.then(Live.watch, () => Live.tell("the timeline could not be loaded whole"));
})();
