// The conversation that is shown: its turns in a column, or the branches of the last one side by side.
//
// Turns are drawn from the end, a few at a time: a long conversation opens at once, and no frame is long.

import { button, el } from "./dom.js";
import { TurnView } from "./view.js";

const NEAR = 80; // pixels from the end within which the page follows an answer
const SLICE_MS = 12; // drawing in one go
const SHOWN = 200; // turns that are shown; those before them on demand
const BESIDE = 3;

// What made an answer: its model, effort and temperature.
export function madeBy({ request, response }) {
  const { model, reasoning, temperature } = response ?? request ?? {};
  const heat = request?.temperature ?? (temperature === 1 ? undefined : temperature);
  return [model, reasoning?.effort, heat === undefined || heat === null ? null : `temperature ${heat}`].filter(Boolean);
}

// Makes these the children of a box, and leaves in their place those that are.
function settle(box, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...box.children]) if (!wanted.has(node)) node.remove();
  let at = box.firstChild;
  for (const node of nodes) {
    if (node === at) at = at.nextSibling;
    else box.insertBefore(node, at);
  }
}

export class Thread {
  constructor(box, actions, showEnd) {
    this.box = box;
    this.actions = actions;
    this.showEnd = showEnd; // called with whether the end is in sight
    this.views = new Map();
    this.shown = SHOWN;
    this.order = []; // the turns that are shown
    box.addEventListener("scroll", () => showEnd(this.nearEnd));
  }

  get nearEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.box;
    return scrollHeight - scrollTop - clientHeight < NEAR;
  }

  toEnd() {
    this.box.scrollTop = this.box.scrollHeight;
  }

  // Shows these turns; `beside` are the branches to show in the place of the last one, `empty` what stands for none.
  show(path, beside, empty) {
    if (path[0] !== this.first) this.shown = SHOWN;
    this.first = path[0];
    const before = Math.max(0, path.length - this.shown);
    const turns = path.slice(before, beside ? -1 : undefined);
    const columns = beside ? beside.slice(-BESIDE) : [];
    this.order = [...turns, ...columns];
    this.keep(this.order);
    settle(this.box, [
      ...(before ? [this.earlier(before, path, beside)] : []),
      ...turns.map((turn) => this.view(turn).node),
      ...(columns.length ? [this.columns(columns, path.at(-1))] : []),
      ...(path.length ? [] : [empty]),
    ]);
    this.draw();
  }

  view(turn) {
    if (!this.views.has(turn)) this.views.set(turn, new TurnView(turn, this.actions));
    return this.views.get(turn);
  }

  // Forgets the nodes of turns that are not shown.
  keep(turns) {
    const wanted = new Set(turns);
    for (const turn of this.views.keys()) if (!wanted.has(turn)) this.views.delete(turn);
  }

  earlier(count, path, beside) {
    return button(`Show ${Math.min(count, SHOWN)} earlier messages`, () => {
      const below = this.box.scrollHeight - this.box.scrollTop;
      this.shown += SHOWN;
      this.show(path, beside);
      this.box.scrollTop = this.box.scrollHeight - below;
    }, { class: "plain earlier" });
  }

  columns(turns, active) {
    const column = (turn, place) => {
      const goesOn = turn === active;
      return el(
        "section", { class: goesOn ? "side on" : "side", "aria-label": `Answer ${place + 1}: ${madeBy(turn).join(", ")}` },
        el("header", {}, el("b", {}, madeBy(turn).join(" · ")),
          button("Go on with this", () => this.actions.goOn(turn), { title: goesOn ? "The next question goes on here" : null })),
        this.view(turn).node,
      );
    };
    return el(
      "div", { class: "beside" },
      active.question && el("div", { class: "question" }, el("p", {}, active.question)),
      el("div", { class: "sides-of", role: "group", "aria-label": "Answers side by side" }, ...turns.map(column)),
    );
  }

  // Draws what is not drawn yet, the last first and at once.
  draw() {
    clearTimeout(this.drawing);
    const begun = performance.now(), end = this.nearEnd;
    let slow = false;
    for (const view of this.order.map((turn) => this.view(turn)).reverse()) {
      if (view.drawn) {
        view.showVersions();
        continue;
      }
      if (slow) {
        this.drawing = setTimeout(() => this.draw());
        break;
      }
      view.update();
      slow = performance.now() - begun > SLICE_MS;
    }
    if (end) this.toEnd();
    this.showEnd(this.nearEnd);
  }

  // A column of its own height follows its answer.
  grow(view) {
    const side = view.node.closest(".side");
    const follows = side && side.scrollHeight - side.scrollTop - side.clientHeight < NEAR;
    view.update();
    if (follows) side.scrollTop = side.scrollHeight;
  }

  // Draws turns anew that have changed.
  update(turns) {
    const follows = this.nearEnd;
    for (const turn of turns) if (this.views.get(turn)?.drawn) this.grow(this.view(turn));
    if (follows) this.toEnd();
    this.showEnd(this.nearEnd);
  }
}
