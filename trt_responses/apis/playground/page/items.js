// The items of an answer, each kind as what it is: thoughts, texts, code with its output, searches, calls.

import { button, el } from "./dom.js";
import { Growing, codeBlock, link } from "./markdown.js";
import { parsed, shown, tree } from "./tree.js";
import { keyOf, textOf } from "./turn.js";

const PICTURE = /^data:image\/(png|jpeg|gif|webp);base64,[\w+/=]+$/;

// An image of a tool, if it is data and not an address.
export const picture = (url, label) =>
  PICTURE.test(url) ? el("img", { src: url, alt: label }) : el("p", { class: "faint" }, `[image: ${String(url).slice(0, 200)}]`);

const over = (item) => item.status !== "in_progress";

const section = (title, ...nodes) => [el("p", { class: "part" }, title), ...nodes];

class Thought {
  constructor() {
    this.text = new Growing();
    this.summary = el("summary", {}, "Thinking…");
    this.node = el("details", { class: "thought" }, this.summary, this.text.node);
  }

  update(item, turn) {
    this.text.update(textOf(item), over(item));
    const tokens = turn.response?.usage?.output_tokens_details.reasoning_tokens;
    this.summary.textContent = over(item) ? `Thought${tokens ? `, ${tokens} tokens` : ""}` : "Thinking…";
  }
}

class Message {
  constructor() {
    this.text = new Growing();
    this.sources = el("p", { class: "faint" });
    this.node = el("div", { class: "answer" }, this.text.node, this.sources);
  }

  update(item, turn) {
    const text = textOf(item);
    if (!this.structured(text, over(item), turn)) this.text.update(text, over(item));
    this.node.classList.toggle("preamble", item.phase === "commentary");
    const cited = (item.content ?? []).flatMap((part) => part.annotations ?? []).filter((a) => a.url);
    if (cited.length === this.cited) return;
    this.cited = cited.length;
    const links = cited.flatMap((a, n) => [n ? ", " : "Sources: ", link(a.url, a.title || a.url)]);
    this.sources.replaceChildren(...links);
  }

  // JSON comes as plain text, and is a tree when it is whole.
  structured(text, done, turn) {
    if (this.done === done && this.length === text.length) return true;
    const value = done ? parsed(text) : undefined;
    if (value === undefined && (done || !turn.wantsJson)) {
      if (this.raw) this.raw.replaceWith(this.text.node);
      this.raw = null;
      return false;
    }
    const before = this.raw ?? this.text.node;
    if (value !== undefined) before.replaceWith(this.raw = tree(value, text));
    else if (this.raw) this.raw.firstChild.firstChild.appendData(text.slice(this.length));
    else before.replaceWith(this.raw = el("pre", { tabindex: "0" }, el("code", {}, document.createTextNode(text))));
    this.length = text.length;
    this.done = done;
    return true;
  }
}

// What the model has this page's user do: a call to answer, or one to approve.
class Call {
  constructor(item, turn, actions) {
    this.code = el("div");
    this.result = el("div", { class: "result" });
    const title = el("h3", {}, el("span", { class: "faint" }, `${this.verb} `), this.name(item));
    this.node = el("section", { class: "call", "aria-label": this.title(item) }, title, this.code, this.result);
    this.actions = actions;
    this.turn = turn;
  }

  get verb() { return "calls"; }
  name(item) { return item.name; }
  title(item) { return `Call of ${item.name}`; }

  update(item) {
    const text = item.arguments ?? item.input ?? "", whole = item.status === undefined || over(item);
    if (text !== this.written || whole !== this.whole) {
      this.code.replaceChildren(whole ? shown(text) : el("pre", { tabindex: "0" }, text));
    }
    this.written = text;
    this.whole = whole;
    const answer = this.turn.results.get(keyOf(item));
    const state = answer !== undefined ? "answered" : whole && !this.turn.running ? "open" : "";
    if (state === this.state) return;
    this.state = state;
    if (state === "answered") this.result.replaceChildren(...this.answered(answer));
    else if (state === "open") this.result.replaceChildren(this.box(item));
  }

  answered(answer) { return section("Result", shown(answer)); }

  box(item) {
    const text = el("textarea", {
      rows: "2", class: "code", "aria-label": `Result of ${item.name}`,
      placeholder: "Enter the tool's result",
    });
    const send = (event) => {
      event.preventDefault();
      this.actions.answer(this.turn, item, text.value);
    };
    return el("form", { onsubmit: send }, text, el("button", { type: "submit" }, "Send the result"));
  }
}

class Approval extends Call {
  get verb() { return "wants to call"; }
  name(item) { return `${item.server_label} · ${item.name}`; }
  title(item) { return `Approval of ${item.name}`; }
  answered(answer) { return [el("p", { class: "faint" }, `You ${answer} it.`)]; }

