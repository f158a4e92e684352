// What is on the page becomes what it should be, and nothing else is touched: focus, choices, open parts and scrolling stay.
export function patch(old, fresh) {
  const keyed = new Map();
  for (const child of old.children) if (child.dataset.key) keyed.set(child.dataset.key, child);
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const key = next.nodeType === 1 ? next.dataset?.key : undefined;
    const match = key ? keyed.get(key) : at && alike(at, next) ? at : null;
    if (!match) { old.insertBefore(next, at); continue; }
    if (match === at) at = at.nextSibling;
    else old.insertBefore(match, at);
    become(match, next);
  }
  while (at) { const gone = at; at = at.nextSibling; gone.remove(); }
}

const alike = (a, b) => a.nodeName === b.nodeName && !(a.nodeType === 1 && a.dataset?.key);

function become(old, next) {
  if (old.nodeType !== 1) { if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue; return; }
  if (old.nodeName !== next.nodeName) { old.replaceWith(next); return; }
  if (next.dataset.keep !== undefined) {  // what a person or a stream has changed
    if (old.dataset.keep !== next.dataset.keep) old.replaceWith(next);
    return;
  }
  for (const { name, value } of [...next.attributes]) {
    if (!mine(old, name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) if (!mine(old, name) && !next.hasAttribute(name)) old.removeAttribute(name);
  patch(old, next);
}

// A person's own doing: what is open, ticked, written, marked.
function mine(element, name) {
  return (name === "open" && element.nodeName === "DETAILS") || name === "checked" || (name === "value" && element.nodeName === "INPUT")
    || (name === "class" && element.classList.contains("here"));
}
