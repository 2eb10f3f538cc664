// JSON as a tree that folds and can be copied. What is folded has no nodes until it is opened.

import { button, copyButton, el } from "./dom.js";

const AT_ONCE = 100; // entries of one list or object that are shown without a click
const LONG = 2000; // characters of a string that are shown without a click
const SHORT = 72; // characters of a list of plain values that stays in one line
const OPEN = 60; // a value of at most so many entries is shown unfolded

// A number that JavaScript would round, as it is written.
class Exact {
  constructor(source) {
    this.source = source;
  }
}

const exactly = (_, value, context) =>
  typeof value === "number" && context?.source && String(value) !== context.source ? new Exact(context.source) : value;

const folds = (value) => value !== null && typeof value === "object" && !(value instanceof Exact);

// The object or list that a text is; undefined for any other text.
export function parsed(text) {
  if (!/^\s*[{[]/.test(text)) return undefined;
  try {
    return JSON.parse(text, exactly);
  } catch {
    return undefined;
  }
}

const plain = (value, indent = 2) => JSON.stringify(value, (_, each) => (each instanceof Exact ? Number(each.source) : each), indent);

const inLine = (value) => Array.isArray(value) && !value.some(folds) && plain(value, 0).length <= SHORT;

// Counts entries, no further than `most`.
function size(value, most) {
  if (!folds(value)) return 1;
  let count = 1;
  for (const each of Object.values(value)) {
    count += size(each, most - count);
    if (count > most) break;
  }
  return count;
}

function leaf(value) {
  if (value instanceof Exact) return el("span", { class: "json-number" }, value.source);
  const kind = value === null ? "null" : typeof value;
  const text = JSON.stringify(value);
  const node = el("span", { class: `json-${kind}` }, text.slice(0, LONG));
  if (text.length > LONG) {
    const rest = button(`… all ${text.length} characters`, () => {
      node.textContent = text;
      rest.remove();
    });
    return el("span", {}, node, rest);
  }
  return node;
}

function entry(key, value, depth, unfolded) {
  const name = key === null ? null : el("span", { class: "json-key" }, String(key));
  if (!folds(value)) return el("li", {}, name, name && ": ", leaf(value));
  if (depth && inLine(value)) return el("li", {}, name, ": [", ...value.flatMap((each, place) => [place ? ", " : "", leaf(each)]), "]");
  const list = Array.isArray(value), count = Object.keys(value).length;
  const children = el("ul");
  const node = el(
    "details", {},
    el("summary", {}, name, name && " ", el("span", { class: "faint" }, list ? `[${count}]` : `{${count}}`)), children,
  );
  const fill = (from = 0) => {
    const entries = Object.entries(value);
    children.append(...entries.slice(from, from + AT_ONCE).map(([k, v]) => entry(k, v, depth + 1, unfolded)));
    if (entries.length <= from + AT_ONCE) return;
    const more = el("li", {}, button(`${entries.length - from - AT_ONCE} more`, () => {
      more.remove();
      fill(from + AT_ONCE);
    }));
    children.append(more);
  };
  node.addEventListener("toggle", () => node.open && !children.firstChild && fill());
  if (unfolded || depth === 0) {
    node.open = true;
    fill();
  }
  const copy = depth ? copyButton(() => plain(value)) : null;
  copy?.setAttribute("aria-label", `Copy ${key}`);
  return el("li", {}, node, copy);
}

// The tree of a value. `text` is how the model wrote it, for copying and for those who prefer it.
export function tree(value, text) {
  const root = el("ul", { class: "tree" }, entry(null, value, 0, size(value, OPEN) <= OPEN));
  const source = el("pre", { tabindex: "0", hidden: true }, el("code", {}, text));
  const nested = root.querySelector("details details");
  const all = (open) => {
    for (const node of root.querySelectorAll("details")) node.open = open;
  };
  const swap = button("Text", () => {
    root.hidden = !root.hidden;
    source.hidden = !source.hidden;
    swap.textContent = root.hidden ? "Tree" : "Text";
  });
  return el(
    "div", { class: "json" },
    el("div", { class: "code-head" }, el("span", {}, "JSON"), el(
      "span", {}, ...(nested ? [button("Unfold", () => all(true), { title: "Unfold one level more" }), button("Fold", () => all(false))] : []),
      swap, copyButton(() => text),
    )),
    root, source,
  );
}

// A text as a tree where it is JSON, else as it stands.
export function shown(text) {
  const value = parsed(text);
  return value === undefined ? el("pre", { tabindex: "0" }, text) : tree(value, text);
}
