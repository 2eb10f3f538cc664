// A model's text as nodes: the Markdown that models write, and nothing else of it.
//
// Nodes are made one by one and text is set as text, so that whatever a model writes is shown and
// never run. Links lead to http, https and mailto alone; images are links. Quantifiers are bounded,
// and a paragraph beyond LONG is shown as it stands, so that no text takes long.

import { el } from "./dom.js";

const LONG = 20_000;
const SAFE = /^(https?:\/\/|mailto:)/i;
const INLINE = new RegExp(
  [
    "`([^`\\n]{1,1000})`",
    "\\*\\*([^*\\n]{1,1000})\\*\\*",
    "\\*([^*\\s][^*\\n]{0,1000})\\*",
    "!?\\[([^\\[\\]\\n]{1,500})\\]\\(([^()\\s]{1,2000})\\)",
    "(https?://[^\\s<>()\\[\\]\"'`]{1,2000})",
  ].join("|"),
  "g",
);

export function link(url, label) {
  if (!SAFE.test(url)) return `${label} (${url})`;
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, label);
}

export function inline(text) {
  if (text.length > LONG) return [text];
  const nodes = [];
  let from = 0;
  for (const found of text.matchAll(INLINE)) {
    const [whole, code, bold, italic, label, url, bare] = found;
    nodes.push(text.slice(from, found.index));
    from = found.index + whole.length;
    if (code !== undefined) nodes.push(el("code", {}, code));
    else if (bold !== undefined) nodes.push(el("strong", {}, bold));
    else if (italic !== undefined) nodes.push(el("em", {}, italic));
    else if (bare !== undefined) nodes.push(link(bare, bare));
    else nodes.push(link(url, label));
  }
  nodes.push(text.slice(from));
  return nodes.filter((node) => node !== "");
}

const FENCE = /^ {0,3}(```|~~~)(\S{0,40})/;
const HEADING = /^(#{1,6}) (.*)/;
const ITEM = /^ {0,8}(?:[-*+]|(\d{1,9})[.)]) +(.*)/;
const ROW = /^\|.*\|\s*$/;

function lines(text, join) {
  return text.split("\n").flatMap((line, place) => [...(place ? [join()] : []), ...inline(line)]);
}

function table(rows) {
  const cells = (row) => row.trim().slice(1, -1).split("|").map((cell) => cell.trim());
  const body = rows.filter((row) => !/^[|\s:-]+$/.test(row));
  const [head, ...rest] = body.map(cells);
  return el(
    "div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" },
    el(
      "table", {},
      el("thead", {}, el("tr", {}, ...head.map((cell) => el("th", {}, ...inline(cell))))),
      el("tbody", {}, ...rest.map((row) =>
        el("tr", {}, ...row.map((cell) => el("td", {}, ...inline(cell)))))),
    ),
  );
}

function list(rows) {
  const numbered = ITEM.exec(rows[0])[1];
  const items = rows.map((row) => el("li", {}, ...inline(ITEM.exec(row)?.[2] ?? row)));
  return numbered === undefined ? el("ul", {}, ...items) : el("ol", { start: numbered }, ...items);
}

// One block: what stands between blank lines, or a fence.
function block(rows) {
  const first = rows[0];
  const fence = FENCE.exec(first);
  if (fence) {
    const closed = rows.length > 1 && rows.at(-1).trim() === fence[1];
    const code = rows.slice(1, closed ? -1 : undefined).join("\n");
    return el("pre", { tabindex: "0", "data-language": fence[2] || null }, el("code", {}, code));
  }
  const heading = HEADING.exec(first);
  if (heading && rows.length === 1) {
    return el(`h${Math.min(6, heading[1].length + 2)}`, {}, ...inline(heading[2]));
  }
  if (/^ {0,3}(-{3,}|\*{3,})\s*$/.test(first) && rows.length === 1) return el("hr");
  if (rows.every((row) => ITEM.test(row))) return list(rows);
  if (rows.length > 1 && rows.every((row) => ROW.test(row))) return table(rows);
  if (rows.every((row) => row.startsWith(">"))) {
    const text = rows.map((row) => row.replace(/^> ?/, "")).join("\n");
    return el("blockquote", {}, ...lines(text, () => el("br")));
  }
  return el("p", {}, ...lines(rows.join("\n"), () => el("br")));
}

const kind = (row) =>
  HEADING.test(row) ? "heading" : ITEM.test(row) ? "item" : ROW.test(row) ? "row" : "text";

// Blocks of a text from an offset on, each with where it begins, and whether it has ended for good:
// a row that still grows may yet belong to the block before it.
function* blocks(text, from) {
  let rows = [], start = from, at = from, fence = null;
  for (const row of text.slice(from).split("\n")) {
    const next = at + row.length + 1;
    const opens = fence === null && FENCE.exec(row);
    const apart = rows.length && (opens || kind(row) !== kind(rows.at(-1)) || kind(row) === "heading");
    if (fence === null && rows.length && (row.trim() === "" || apart)) {
      yield { rows, start, ended: row.trim() === "" };
      rows = [];
    }
    if (fence !== null || row.trim() !== "") {
      if (!rows.length) start = at;
      rows.push(row);
    }
    if (fence !== null && row.trim() === fence) {
      yield { rows, start, ended: true };
      rows = [];
      fence = null;
    } else if (opens) fence = opens[1];
    at = next;
  }
  if (rows.length) yield { rows, start, ended: false };
}

// A text that grows: only the blocks that have not ended for good are made anew.
export class Growing {
  constructor() {
    this.node = el("div", { class: "text" });
    this.settled = 0;
    this.open = [];
    this.shown = 0;
  }

  update(text) {
    if (text.length === this.shown) return;
    if (this.long && text.length > this.shown) {
      this.long.appendData(text.slice(this.shown));
      this.shown = text.length;
      return;
    }
    this.shown = text.length;
    const found = [...blocks(text, this.settled)];
    for (const node of this.open) node.remove();
    this.open = [];
    for (const [place, { rows, start }] of found.entries()) {
      if (place > 0 && found[place - 1].ended) {
        this.settled = start;
        this.open = [];
      }
      const node = block(rows);
      this.node.append(node);
      this.open.push(node);
      if (place < found.length - 1) continue;
      if (text.length - start > LONG && node.tagName === "P" && rows.length === 1) {
        this.long = node.firstChild; // a line without end: it only grows
      }
    }
  }
}
