// Nodes from values. Text is only ever set as text: nothing here parses HTML.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

export const button = (label, onclick, attributes = {}) =>
  el("button", { type: "button", class: "plain", onclick, ...attributes }, label);

// What this browser keeps between visits, and for one visit; nothing where storage is not allowed.
const place = (storage) => ({
  get(name) {
    try {
      return window[storage].getItem(`trt_responses.${name}`);
    } catch {
      return null;
    }
  },
  set(name, value) {
    try {
      window[storage].setItem(`trt_responses.${name}`, value);
    } catch {
      // the page forgets on reload
    }
  },
});
export const kept = place("localStorage");
export const visit = place("sessionStorage");

export const json = (value) => JSON.stringify(value, null, 2);

// A button that copies what `text` gives, and says so.
export function copyButton(text, label = "Copy") {
  const node = button(label, async () => {
    try {
      await navigator.clipboard.writeText(text());
      node.textContent = "Copied";
    } catch {
      node.textContent = "Select the text and copy it yourself";
    }
    setTimeout(() => (node.textContent = label), 2000);
  });
  return node;
}

// Saves data as a file of this name.
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Returns a function that schedules `work` once for the next frame. After slow work it waits three times as
// long as the work took, so the page stays responsive with large answers.
export function eachFrame(work) {
  let scheduled = false;
  let free = 0;
  const frame = () => requestAnimationFrame((begun) => {
    scheduled = false;
    work();
    free = begun + 4 * (performance.now() - begun);
  });
  return () => {
    if (scheduled) return;
    scheduled = true;
    const wait = free - performance.now();
    if (wait > 0) setTimeout(frame, wait);
    else frame();
  };
}
