// Turns as cards: the question, the thought folded above the answer, calls with a box for a result.

import { button, copyButton, el } from "./dom.js";
import { Growing, link } from "./markdown.js";
import { textOf } from "./turn.js";

const ENDS = {
  incomplete: "cut: its tokens ran out",
  stopped: "stopped",
  failed: "failed",
  cancelled: "cancelled",
  queued: "queued…",
  asking: "asking…",
  in_progress: "writing…",
};

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

class Thought {
  constructor() {
    this.text = new Growing();
    this.summary = el("summary", {}, "Thinking…");
    this.node = el("details", { class: "thought" }, this.summary, this.text.node);
  }

  update(item, turn) {
    this.text.update(textOf(item), item.status !== "in_progress");
    const tokens = turn.response?.usage?.output_tokens_details.reasoning_tokens;
    const done = item.status !== "in_progress";
    this.summary.textContent = done ? `Thought${tokens ? `, ${tokens} tokens` : ""}` : "Thinking…";
  }
}

class Message {
  constructor() {
    this.text = new Growing();
    this.sources = el("p", { class: "faint" });
    this.node = el("div", { class: "answer" }, this.text.node, this.sources);
  }

  update(item) {
    this.text.update(textOf(item), item.status !== "in_progress");
    this.node.classList.toggle("preamble", item.phase === "commentary");
    const cited = (item.content ?? []).flatMap((part) => part.annotations ?? []).filter((a) => a.url);
    if (cited.length === this.cited) return;
    this.cited = cited.length;
    const links = cited.flatMap((a, n) => [n ? ", " : "Sources: ", link(a.url, a.title || a.url)]);
    this.sources.replaceChildren(...links);
  }
}

class Call {
  constructor(item, turn, actions) {
    this.code = el("code");
    const body = el("pre", { tabindex: "0" }, this.code);
    this.result = el("div", { class: "result" });
    const title = el("h3", {}, el("span", { class: "faint" }, "calls "), item.name);
    this.node = el("section", { class: "call", "aria-label": `Call of ${item.name}` }, title, body, this.result);
    this.actions = actions;
    this.turn = turn;
  }

  update(item) {
    this.code.textContent = item.type === "custom_tool_call" ? item.input : pretty(item.arguments);
    const answer = this.turn.results.get(item.call_id);
    const state = answer !== undefined ? "answered" : item.status === "completed" ? "open" : "";
    if (state === this.state) return;
    this.state = state;
    if (state === "answered") {
      this.result.replaceChildren(el("h4", {}, "Result"), el("pre", { tabindex: "0" }, answer));
    } else if (state === "open") this.result.replaceChildren(this.box(item));
  }

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

class Other {
  constructor(item) {
    this.code = el("code");
    this.node = el("section", { class: "call" }, el("h3", {}, item.type), el("pre", { tabindex: "0" }, this.code));
  }

  update(item) {
    this.code.textContent = JSON.stringify(item, null, 2);
  }
}

const KINDS = { reasoning: Thought, message: Message, function_call: Call, custom_tool_call: Call };

export class TurnView {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.items = [];
    this.body = el("div", { class: "items" });
    this.status = el("span", { class: "status" });
    this.figures = el("span", { class: "faint" });
    this.error = el("p", { class: "fault" });
    this.error.hidden = true;
    this.tools = el("span", { class: "actions" });
    this.node = el(
      "article", { class: "turn", "aria-label": "Question and answer" },
      el("h2", { class: "hidden" }, "Question and answer"), this.question(), this.body, this.error,
      el("footer", {}, this.status, this.figures, this.tools),
    );
    this.update();
  }

  question() {
    const { turn, actions } = this;
    if (!turn.question) return null;
    const text = el("p", {}, turn.question);
    this.versions = el("span", { class: "versions" });
    return el("div", { class: "question" }, text, this.versions, button("Edit", () => actions.edit(turn)));
  }

  // Where the conversation branches: which branch this is, and the way to the others.
  showVersions() {
    const all = this.actions.siblings(this.turn), at = all.indexOf(this.turn);
    if (!this.versions || this.branches === `${at} ${all.length}`) return;
    this.branches = `${at} ${all.length}`;
    const to = (number, label, sign) =>
      button(sign, () => this.actions.choose(all[number]), { "aria-label": label, disabled: !all[number] });
    this.versions.replaceChildren(...(all.length < 2 ? [] : [
      to(at - 1, "Earlier branch", "‹"), `${at + 1}/${all.length}`, to(at + 1, "Later branch", "›"),
    ]));
  }

  update() {
    const { turn } = this;
    this.showVersions();
    for (const [place, item] of turn.items.entries()) {
      if (!item) continue;
      this.items[place] ??= this.show(item);
      this.items[place].update(item, turn);
    }
    this.status.textContent = ENDS[turn.status] ?? "";
    this.figures.textContent = turn.figures.join(" · ");
    this.error.hidden = !turn.error;
    this.error.textContent = turn.error ?? "";
    this.node.classList.toggle("running", turn.running);
    this.node.setAttribute("aria-busy", String(turn.running));
    if (this.over === !turn.running && this.known === turn.id) return;
    this.over = !turn.running;
    this.known = turn.id;
    this.tools.replaceChildren(...this.buttons());
  }

  show(item) {
    const view = new (KINDS[item.type] ?? Other)(item, this.turn, this.actions);
    this.body.append(view.node);
    return view;
  }

  buttons() {
    const { turn, actions } = this;
    const look = button("Inside", () => actions.inspect(turn), { title: "Look inside" });
    if (turn.running) return [look];
    const some = [button("Retry", () => actions.retry(turn)), look];
    if (turn.stored) some.push(button("Branch", () => actions.branch(turn), { title: "Go on from here" }));
    if (turn.answer) some.push(copyButton(() => turn.answer));
    return some;
  }
}
