// What a running job writes, as it writes it: asked from where the page has read, a few thousand lines kept.
const PACE = 300, REST = 1500, MOST = 400000;

export function output() {
  let at = null, timer = 0;
  function start() {
    const place = document.getElementById("live-output");
    if (!place) { at = null; return; }
    if (at && at.place === place && at.fence === place.dataset.fence) return;
    at = { place, fence: place.dataset.fence, out: Number(place.dataset.out), err: Number(place.dataset.err) };
    for (const pane of place.querySelectorAll(".output")) pane.scrollTop = pane.scrollHeight;
    clearTimeout(timer);
    timer = setTimeout(look, PACE);
  }
  async function look() {
    if (!at || !at.place.isConnected) return;
    let more = false;
    if (!document.hidden) {
      try {
        const url = `${at.place.dataset.follow}?fence=${at.fence}&out=${at.out}&err=${at.err}`;
        const answer = await fetch(url, { headers: { accept: "application/json" } });
        if (!answer.ok) throw new Error(answer.status);
        const said = await answer.json();
        if (String(said.fence) === at.fence) {
          more = add("stdout", said.stdout) | add("stderr", said.stderr);
          at.out = said.out;
          at.err = said.err;
        }
      } catch { /* the job has ended, or the server is away: the page will say so */ }
    }
    timer = setTimeout(look, more ? PACE : Math.min(REST, PACE * 2));
  }
  function add(name, text) {
    if (!text) return false;
    const pane = at.place.querySelector(`[data-stream-name="${name}"]`);
    const follows = document.getElementById("follow")?.checked;
    // Colours come with the stored output; while it runs, what a terminal would obey is left out.
    const plain = text.replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g, "");
    pane.append(plain);
    let length = pane.textContent.length;
    while (length > MOST && pane.firstChild !== pane.lastChild) { length -= pane.firstChild.textContent.length; pane.firstChild.remove(); }
    if (length > MOST) pane.textContent = pane.textContent.slice(-MOST / 2);
    if (follows) pane.scrollTop = pane.scrollHeight;
    return true;
  }
  document.addEventListener("covey:fresh", start);
  start();
}
