// Turns as cards: the question, the items of its answer, how it ended, and what can be done with it.

import { button, copyButton, el } from "./dom.js";
import { filesOf } from "./files.js";
import { itemView } from "./items.js";

const ENDS = {
  incomplete: "cut: its tokens ran out",
  stopped: "stopped",
  failed: "failed",
  cancelled: "stopped",
  queued: "queued…",
  asking: "asking…",
  in_progress: "writing…",
};

export class TurnView {
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.items = [];
    this.body = el("div", { class: "items" });
    this.files = el("div", { class: "files" });
    this.status = el("span", { class: "status" });
    this.figures = el("span", { class: "faint" });
    this.error = el("p", { class: "fault" });
    this.error.hidden = true;
    this.tools = el("span", { class: "actions" });
    this.node = el(
      "article", { class: "turn", "aria-label": "Question and answer" },
      el("h2", { class: "hidden" }, "Question and answer"), this.question(), this.body, this.files, this.error,
      el("footer", {}, this.status, this.figures, this.tools),
    );
    this.drawn = false;
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
      button("Compare", () => this.actions.compare(this.turn), { title: "Show these answers side by side" }),
    ]));
  }

  update() {
    const { turn } = this;
    this.drawn = true;
    this.showVersions();
    for (const [place, item] of turn.items.entries()) {
      if (!item) continue;
      this.items[place] ??= this.show(item);
      this.items[place].update(item, turn);
    }
    this.status.textContent = turn.broken ? "the connection broke: it goes on when the server answers" : ENDS[turn.status] ?? "";
    this.figures.textContent = turn.figures.join(" · ");
    this.error.hidden = !turn.error;
    this.error.textContent = turn.error ?? "";
    this.node.classList.toggle("running", turn.running);
    this.node.setAttribute("aria-busy", String(turn.running));
    if (this.over === !turn.running && this.known === turn.id) return;
    this.over = !turn.running;
    this.known = turn.id;
    this.tools.replaceChildren(...this.buttons());
    if (this.over) filesOf(turn).then((nodes) => this.files.replaceChildren(...nodes));
  }

  show(item) {
    const view = itemView(item, this.turn, this.actions);
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
