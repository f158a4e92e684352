// Everything that a button does, a key does too.
import { open } from "./dialog.js";

const KEYS = [
  ["g", "then a letter: o overview, j jobs, r trees, q queues, w workers, c schedules, e errors, d dead, m metrics, s system"],
  ["/", "search"], ["j k", "next and previous row"], ["x", "choose the row"], ["Enter", "open the row"],
  ["n", "older"], ["r", "retry"], ["c", "cancel"], ["f", "follow the output, or not"], ["p", "pause updates"], ["t", "theme"], ["?", "this"],
];

export function keys(live) {
  let going = 0, row = null;
  const rows = () => [...document.querySelectorAll("main tbody tr[data-key]")];
  const click = (selector) => { const found = document.querySelector(selector); found?.click(); return Boolean(found); };
  function move(step) {
    const all = rows();
    if (!all.length) return;
    const at = all.indexOf(row);
    row?.classList.remove("here");
    row = all[at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + step))];
    row.classList.add("here");
    row.querySelector("a")?.focus({ preventScroll: true });
    row.scrollIntoView({ block: "nearest" });
  }
  function does(key) {
    if (performance.now() - going < 1500) { going = 0; return click(`nav a[data-go="${CSS.escape(key)}"]`); }
    if (key === "g") { going = performance.now(); return true; }
    if (key === "/") { const field = document.querySelector("[data-search], .search input"); field?.focus(); return Boolean(field); }
    if (key === "j" || key === "k") { move(key === "j" ? 1 : -1); return true; }
    if (key === "x") { row?.querySelector("input[type=checkbox]")?.click(); return true; }
    if (key === "f") return click("#follow");
    if (key === "p") { live.toggle(); return true; }
    if (key === "?") { help(); return true; }
    return /^[a-z]$/.test(key) && click(`[data-hotkey="${key}"]`);
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    if (does(event.key)) event.preventDefault();
  });
  document.querySelector('footer [data-hotkey="?"]')?.addEventListener("click", help);
}

function help() {
  const content = document.createElement("div");
  const title = document.createElement("h2");
  title.textContent = "Keys";
  const list = document.createElement("div");
  list.className = "keys";
  for (const [key, what] of KEYS) {
    const name = document.createElement("kbd"), said = document.createElement("span");
    name.textContent = key;
    said.textContent = what;
    list.append(name, said);
  }
  const close = document.createElement("button");
  close.className = "button";
  close.dataset.close = "";
  close.textContent = "close";
  content.append(title, list, close);
  open(content, document.activeElement);
}
