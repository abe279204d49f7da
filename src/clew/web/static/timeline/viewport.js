// What of the timeline is on screen, and what lies over it.
"use strict";

const Viewport = (() => {
  const ruler = document.getElementById("ruler");
  let planned = false;

  function refresh() {
    const focused = document.activeElement?.closest?.("tr.row")?.id;
    for (const table of Page.tables.values()) {
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
    for (const table of Page.tables.values()) {
      const top = table.body.getBoundingClientRect().top + scrollY;
      for (const row of table.rows) {
        if (row.denied || row.failed) {
          const y = Math.round((top + (row.index + 0.5) * Page.height) * scale);
          marks.set(y, marks.get(y) === "denied" || row.denied ? "denied" : "failed");
        }
      }
    }
    const drawn = [...marks].map(([y, look]) => {
      const x = look === "denied" ? "0" : "6";
      return Row.shape("rect", { class: look, x, y: String(y - 1), width: "6", height: "2" });
    });
    ruler.replaceChildren(...drawn);
  }

  function render() {
    for (const table of Page.tables.values()) {
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

  // What stays at the top of the screen covers the rows below it.
  function edge() {
    return (getComputedStyle(Page.form).position === "sticky" ? Page.form.offsetHeight : 0) + 34;
  }

  function floor() {
    const open = Page.body.classList.contains("open");
    const covers = open && getComputedStyle(Page.panel).position === "fixed";
    return innerHeight - (covers ? Page.panel.offsetHeight : 0);
  }

  return { refresh, rule, render, plan, edge, floor };
})();
