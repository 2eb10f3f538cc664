// A model's text as nodes: GitHub's Markdown, code with colours, formulas.
//
// Libraries parse; the nodes are made here, one by one, and text is set as text: whatever a model writes
// is shown and never run. Links lead to http, https and mailto alone; images are links.

import { copyButton, el } from "./dom.js";
import { MarkdownIt, footnote, hljs } from "./vendor-text.js";

const LONG = 20_000; // a paragraph or a formula beyond it is shown as it stands
const COLOURED = 30_000; // characters of code that get colours
const SAFE = /^(https?:\/\/|mailto:)/i;

const parser = new MarkdownIt({ linkify: true, breaks: true }).use(footnote).use(formulas);
parser.validateLink = () => true; // links are judged where their nodes are made
parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false });

export function link(url, label) {
  const inside = typeof label === "string" ? [label] : label;
  if (!SAFE.test(url)) return el("span", {}, ...inside, ` (${url})`);
  return el("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, ...inside);
}

// --- formulas --------------------------------------------------------------------------------

const FORMULA = /\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$(.+?)\$\$/sy;

function formulas(md) {
  md.inline.ruler.before("escape", "formula", (state, silent) => {
    FORMULA.lastIndex = state.pos;
    const first = state.src[state.pos];
    if (first !== "\\" && first !== "$") return false;
    const found = FORMULA.exec(state.src);
    if (!found || found[0].length > LONG) return false;
    if (!silent) {
      const token = state.push("formula", "math", 0);
      token.content = (found[1] ?? found[2] ?? found[3]).trim();
      token.block = found[1] === undefined;
      token.markup = found[0];
    }
    state.pos += found[0].length;
    return true;
  });
  md.block.ruler.before("fence", "formula_block", formulaBlock, { alt: ["paragraph"] });
}

// Lines from one that begins with \[ or $$ to one that ends with its pair; it may not have come yet.
function formulaBlock(state, first, last, silent) {
  const line = (number) => state.src.slice(state.bMarks[number] + state.tShift[number], state.eMarks[number]);
  const begin = /^(\\\[|\$\$)/.exec(line(first))?.[1];
  if (!begin) return false;
  const end = begin === "$$" ? "$$" : "\\]";
  let at = first;
  while (at < last && !(line(at).trimEnd().endsWith(end) && (at > first || line(at).trimEnd().length > 2))) at++;
  if (at >= last) return false;
  if (silent) return true;
  const token = state.push("formula", "math", 0);
  token.map = [first, at + 1];
  token.block = true;
  token.markup = state.getLines(first, at + 1, state.blkIndent, false);
  token.content = token.markup.trim().slice(2, -2).trim();
  state.line = at + 1;
  return true;
}

function formula(token) {
  const node = el("span", { class: token.block ? "formula wide" : "formula" }, token.markup);
  import("./vendor-maths.js").then(({ katex }) => {
    katex.render(token.content, node, { output: "mathml", displayMode: token.block, trust: false, maxExpand: 500 });
  }).catch(() => node.replaceChildren(token.markup)); // not a formula after all
  return node;
}

// --- code ------------------------------------------------------------------------------------

function coloured(code, language) {
  if (!hljs.getLanguage(language) || code.length > COLOURED) return [code];
  const nodes = ({ children }) => children.map((child) =>
    typeof child === "string" ? child : el("span", { class: child.scope ? `hljs-${child.scope.split(".")[0]}` : null }, ...nodes(child)));
  return nodes(hljs.highlight(code, { language, ignoreIllegals: true })._emitter.rootNode);
}

export function codeBlock(code, language, done) {
  return el(
    "div", { class: "code-block" },
    el("div", { class: "code-head" }, el("span", {}, language || "code"), copyButton(() => code)),
    el("pre", { tabindex: "0", "data-language": language || null },
      el("code", {}, ...(done ? coloured(code, language) : [code]))),
  );
}

// --- nodes from tokens -----------------------------------------------------------------------

const HEADINGS = { h1: "h3", h2: "h4", h3: "h5", h4: "h6", h5: "h6", h6: "h6" };
const TASK = /^\[([ xX])\] /;

// Builds nodes from tokens: an opening token begins a node, its closing token ends it.
class Builder {
  constructor(done) {
    this.done = done;
    this.root = el("div");
    this.open = [this.root];
  }

  add(node) {
    this.open.at(-1).append(node);
  }

  take(tokens) {
    for (const token of tokens) {
      if (token.nesting === 1) this.open.push(this.begun(token));
      else if (token.nesting === -1) this.end(token);
      else if (token.type === "inline") this.take(token.children);
      else if (!token.hidden) this.leaf(token);
    }
    return this;
  }

  begun(token) {
    if (token.hidden) return el("p", { class: "tight" });
    if (token.type === "link_open") return Object.assign(el("span"), { url: token.attrGet("href") });
    if (token.type === "footnote_block_open") return el("section", { class: "footnotes" });
    if (token.type === "footnote_open") return el("p", {}, `${token.meta.id + 1}. `);
    const node = el(HEADINGS[token.tag] ?? (token.tag || "div"));
    if (token.attrGet("start")) node.setAttribute("start", token.attrGet("start"));
    const align = /text-align:(\w+)/.exec(token.attrGet("style") ?? "");
    if (align) node.style.textAlign = align[1];
    return node;
  }

  end(token) {
    let node = this.open.pop();
    if (token.hidden) return this.open.at(-1).append(...node.childNodes);
    if (token.type === "link_close") node = link(node.url, [...node.childNodes]);
    if (token.type === "table_close") node = el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" }, node);
    if (token.type === "list_item_close") task(node);
    this.add(node);
  }

  leaf(token) {
    switch (token.type) {
      case "text": return this.add(token.content);
      case "code_inline": return this.add(el("code", {}, token.content));
      case "fence":
      case "code_block":
        return this.add(codeBlock(token.content.replace(/\n$/, ""), token.info.trim().split(/\s+/)[0].slice(0, 40), this.done));
      case "softbreak":
      case "hardbreak": return this.add(el("br"));
      case "hr": return this.add(el("hr"));
      case "image": return this.add(link(token.attrGet("src"), token.content || token.attrGet("src")));
      case "formula": return this.add(formula(token));
      case "footnote_ref": return this.add(el("sup", {}, `[${token.meta.id + 1}]`));
      case "footnote_anchor": return undefined;
      default: return this.add(token.content);
    }
  }
}

// "[x] done" at the beginning of an item is a box.
function task(item) {
  const text = document.createTreeWalker(item, NodeFilter.SHOW_TEXT).nextNode();
  const found = text && TASK.exec(text.data);
  if (!found) return;
  text.data = text.data.slice(found[0].length);
  text.before(el("input", { type: "checkbox", disabled: true, checked: found[1] !== " ", "aria-label": "Done" }), " ");
}

const nodesOf = (tokens, done) => [...new Builder(done).take(tokens).root.childNodes];

// The nodes of a whole text.
export const rendered = (text) => nodesOf(parser.parse(text, {}), true);

// Where a line of a text begins.
function lineStart(text, number) {
  let at = 0;
  for (let line = number; line > 0; line--) at = text.indexOf("\n", at) + 1;
  return at;
}

const LATE = /\[\^|^ {0,3}\[[^\]\n]{1,200}\]:/m; // a footnote or a link that is defined elsewhere

// A text that grows: only its last block is made anew.
export class Growing {
  constructor() {
    this.node = el("div", { class: "text" });
    this.settled = 0; // where the last block begins
    this.open = []; // its nodes
    this.shown = 0;
    this.done = false;
  }

  // `done`: no more will come.
  update(text, done = false) {
    if (text.length === this.shown && done === this.done) return;
    if (this.long) this.lengthen(text.slice(this.shown));
    else this.draw(text, done);
    this.shown = text.length;
    this.done = done;
  }

  draw(text, done) {
    if (done && LATE.test(text) && text.length < 5 * LONG) {
      this.node.replaceChildren(...rendered(text));
      return;
    }
    for (const node of this.open) node.remove();
    const rest = text.slice(this.settled);
    if (rest.length > LONG && !/\n|```|~~~/.test(rest)) {
      this.long = true; // a line without end: it only grows
      this.open = [];
      this.lengthen(rest);
    } else this.open = this.settle(rest, done);
    this.node.append(...this.open);
  }

  // Pieces of a long line are blocks of their own: the browser lays out the last one anew, and not the line.
  lengthen(text) {
    for (let at = 0; at < text.length;) {
      if (!this.last || this.last.length >= LONG) {
        this.last = document.createTextNode("");
        this.node.append(el("p", { class: "piece" }, this.last));
      }
      const more = text.slice(at, at + LONG - this.last.length);
      this.last.appendData(more);
      at += more.length;
    }
  }

  // Adds the blocks that cannot change any more. Returns the nodes of the last one.
  settle(rest, done) {
    const tokens = parser.parse(rest, {});
    const last = tokens.findLastIndex((token) => token.level === 0 && token.map && token.nesting >= 0);
    const line = tokens[last]?.map[0] ?? 0;
    if (line === 0) return nodesOf(tokens, done);
    this.node.append(...nodesOf(tokens.slice(0, last), true));
    this.settled += lineStart(rest, line);
    return nodesOf(tokens.slice(last), done);
  }
}
