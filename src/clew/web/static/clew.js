// Comfort on top of pages that work without it: details beside the timeline, keys, copying.
"use strict";

const body = document.getElementById("body");
const panel = document.getElementById("panel");
let asked = null;

async function show(link) {
  asked?.abort();
  const question = (asked = new AbortController());
  try {
    const answer = await fetch(`${link.dataset.details}?fragment=1`, { signal: question.signal });
    if (!answer.ok) {
      throw new Error(answer.statusText);
    }
    // Server-rendered and escaped there, like the page itself.
    panel.innerHTML = await answer.text();
  } catch (error) {
    if (error.name !== "AbortError") {
      location.href = link.href;
    }
    return;
  }
  mark(link);
  panel.scrollTop = 0;
  history.replaceState(null, "", link.href);
}

function mark(link) {
  for (const row of document.querySelectorAll(".row.selected")) {
    row.classList.remove("selected");
    row.querySelector(".whole").removeAttribute("aria-current");
  }
  link?.closest(".row").classList.add("selected");
  link?.setAttribute("aria-current", "true");
  body.classList.toggle("open", Boolean(link));
}

function close() {
  const link = document.querySelector(".row.selected .whole");
  mark(null);
  panel.replaceChildren();
  history.replaceState(null, "", location.pathname);
  link?.focus();
}

function move(step) {
  const links = [...document.querySelectorAll(".row .whole")].filter((each) => each.offsetParent);
  const current = document.activeElement?.closest(".row") ?? document.querySelector(".row.selected");
  const place = current ? links.findIndex((each) => current.contains(each)) : -1;
  const next = links[Math.min(links.length - 1, Math.max(0, place + step))];
  next?.focus();
  if (body.classList.contains("open") && next) {
    show(next);
  }
}

const plain = (event) => !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

if (body && panel) {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-details]");
    if (link && plain(event)) {
      event.preventDefault();
      show(link);
    } else if (event.target.closest(".panel .close") && plain(event)) {
      event.preventDefault();
      close();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (!plain(event) || event.target.matches("input, select, textarea")) {
      return;
    }
    if (event.key === "Escape" && body.classList.contains("open")) {
      close();
    } else if (event.key === "j" || event.key === "ArrowDown") {
      event.preventDefault();
      move(1);
    } else if (event.key === "k" || event.key === "ArrowUp") {
      event.preventDefault();
      move(-1);
    }
  });
}

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "copied";
    } catch {
      button.textContent = "not allowed";
    }
    setTimeout(() => (button.textContent = "copy"), 1500);
  });
}
