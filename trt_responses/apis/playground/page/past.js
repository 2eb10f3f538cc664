// The conversations at the left: found by their titles, renamed, exported, deleted; and the branches of the one shown.

import * as chats from "./chats.js";
import { button, byId, download, el } from "./dom.js";

// The runs of turns between two forks, each with those that begin at its end.
function runsFrom(turns) {
  return turns.map((first) => {
    let last = first, count = 1;
    while (last.children.length === 1) {
      [last] = last.children;
      count += 1;
    }
    return { first, last, count, next: runsFrom(last.children) };
  });
}

// A branch by its question; by its answer, where the question is that of another one.
function nameOf(turn, place, all) {
  const question = turn.question || "Result of a tool";
  if (all.filter(({ first }) => first.question === turn.question).length < 2) return question;
  return `${place + 1}: ${turn.answer.slice(0, 60) || question}`;
}

export class Past {
  // `page.state` has the chat and the turn that are shown; the others are what its buttons do.
  constructor(page) {
    this.page = page;
    byId("search").addEventListener("input", () => this.show());
  }

  show() {
    const list = chats.found(byId("search").value);
    byId("chats").replaceChildren(...(list.length
      ? list.map((record) => this.entry(record))
      : [el("li", { class: "faint" }, "Conversations appear here.")]));
  }

  entry(record) {
    const { chat, active } = this.page.state;
    const current = record.key === chat.key;
    const name = button(record.title || "Untitled", () => this.page.open(record), {
      class: current ? "plain on" : "plain", "aria-current": current ? "true" : null, title: record.title,
    });
    return el("li", {}, name, ...(current && active ? [this.actions(), this.branches()] : []));
  }

  // Where the conversation branches, as a list that is as deep as its forks.
  branches() {
    const { chat, active } = this.page.state;
    const runs = runsFrom(chat.roots);
    if (runs.length === 1 && !runs[0].next.length) return null;
    const path = new Set(active.path);
    const line = ({ first, last, count, next }, place, all) => el(
      "li", {},
      button(`${nameOf(first, place, all)}${count > 1 ? ` · ${count} messages` : ""}`, () => this.page.choose(last), {
        class: path.has(first) ? "plain on" : "plain", "aria-current": path.has(last) && !last.children.length ? "true" : null,
        title: first.question,
      }),
      next.length ? el("ul", {}, ...next.map(line)) : null,
    );
    return el("details", { class: "branches", open: true }, el("summary", {}, "Branches"), el("ul", {}, ...runs.map(line)));
  }

  // What can be done with the conversation that is shown.
  actions() {
    const { chat, active } = this.page.state;
    const remove = async (click) => {
      if (click.target.textContent !== "Really delete?") return void (click.target.textContent = "Really delete?");
      await chats.forget(chat);
      this.page.anew();
    };
    return el(
      "span", { class: "actions" },
      button("Rename", () => this.rename(chat)),
      button("JSON", () => this.save(chats.asJson(active), "json"), { title: "Export as JSON" }),
      button("Markdown", () => this.save(chats.asMarkdown(active), "md"), { title: "Export as Markdown" }),
      button("Delete", remove),
    );
  }

  rename(chat) {
    const field = el("input", { value: chat.title, "aria-label": "Title", maxlength: "200" });
    const line = el("form", { onsubmit: (event) => { event.preventDefault(); field.blur(); } }, field);
    field.addEventListener("blur", () => {
      chats.rename(chat, field.value.trim() || chat.title);
      this.page.again();
    });
    byId("chats").querySelector("[aria-current]").replaceWith(line);
    field.focus();
  }

  save(text, ending) {
    const name = this.page.state.chat.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "chat";
    download(new Blob([text]), `${name}.${ending}`);
  }
}
