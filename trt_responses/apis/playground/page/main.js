// The page: its buttons, and which turn each part shows.

import * as chats from "./chats.js";
import { programsOf } from "./copy.js";
import { button, byId, eachFrame, el, kept, visit } from "./dom.js";
import { Fault } from "./api.js";
import { eventsOf, explanationOf, sidesOf } from "./inspect.js";
import { Runner, loaded } from "./runner.js";
import { SettingFault, begin as beginSettings, fields } from "./settings.js";
import { beginServer, withKey } from "./server.js";
import { showSwitches } from "./switches.js";
import { Turn, answerTo, keyOf } from "./turn.js";
import { TurnView } from "./view.js";

const NEAR = 80; // pixels from the end within which the page follows an answer
const LOOKS = { events: eventsOf, explain: explanationOf, sides: sidesOf, copy: programsOf };

const CHIPS = ["What can you do?", "What is the capital of Norway?", "Count from one to seven."];

const state = { chat: chats.newChat(), active: null, inspected: null, look: "events", editing: null, note: "" };
const open_chats = [state.chat];
const views = new Map();
const runner = new Runner(changed);

// --- what is shown ---------------------------------------------------------------------------

function viewOf(turn) {
  if (!views.has(turn)) views.set(turn, new TurnView(turn, actions));
  return views.get(turn);
}

function show() {
  const path = state.active?.path ?? [];
  byId("turns").replaceChildren(...(path.length ? path.map((turn) => viewOf(turn).node) : [welcome()]));
  for (const turn of path) viewOf(turn).update();
  byId("title").textContent = state.chat.title || "New chat";
  document.title = state.chat.title ? `${state.chat.title} · trt_responses` : "trt_responses";
  showRunning();
  showChats();
}

function welcome() {
  return el(
    "div", { class: "welcome" },
    el("h2", {}, "What would you like to ask?"),
    state.note && el("p", { id: "note" }, state.note),
    el("p", { class: "chips" }, ...CHIPS.map((text) =>
      button(text, () => ask(null, [{ type: "message", role: "user", content: text }])))),
  );
}

function showChats() {
  const entry = (record) => {
    const current = record.key === state.chat.key;
    const name = button(record.title || "Untitled", () => openChat(record), {
      class: current ? "plain on" : "plain", "aria-current": current ? "true" : null, title: record.title,
    });
    return el("li", {}, name, current && state.active ? chatActions() : null);
  };
  const list = chats.found(byId("search").value);
  byId("chats").replaceChildren(...(list.length
    ? list.map(entry)
    : [el("li", { class: "faint" }, "Conversations appear here.")]));
}

// What can be done with the conversation that is shown.
function chatActions() {
  const { chat, active } = state;
  const rename = () => {
    const field = el("input", { value: chat.title, "aria-label": "Title", maxlength: "200" });
    const line = el("form", { onsubmit: (event) => { event.preventDefault(); field.blur(); } }, field);
    field.addEventListener("blur", () => {
      chats.rename(chat, field.value.trim() || chat.title);
      show();
    });
    byId("chats").querySelector("[aria-current]").replaceWith(line);
    field.focus();
  };
  const remove = async (click) => {
    if (click.target.textContent !== "Really delete?") return void (click.target.textContent = "Really delete?");
    await chats.forget(chat);
    startAnew();
  };
  return el(
    "span", { class: "actions" },
    button("Rename", rename),
    button("JSON", () => download(chats.asJson(active), "json"), { title: "Export as JSON" }),
    button("Markdown", () => download(chats.asMarkdown(active), "md"), { title: "Export as Markdown" }),
    button("Delete", remove),
  );
}

