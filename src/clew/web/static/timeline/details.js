// The details of a span, beside the rows.
"use strict";

const Details = (() => {
  let asked = null;

  async function show(span) {
    asked?.abort();
    const question = (asked = new AbortController());
    const goal = Page.address(span);
    try {
      const { signal } = question;
      const answer = await fetch(`${Page.path}/spans/${span}?fragment=1`, { signal });
      if (!answer.ok) {
        throw new Error(answer.statusText);
      }
      // Server-rendered and escaped there, like the page itself.
      Page.panel.innerHTML = await answer.text();
    } catch (error) {
      if (error.name !== "AbortError") {
        location.href = goal;
      }
      return;
    }
    Page.panel.scrollTop = 0;
    mark(span);
    history.replaceState(null, "", goal);
    const row = Rows.of(span);
    if (Viewport.floor() < innerHeight && Rows.shows(row)) {
      Moves.visit(row); // the details may have come over it
    }
  }

  function mark(span) {
    for (const row of Page.body.querySelectorAll(".row.selected")) {
      row.classList.remove("selected");
      row.querySelector(".whole").removeAttribute("aria-current");
    }
    Page.selected = span;
    const row = span && document.getElementById(`s-${span}`);
    row?.classList.add("selected");
    row?.querySelector(".whole").setAttribute("aria-current", "true");
    Page.body.classList.toggle("open", Boolean(span));
  }

  function close() {
    const row = Rows.of(Page.selected);
    mark(null);
    Page.panel.replaceChildren();
    history.replaceState(null, "", Page.address(null));
    Moves.visit(row);
  }

  // A link to another span of this run is a step on this page.
  function follow(event) {
    const link = event.target.closest(".panel a");
    const goal = link && new URL(link.href);
    const row = goal?.pathname === Page.path && Rows.of(goal.searchParams.get("span"));
    if (Rows.shows(row)) {
      event.preventDefault();
      Moves.visit(row, { centre: true });
      show(row.span_id);
    }
  }

  return { show, close, follow };
})();
