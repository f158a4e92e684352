// Light, dark, or as the system is. In a cookie, so that the server draws the next page right from the start.
const WAYS = ["", "light", "dark"];

export function theme() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const name = () => root.dataset.theme || "auto";
  if (!button) return;
  const say = () => { button.textContent = `theme: ${name()}`; };
  button.addEventListener("click", () => {
    const next = WAYS[(WAYS.indexOf(root.dataset.theme ?? "") + 1) % WAYS.length];
    if (next) root.dataset.theme = next; else delete root.dataset.theme;
    document.cookie = `covey_theme=${next}; path=${document.body.dataset.home}; max-age=31536000; samesite=lax`;
    say();
  });
  say();
}