function download(text, ending) {
  const url = URL.createObjectURL(new Blob([text]));
  const name = state.chat.title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "chat";
  el("a", { href: url, download: `${name}.${ending}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function showRunning() {
  const running = Boolean(state.active?.running);
  byId("stop").hidden = !running;
  byId("send").hidden = running;
  byId("to-end").hidden = nearEnd();
}

function nearEnd() {
  const box = byId("turns");
  return box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
}

const dirty = new Set();
const refresh = eachFrame(() => {
  const follows = nearEnd();
  for (const turn of dirty) viewOf(turn).update();
  dirty.clear();
  if (follows) byId("turns").scrollTop = byId("turns").scrollHeight;
  showRunning();
});

let looking = null;

function changed(turn) {
  dirty.add(turn);
  refresh();
  keep(turn);
  if (turn === state.active && turn.id) history.replaceState(null, "", `#${turn.id}`);
  if (byId("look").hidden || turn !== state.inspected || looking || !(state.look === "events" || !turn.running)) return;
  looking = setTimeout(() => {
    looking = null;
    look();
  }, 200);
}

// Once for a background response that began, and once for each that ended: not for each of its events.
function keep(turn) {
  const stage = turn.running ? turn.response?.background && turn.id : turn.status;
  if (!turn.id || !stage || turn.kept === stage) return;
  turn.kept = stage;
  const chat = open_chats.find(({ roots }) => roots.includes(turn.path[0]));
  if (!chat) return;
  chats.remember(chat);
  showChats();
}

async function look() {
  if (byId("look").hidden) return;
  const { inspected: turn, look: kind } = state;
  const panel = byId("panel");
  if (!turn) {
    panel.replaceChildren(el("p", { class: "faint" }, "Ask something, and see here how it was answered."));
    return;
  }
  let nodes;
  try {
    nodes = await LOOKS[kind](turn);
  } catch (fault) {
    nodes = [el("p", { class: "fault" }, fault.message)];
  }
  if (state.inspected === turn && state.look === kind) panel.replaceChildren(...nodes.filter(Boolean));
}

function choose(turn) {
  state.active = state.inspected = turn;
  show();
  look();
  byId("turns").scrollTop = byId("turns").scrollHeight;
}

// --- what is done ----------------------------------------------------------------------------

function requestOf(parent, input) {
  const base = parent ? parent.continued(input) : { input };
  const [only] = base.input;
  if (base.input.length === 1 && only.role === "user") base.input = only.content;
  return { ...fields(), ...base, stream: true };
}

// Sends a new turn after `parent`. An error in the settings is shown below them.
function ask(parent, input) {
  const fault = byId("settings-fault");
  fault.hidden = true;
  let request;
  try {
    request = requestOf(parent, input);
  } catch (error) {
    if (!(error instanceof SettingFault)) throw error;
    fault.textContent = error.message;
    fault.hidden = false;
    toggle("set", true);
    return false;
  }
  const turn = new Turn(parent, input, request);
  if (!parent) state.chat.roots.push(turn);
  state.chat.title ||= turn.question.slice(0, 80);
  toggle("set", false);
  choose(turn);
  runner.run(turn);
  return true;
}

const actions = {
  retry: (turn) => ask(turn.parent, turn.input),
  branch(turn) {
    choose(turn);
    byId("ask").focus();
  },
  edit(turn) {
    state.editing = turn;
    byId("editing").hidden = false;
    byId("ask").value = turn.question;
    byId("ask").focus();
  },
  siblings: (turn) => turn.parent?.children ?? state.chat.roots,
  choose: (turn) => choose(latest(turn)),
  inspect(turn) {
    state.inspected = turn;
    toggle("look", true);
    look();
    byId("panel").focus();
  },
  answer(turn, item, output) {
    turn.results.set(keyOf(item), output);
    viewOf(turn).update();
    if (turn.calls.some((call) => !turn.results.has(keyOf(call)))) return; // the others first
    ask(turn, turn.calls.map((call) => answerTo(call, turn.results.get(keyOf(call)))));
  },
};

// The newest turn below this one.
function latest(turn) {
  return turn.children.length ? latest(turn.children.at(-1)) : turn;
}

function send(event) {
  event?.preventDefault();
  const text = byId("ask").value;
  if (!text.trim() || state.active?.running) return;
  const { editing } = state;
  const parent = editing ? editing.parent : state.active;
  if (!ask(parent, [{ type: "message", role: "user", content: text }])) return;
  setDraft("");
  byId("added").hidden = true;
  leaveEditing();
}

// The unsent question outlives a reload.
function setDraft(text) {
  byId("ask").value = text;
  visit.set("draft", text);
}

// Adds text files to the question, each as a block of code.
async function addFiles(files) {
  const notes = [];
  for (const file of files) {
    const text = file.size > 1_000_000 ? null : await file.text();
    if (text === null) notes.push(`${file.name} is larger than 1 MB.`);
    else if (file.type.startsWith("image/") || text.includes("\0")) {
      notes.push(`${file.name} is not text: the model reads text only.`);
    } else {
      const fence = text.includes("```") ? "~~~~" : "```";
      setDraft(`${byId("ask").value}\n\n${file.name}:\n${fence}\n${text.trimEnd()}\n${fence}\n`.trimStart());
      notes.push(`${file.name} is added.`);
    }
  }
  byId("added").textContent = notes.join(" ");
  byId("added").hidden = !notes.length;
}

function leaveEditing() {
  state.editing = null;
  byId("editing").hidden = true;
}

function startAnew() {
  Object.assign(state, { chat: chats.newChat(), active: null, inspected: null });
  open_chats.push(state.chat);
  history.replaceState(null, "", location.pathname);
  leaveEditing();
  show();
  look();
  byId("ask").focus();
}

// A response by its id, with those before it; one that goes on is followed.
async function open(id) {
  const record = chats.found("").find(({ leaves }) => leaves.includes(id));
  await openChat(record ?? { key: chats.newChat().key, title: "", leaves: [id] }, id);
}

// A conversation of the list, at its last turn or the one with this id.
async function openChat(record, id = record.leaves.at(-1)) {
  const known = open_chats.find(({ key, roots }) => key === record.key && roots.length);
  try {
    const { chat, shown } = known
      ? { chat: known, shown: latest(known.roots.at(-1)) }
      : await withKey(() => chats.opened({ ...record, leaves: [...record.leaves.filter((leaf) => leaf !== id), id] }));
    if (!known) open_chats.push(chat);
    state.chat = chat;
    chat.title ||= shown.path[0].question.slice(0, 80);
    leaveEditing();
    choose(shown);
    if (narrow()) toggle("past", false);
    history.replaceState(null, "", `#${shown.id}`);
    if (shown.running && !known) runner.follow(shown);
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    byId("banner").textContent = fault.message;
    byId("banner").hidden = false;
  }
}

async function importFile(file) {
  if (!file) return;
  try {
    const turn = chats.imported(await file.text());
    state.chat = { ...chats.newChat(), title: file.name.replace(/\.json$/, ""), roots: [turn.path[0]] };
    open_chats.push(state.chat);
    choose(turn);
  } catch (error) {
    byId("banner").textContent = `${file.name} is not an exported conversation: ${error.message}.`;
    byId("banner").hidden = false;
  }
}

// --- the frame -------------------------------------------------------------------------------

const narrow = () => matchMedia("(max-width: 64rem)").matches;

// Opens or closes a part beside the chat.
function toggle(name, open = byId(name).hidden) {
  byId(name).hidden = !open;
  byId(`to-${name}`).setAttribute("aria-expanded", String(open));
  const others = narrow() ? ["past", "look", "set"] : name === "past" ? [] : ["look", "set"];
  if (open) for (const other of others) if (other !== name && !byId(other).hidden) toggle(other, false);
  if (name === "past" && !narrow()) kept.set("past", open ? "open" : "closed");
  if (open && name === "look") look();
}

// The panel keeps the width that it is dragged to.
function beginGrip() {
  const grip = byId("grip");
  const set = (width) => {
    const wide = Math.round(Math.min(Math.max(width, 280), innerWidth - 360));
    byId("look").style.width = `${wide}px`;
    grip.setAttribute("aria-valuenow", String(wide));
    kept.set("look", String(wide));
  };
  const width = () => byId("look").getBoundingClientRect().width;
  if (kept.get("look")) set(Number(kept.get("look")));
  grip.addEventListener("pointerdown", (event) => grip.setPointerCapture(event.pointerId));
  grip.addEventListener("pointermove", (event) => {
    if (grip.hasPointerCapture(event.pointerId)) set(innerWidth - event.clientX);
  });
  grip.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 40, ArrowRight: -40 }[event.key];
    if (step) set(width() + step);
  });
}