  box(item) {
    const choose = (answer) => () => this.actions.answer(this.turn, item, answer);
    return el(
      "p", { class: "approval" },
      el("button", { type: "button", onclick: choose("approved") }, "Approve"),
      button("Refuse", choose("refused")),
    );
  }
}

const STATES = { in_progress: "running…", interpreting: "running…", searching: "searching…", failed: "failed", incomplete: "cut" };

// A call that the server runs: one line that unfolds.
class Hosted {
  constructor(item) {
    this.brief = el("span", { class: "brief" });
    this.state = el("span", { class: "status" });
    this.body = el("div");
    this.node = el(
      "details", { class: this.quiet ? "call quiet" : "call", open: this.opens },
      el("summary", {}, el("b", {}, this.title(item)), this.brief, this.state), this.body,
    );
  }

  get opens() { return false; }

  update(item) {
    const size = `${item.status} ${item.code?.length} ${item.arguments?.length} ${item.action?.commands?.join("").length}`;
    if (item === this.item && size === this.size) return;
    this.item = item;
    this.size = size;
    this.state.textContent = item.error ? "failed" : STATES[item.status] ?? "";
    this.brief.textContent = this.line(item).replace(/\s+/g, " ").slice(0, 200);
    this.body.replaceChildren(...this.parts(item));
  }

  line() { return ""; }
}

class Code extends Hosted {
  get opens() { return true; }
  title() { return "Python"; }
  parts(item) {
    const outputs = item.outputs ?? [];
    const nodes = outputs.map((output) => (output.type === "image" ? picture(output.url, "Output of the code") : shown(output.logs)));
    return [codeBlock(item.code ?? "", "python", over(item)), ...(nodes.length ? section("Output", ...nodes) : [])];
  }
}

class Shell extends Hosted {
  get opens() { return true; }
  title() { return "Shell"; }
  parts(item) { return [codeBlock((item.action?.commands ?? []).join("\n"), "bash", over(item))]; }
}

class ShellOutput extends Hosted {
  get opens() { return true; }
  title() { return "Output"; }
  line(item) { return [item.output ?? []].flat().map((one) => (one.outcome?.exit_code ? `exit ${one.outcome.exit_code}` : "")).join(" "); }
  parts(item) {
    const texts = [item.output ?? []].flat().map((one) => (typeof one === "string" ? one : [one.stdout, one.stderr].filter(Boolean).join("\n")));
    return texts.map((text) => el("pre", { tabindex: "0" }, text));
  }
}

class Search extends Hosted {
  title({ action }) { return ({ open_page: "Opened a page", find_in_page: "Searched in a page" })[action?.type] ?? "Web search"; }
  line({ action }) { return action?.query ?? action?.queries?.join(", ") ?? action?.pattern ?? action?.url ?? ""; }
  parts({ action }) {
    const urls = [action?.url, ...(action?.sources ?? []).map(({ url }) => url)].filter(Boolean);
    if (!urls.length) return [el("p", { class: "faint" }, this.line({ action }))];
    return [el("ul", {}, ...urls.map((url) => el("li", {}, link(url, url))))];
  }
}

class McpCall extends Hosted {
  title(item) { return `${item.server_label} · ${item.name}`; }
  line(item) { return item.arguments ?? ""; }
  parts(item) {
    const error = item.error && (typeof item.error === "string" ? item.error : JSON.stringify(item.error));
    return [
      ...section("Arguments", shown(item.arguments ?? "")),
      ...(item.output ? section("Result", shown(item.output)) : []),
      ...(error ? section("Error", shown(error)) : []),
    ];
  }
}

class McpTools extends Hosted {
  get quiet() { return true; }
  title(item) { return `Tools of ${item.server_label}`; }
  line(item) { return item.error ?? (item.tools ?? []).map(({ name }) => name).join(", "); }
  parts(item) {
    if (item.error) return [el("p", { class: "fault" }, String(item.error))];
    const tools = (item.tools ?? []).map(({ name, description }) => el("li", {}, el("code", {}, name), description ? ` ${description}` : ""));
    return [el("ul", {}, ...tools)];
  }
}

class Picture extends Hosted {
  get opens() { return true; }
  title() { return "Image"; }
  parts(item) { return (item.result ? [picture(`data:image/${item.output_format ?? "png"};base64,${item.result}`, "Generated image")] : []); }
}

class Other extends Hosted {
  title(item) { return item.type; }
  parts(item) { return [shown(JSON.stringify(item, null, 2))]; }
}

const KINDS = {
  reasoning: Thought, message: Message, function_call: Call, custom_tool_call: Call,
  mcp_approval_request: Approval, code_interpreter_call: Code, web_search_call: Search, shell_call: Shell,
  shell_call_output: ShellOutput, mcp_call: McpCall, mcp_list_tools: McpTools, image_generation_call: Picture,
};

// The view of an item: its `node`, which `update` keeps as the item is.
export const itemView = (item, turn, actions) => new (KINDS[item.type] ?? Other)(item, turn, actions);
