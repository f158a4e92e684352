// Distances in time go on while nobody asks the server. Its clock counts, not this machine's.
let ahead = 0;

export function refreshed() {
  const now = document.querySelector("[data-now]")?.dataset.now;
  if (/^\d+$/.test(now ?? "")) ahead = Number(now) - Date.now();
}

export function times() {
  refreshed();
  setInterval(() => { if (!document.hidden) for (const each of document.querySelectorAll("time[datetime]")) tell(each); }, 1000);
}

function tell(element) {
  const left = (Date.parse(element.dateTime) - Date.now() - ahead) / 1000;
  const said = element.dataset.span !== undefined ? span(Math.max(0, -left)) : left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
  if (element.textContent !== said) element.textContent = said;
}

function span(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  for (const [unit, name, lower, below, most] of [[60, "min", 1, "s", 60], [3600, "h", 60, "min", 24], [86400, "d", 3600, "h", 1e9]]) {
    if (seconds < unit * most) {
      const whole = Math.floor(seconds / unit), rest = Math.floor((seconds % unit) / lower);
      return `${whole} ${name}${rest ? ` ${rest} ${below}` : ""}`;
    }
  }
  return "for ever";
}