function chooseTab(name) {
  state.look = name;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  }
  byId("panel").setAttribute("aria-labelledby", `tab-${name}`);
  look();
}

function beginTabs() {
  const names = Object.keys(LOOKS);
  for (const name of names) byId(`tab-${name}`).addEventListener("click", () => chooseTab(name));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(state.look) + step + names.length) % names.length];
    chooseTab(next);
    byId(`tab-${next}`).focus();
  });
}

function beginComposer() {
  byId("composer").addEventListener("submit", send);
  byId("ask").addEventListener("input", () => setDraft(byId("ask").value));
  byId("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    if (event.key === "ArrowUp" && !byId("ask").value && state.active?.question) {
      event.preventDefault();
      actions.edit(state.active);
    }
  });
  byId("ask").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    addFiles(event.clipboardData.files);
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    addFiles(event.dataTransfer.files);
  });
  byId("stop").addEventListener("click", () => runner.stop(state.active));
  byId("edit-off").addEventListener("click", leaveEditing);
  byId("ask").value = visit.get("draft") ?? "";
}

// Escape closes the sheet, else leaves an edit, else stops the answer.
function escape() {
  if (!byId("set").hidden) toggle("set", false);
  else if (state.editing) leaveEditing();
  else if (state.active?.running) runner.stop(state.active);
}

function beginFrame() {
  byId("new").addEventListener("click", startAnew);
  byId("open").addEventListener("submit", (event) => {
    event.preventDefault();
    open(byId("open-id").value.trim());
  });
  byId("search").addEventListener("input", showChats);
  byId("import").addEventListener("change", (event) => importFile(event.target.files[0]));
  byId("theme").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  });
  for (const name of ["past", "look", "set"]) byId(`to-${name}`).addEventListener("click", () => toggle(name));
  for (const node of document.querySelectorAll("[data-close]")) {
    node.addEventListener("click", () => toggle(node.dataset.close, false));
  }
  toggle("past", !narrow() && kept.get("past") !== "closed");
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) escape();
  });
  byId("turns").addEventListener("scroll", () => (byId("to-end").hidden = nearEnd()));
  byId("to-end").addEventListener("click", () => (byId("turns").scrollTop = byId("turns").scrollHeight));
}

beginComposer();
beginGrip();
beginFrame();
beginTabs();
beginSettings();
show();
look();
const about = await beginServer();
state.note = about.description ?? "";
showSwitches(about.tools ?? []);
if (state.note && !state.active) show();
if (location.hash.startsWith("#resp_")) await open(location.hash.slice(1));
byId("ask").focus();
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#resp_")) open(location.hash.slice(1));
});
document.body.dataset.ready = "true";
