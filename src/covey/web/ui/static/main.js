// A page works without this; with it, it lives: it changes as the queue does, and keys do what buttons do.
import { askFirst } from "./dialog.js";
import { keys } from "./keys.js";
import { live } from "./live.js";
import { output } from "./output.js";
import { times } from "./time.js";
import { theme } from "./theme.js";

document.body.classList.add("lively");
times();
theme();
askFirst();
output();
keys(live());

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy !== undefined) {
    const done = await copied(button.dataset.copy);
    button.textContent = done ? "copied" : "select it";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } else if (button?.dataset.wrap !== undefined) {
    button.closest(".pane").querySelector(".output").classList.toggle("long");
  } else if (button?.dataset.save !== undefined) {
    const text = button.closest(".pane").querySelector(".output").textContent;
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "text/plain" }));
    link.download = button.dataset.save;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }
});

// Over plain HTTP a page has no clipboard: then the line is selected, and the browser's own way is tried.
async function copied(text) {
  if (navigator.clipboard) {
    try { await navigator.clipboard.writeText(text); return true; } catch { /* not allowed: the other way */ }
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}

// What the last form has done is said once: not again when the page is loaded anew.
const here = new URL(location);
if (here.searchParams.has("said")) {
  here.searchParams.delete("said");
  here.searchParams.delete("mark");
  history.replaceState(null, "", here);
}
