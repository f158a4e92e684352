// What asks first does so in front of the page that one is on. Without this it is a page of its own.
import { inside } from "./markup.js";

export function askFirst() {
  document.addEventListener("submit", async (event) => {
    const form = event.target, by = event.submitter;
    if (form.dataset.ask === undefined || form.closest("dialog")) return;
    event.preventDefault();
    const url = new URL(by?.formAction || form.action);
    url.search = new URLSearchParams(new FormData(form));
    try {
      const content = await inside(url);
      if (!content) throw new Error("no answer");
      open(content, by);
    } catch { location.assign(url); }
  });
}

export function open(content, opener) {
  const dialog = document.createElement("dialog");
  dialog.append(...content.childNodes);
  const title = dialog.querySelector("h1, h2");
  if (title) { title.id = "asked"; dialog.setAttribute("aria-labelledby", "asked"); }
  dialog.addEventListener("click", (event) => {
    const close = event.target.closest("[data-close]");
    if (close || event.target === dialog) { event.preventDefault(); dialog.close(); }
  });
  dialog.addEventListener("close", () => { dialog.remove(); opener?.focus(); });
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("[data-close]")?.focus();
  return dialog;
}
