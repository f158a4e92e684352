// The one place where text becomes markup: what our own server has made.
const policy = window.trustedTypes
  ? trustedTypes.createPolicy("covey", { createHTML: (text) => text, createScriptURL: (text) => text })
  : { createHTML: (text) => text, createScriptURL: (text) => text };

export const scriptAt = (url) => policy.createScriptURL(url);

export function parsed(text) {
  return new DOMParser().parseFromString(policy.createHTML(text), "text/html").body;
}

// The inside of the page or answer at that address; null if it is not to be had now.
export async function inside(url) {
  const answer = await fetch(url, { headers: { "covey-fragment": "1", accept: "text/html" }, redirect: "manual" });
  if (answer.status === 401) throw new Error("session");
  return answer.ok && answer.headers.get("content-type")?.startsWith("text/html") ? parsed(await answer.text()) : null;
}
