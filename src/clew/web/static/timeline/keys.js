// Keys, clicks, and dragging on the axis.
"use strict";

const Keys = (() => {
  const help = document.getElementById("help");
  const actions = {
    ArrowDown: () => Moves.move(1),
    ArrowUp: () => Moves.move(-1),
    j: () => Moves.move(1),
    k: () => Moves.move(-1),
    Home: () => Moves.move(-Rows.flat.length),
    End: () => Moves.move(Rows.flat.length),
    n: () => Moves.problem(1),
    p: () => Moves.problem(-1),
    ArrowRight: () => Moves.fold(false),
    ArrowLeft: () => Moves.fold(true),
    "/": () => Page.words.focus(),
    "+": () => Moves.zoomed()?.scaled(0.5),
    "=": () => Moves.zoomed()?.scaled(0.5),
    "-": () => Moves.zoomed()?.scaled(2),
    0: () => Moves.zoomed()?.show(null),
    f: Moves.fit,
    v: Moves.screen,
    i: () => Page.panel.querySelector(".to-prompt a")?.click(),
    "[": () => Moves.zoomed()?.moved(-0.25),
    "]": () => Moves.zoomed()?.moved(0.25),
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
        } else if (Page.body.classList.contains("open")) {
          ready.then(Details.close);
        }
      } else if (!typing && Object.hasOwn(actions, event.key)) {
        event.preventDefault();
        ready.then(actions[event.key]);
      } else if (event.target === Page.words && event.key === "ArrowDown") {
        event.preventDefault();
        Page.words.blur();
        Page.current = null;
        ready.then(() => Moves.visit(Rows.flat.find((each) => !each.aside)));
      }
    });
    document.addEventListener("click", (event) => {
      if (!plain(event) || event.shiftKey) {
        return;
      }
      const twist = event.target.closest(".twist");
      const row = event.target.closest("tr.row");
      if (twist && row) {
        Page.current = row.id.slice(2);
        Moves.turn(Rows.of(Page.current));
      } else if (row && Rows.places.has(row.id.slice(2))) {
        event.preventDefault();
        Page.current = row.id.slice(2);
        Details.show(Page.current);
      } else if (event.target.closest(".panel .close")) {
        event.preventDefault();
        Details.close();
      } else {
        Details.follow(event);
      }
    });
    Page.body.addEventListener("focusin", (event) => {
      Page.current = event.target.closest("tr.row")?.id.slice(2) ?? Page.current;
    });
    for (const [id, act] of [
      ["in", () => Moves.zoomed()?.scaled(0.5)],
      ["out", () => Moves.zoomed()?.scaled(2)],
      ["screen", Moves.screen],
      ["all", () => Page.tables.forEach((each) => each.show(null))],
      ["problem", () => Moves.problem(1)],
      ["keys", () => help.showModal()],
    ]) {
      document.getElementById(id).addEventListener("click", act);
    }
    Page.form.addEventListener("submit", (event) => event.preventDefault());
    Page.form.addEventListener("input", changed);
    Page.form.addEventListener("click", (event) => {
      if (event.target.id === "clear") {
        event.preventDefault();
        Page.words.value = Page.outcome.value = "";
        Page.kinds.forEach((each) => (each.checked = true));
        changed();
      }
    });
    const narrower = new ResizeObserver((changes) => {
      Page.body.style.setProperty("--tools", `${Page.form.offsetHeight}px`);
      for (const { target } of changes) {
        [...Page.tables.values()].find((each) => each.ticks === target)?.axis();
      }
    });
    narrower.observe(Page.form, { box: "border-box" });
    for (const table of Page.tables.values()) {
      drag(table);
      narrower.observe(table.ticks);
    }
    addEventListener("scroll", Viewport.plan, { passive: true });
    addEventListener("resize", () => {
      Viewport.plan();
      Viewport.rule();
    });
    document.getElementById("ruler").addEventListener("click", (event) => {
      const whole = document.documentElement.scrollHeight;
      scrollTo(0, (event.clientY / innerHeight) * whole - innerHeight / 2);
    });
  }

  function changed() {
    Rows.accept();
    history.replaceState(null, "", Page.address(Page.selected));
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

  return { listen };
})();
