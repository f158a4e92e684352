// One stream for all tabs of a browser, in a worker that they share; each page then asks for its own inside again.
import { inside, scriptAt } from "./markup.js";
import { patch } from "./patch.js";
import { refreshed } from "./time.js";

const PACE = 700;  // ms between two looks, at least
const POLL = 5000;  // where there is no worker to share

export function live() {
  const page = document.querySelector("main");
  const said = document.getElementById("live");
  const state = { paused: false, toggle };
  if (!document.body.dataset.stream || !said) return state;
  let dirty = false, looking = false, last = 0, known = null;

  function say(word) { said.textContent = word; said.dataset.now = word; }
  function toggle() {
    state.paused = !state.paused;
    say(state.paused ? "paused" : "live");
    if (!state.paused) look();
  }
  const busy = () => state.paused || document.hidden || document.querySelector("dialog[open]") || selecting();
  const selecting = () => { const chosen = getSelection(); return chosen && !chosen.isCollapsed && page.contains(chosen.anchorNode); };

  async function look() {
    dirty = true;
    if (looking || busy() || page.dataset.live === undefined) return;
    looking = true;
    await new Promise((go) => setTimeout(go, Math.max(0, last + PACE - performance.now())));
    dirty = false;
    last = performance.now();
    try {
      const fresh = await inside(location.href);
      if (fresh && !busy()) { patch(page, fresh); refreshed(); document.dispatchEvent(new Event("covey:fresh")); }
      if (!state.paused) say("live");
    } catch (error) { over(error); }
    last = Math.max(last, performance.now() - PACE / 2);
    looking = false;
    if (dirty) look();
  }
  function over(error) {
    if (error.message !== "session") return say("away");
    say("away");
    if (!document.getElementById("over")) {
      const note = document.createElement("div");
      note.id = "over";
      note.className = "note bad";
      note.setAttribute("role", "alert");
      const link = document.createElement("a");
      link.href = `${document.body.dataset.home}/login?next=${encodeURIComponent(location.pathname + location.search)}`;
      link.textContent = "Log in again";
      note.append("This session is over. ", link);
      page.before(note);
      note.style.gridArea = "page";
      note.style.placeSelf = "start center";
      note.style.zIndex = 2;
    }
  }
  function heard({ data }) {
    if (data.kind === "changed") { if (data.moment !== known) { known = data.moment; look(); } else say(state.paused ? "paused" : "live"); }
    else if (data.kind === "over") over(new Error("session"));
    else if (!state.paused) say("away");
  }
  try {
    const worker = new SharedWorker(scriptAt(document.body.dataset.worker), "covey");
    worker.port.onmessage = heard;
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("gone"));
    addEventListener("pageshow", () => worker.port.postMessage("here"));
  } catch {
    setInterval(look, POLL);
    say("live");
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
  return state;
}
