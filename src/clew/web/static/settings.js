// The form of the settings: nothing can be changed while it is being saved, and after a failure the
// controls show what is in force.
"use strict";

(() => {
  const form = document.getElementById("capture");
  const controls = document.getElementById("controls");
  const state = document.getElementById("state");
  if (!form || !controls || !state) {
    return;
  }

  function tell(text, look) {
    const said = document.createElement("span");
    said.className = look;
    said.textContent = text;
    state.replaceChildren(said);
  }

  function show(settings) {
    form.elements.enabled.value = settings.capture_enabled ? "on" : "off";
    const days = form.elements.retention_days;
    if (![...days.options].some((each) => Number(each.value) === settings.retention_days)) {
      days.add(new Option(`${settings.retention_days} days`, settings.retention_days));
    }
    days.value = String(settings.retention_days);
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const sent = new URLSearchParams(new FormData(form));
    controls.disabled = true;
    tell("Saving…", "sub");
    try {
      const answer = await fetch(form.action, {
        method: "POST",
        headers: { Accept: "application/json" },
        body: sent,
      });
      const found = await answer.json();
      if (!answer.ok) {
        throw new Error(found.error?.message ?? answer.statusText);
      }
      show(found);
      tell("Saved", "good");
    } catch (error) {
      tell(error.message || "The server does not answer.", "bad");
      try {
        show(await (await fetch("/api/settings")).json());
      } catch {
        // What is in force is not known; what was chosen stays.
      }
    } finally {
      controls.disabled = false;
    }
  });
})();
