// Copying, on every page that has something to copy.
"use strict";

const COPIES = new WeakSet();

function copies() {
  for (const button of document.querySelectorAll("[data-copy]")) {
    if (COPIES.has(button)) {
      continue;
    }
    COPIES.add(button);
    const usual = button.textContent;
    let later = 0;
    button.hidden = false;
    button.addEventListener("click", async () => {
      clearTimeout(later);
      try {
        // Absent where the page is not served securely: that must be told, too.
        if (!navigator.clipboard) {
          throw new Error("there is no clipboard");
        }
        await navigator.clipboard.writeText(button.dataset.copy);
        button.textContent = "copied";
        button.dataset.state = "done";
      } catch {
        button.textContent = "not copied";
        button.dataset.state = "failed";
      }
      later = setTimeout(() => {
        button.textContent = usual;
        delete button.dataset.state;
      }, 2500);
    });
  }
}

copies();
document.addEventListener("clew:copies", copies);
