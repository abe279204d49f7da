// News of a run that is still going on.
"use strict";

const Live = (() => {
  const QUIET = 10 * 60 * 1000; // without news for this long, watching ends
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
    while ("live" in Page.head.dataset) {
      tell(failures ? "connection lost, trying again" : "live");
      await pause(wait);
      await seen();
      quiet += wait;
      const began = performance.now();
      try {
        const answer = await fetch(`${Page.path}/head`, {
          headers: { "If-None-Match": Page.head.dataset.tag },
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
    await Rows.load();
    Page.head.innerHTML = text;
    Page.head.dataset.tag = answer.headers.get("etag") ?? "";
    if (!document.getElementById("live")) {
      delete Page.head.dataset.live;
    }
    document.dispatchEvent(new Event("clew:copies"));
    for (const each of Page.kinds) {
      const count = Rows.all.filter((row) => row.type === each.value).length;
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

  return { watch, tell };
})();
