// Shared by all tabs of a browser: the one open connection, and who wants to hear of it.
const ports = new Set();
let source = null, latest = null, again = 0;

function tell(message) { latest = message; for (const port of ports) port.postMessage(message); }

function open() {
  clearTimeout(again);
  source = new EventSource(new URL("../stream", self.location));
  source.addEventListener("changed", (event) => tell({ kind: "changed", moment: event.data }));
  source.addEventListener("error", (event) => {
    if (event.data !== undefined) { close(); tell({ kind: /unauthorized|forbidden/.test(event.data) ? "over" : "away" }); retry(); }
    else if (source.readyState === 2) { close(); ask(); }
    else tell({ kind: "away" });
  });
}
function close() { source?.close(); source = null; }
function retry() { clearTimeout(again); again = setTimeout(() => { if (ports.size && !source) open(); }, 2000); }
// A stream that was refused says nothing of why: ask.
async function ask() {
  try { const answer = await fetch(new URL("../stream?why", self.location), { method: "HEAD" }); tell({ kind: answer.status === 401 ? "over" : "away" }); }
  catch { tell({ kind: "away" }); }
  retry();
}
function join(port) { ports.add(port); if (latest) port.postMessage(latest); if (!source) open(); }
self.onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data === "here") join(port);
    else { ports.delete(port); if (!ports.size) close(); }
  };
  join(port);
};
