// The timeline of a run, on top of a page that works without it: all rows at once with only those
// on screen in the document, filter, zoom, keys, details beside the rows, and news while it runs.
//
// Each script of this folder makes one object, named like its file, that the others use once all of
// them have run. This one is what they share: the elements of the page, and what is chosen on it.
"use strict";

const Page = (() => {
  const form = document.getElementById("filter");
  const body = document.getElementById("body");
  const path = `/runs/${body.dataset.run}`;
  const words = form.elements.q;
  const outcome = form.elements.outcome;
  const kinds = [...form.querySelectorAll("[name=kind]")];

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

  // Where this page is, as it is filtered, with the details of a span or without any.
  function address(span) {
    const asked = query();
    if (span) {
      asked.set("span", span);
    }
    const text = asked.toString();
    return `${path}${text ? `?${text}` : ""}${span ? `#s-${span}` : ""}`;
  }

  return {
    form,
    body,
    path,
    words,
    outcome,
    kinds,
    address,
    panel: document.getElementById("panel"),
    head: document.getElementById("head"),
    tables: new Map(), // place of a segment -> its table
    collapsed: new Set(), // span ids
    current: null, // span id of the row that keys go on from
    selected: new URLSearchParams(location.search).get("span"),
    height: 26, // pixels of a row
  };
})();
