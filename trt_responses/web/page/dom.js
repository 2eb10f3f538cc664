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

// Calls `work` once in the next frame, however often it is asked.
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}
