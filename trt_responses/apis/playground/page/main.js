// The page: which conversation and which turn it shows, and what its buttons do.

import * as chats from "./chats.js";
import { Fault } from "./api.js";
import { beginCompare, clearColumns, columns } from "./compare.js";
import { beginComposer, draft, forgetFiles, setDraft } from "./composer.js";
import { programsOf } from "./copy.js";
import { button, byId, eachFrame, el } from "./dom.js";
import { beginFrame, beginTabs, narrow, tell, toggle } from "./frame.js";
import { eventsOf, explanationOf, sidesOf } from "./inspect.js";
import { load } from "./loading.js";
import { Past } from "./past.js";
import { Runner } from "./runner.js";
import { beginServer, withKey } from "./server.js";
import { SettingFault, begin as beginSettings, fields, use } from "./settings.js";
import { showSwitches } from "./switches.js";
import { Thread } from "./thread.js";
import { Turn, answerTo, keyOf } from "./turn.js";

const LOOKS = { events: eventsOf, explain: explanationOf, sides: sidesOf, copy: programsOf };
const CHIPS = ["What can you do?", "What is the capital of Norway?", "Count from one to seven."];
const READ_MS = 400; // between two looks at a conversation that is being read
const OPEN_CHATS = 8; // conversations that stay in memory, besides those that run

const state = { chat: chats.newChat(), active: null, inspected: null, look: "events", editing: null, note: "", beside: null };
let open_chats = [state.chat];
const runner = new Runner(changed);

// --- what is shown ---------------------------------------------------------------------------

const siblings = (turn) => turn.parent?.children ?? chatOf(turn)?.roots ?? [turn];
const chatOf = (turn) => open_chats.find(({ roots }) => roots.includes(turn.path[0]));

// The branches that are shown side by side, if any.
function beside() {
  const { active } = state;
  return active && state.beside === (active.parent ?? state.chat) ? siblings(active) : null;
}

// The turns that a stop ends.
const running = () => (beside() ?? [state.active]).filter((turn) => turn?.running);

const showThread = () => thread.show(state.active?.path ?? [], beside(), welcome());

function show() {
  showThread();
  byId("title").textContent = state.chat.title || "New chat";
  document.title = state.chat.title ? `${state.chat.title} · trt_responses` : "trt_responses";
  showRunning();
  past.show();
}

function welcome() {
  return el(
    "div", { class: "welcome" },
    el("h2", {}, "What would you like to ask?"),
    state.note && el("p", { id: "note" }, state.note),
    el("p", { class: "chips" }, ...CHIPS.map((text) => button(text, () => ask(null, [{ type: "message", role: "user", content: text }])))),
  );
}

function showRunning() {
  const runs = Boolean(running().length);
  byId("stop").hidden = !runs;
  byId("send").hidden = runs;
}

const dirty = new Set();
const refresh = eachFrame(() => {
  thread.update(dirty);
  dirty.clear();
  showRunning();
});

// Returns a function that has the work done soon, and once for many calls.
function nowAndThen(work) {
  let waits = null;
  return () => {
    waits ??= setTimeout(() => {
      waits = null;
      work();
    }, READ_MS);
  };
}

let looking = null;

function changed(turn) {
  dirty.add(turn);
  refresh();
  keep(turn);
  if (turn === state.active) address(turn);
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
  const chat = chatOf(turn);
  if (!chat) return;
  chat.known.set(turn.id, turn);
  chats.remember(chat, state.active?.id);
  past.show();
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

// Puts the response's id into the address. Not at each event: a browser slows down who does that often.
function address(turn) {
  const wanted = turn?.id ? `#${turn.id}` : "";
  if (location.hash !== wanted) history.replaceState(null, "", `${location.pathname}${location.search}${wanted}`);
}

function choose(turn) {
  state.active = state.inspected = turn;
  address(turn);
  show();
  look();
  thread.toEnd();
}

// --- what is done ----------------------------------------------------------------------------

function requestOf(parent, input, changes) {
  const base = parent ? parent.continued(input) : { input };
  const [only] = base.input;
  if (base.input.length === 1 && only.role === "user") base.input = only.content;
  return { ...fields(), ...changes, ...base, stream: true };
}

// Sends a new turn after `parent`, one for each column unless it is `alone`. An error in the settings is shown below them.
function ask(parent, input, { alone = false } = {}) {
  const fault = byId("settings-fault");
  fault.hidden = true;
  let requests;
  try {
    requests = [{}, ...(alone ? [] : columns())].map((changes) => requestOf(parent, input, changes));
  } catch (error) {
    if (!(error instanceof SettingFault)) throw error;
    fault.textContent = error.message;
    fault.hidden = false;
    toggle("set", true);
    return false;
  }
  const turns = requests.map((request) => new Turn(parent, input, request));
  if (!parent) state.chat.roots.push(...turns);
  state.chat.title ||= turns[0].question.slice(0, 80);
  if (turns.length > 1) state.beside = parent ?? state.chat;
  else if (state.beside !== (parent ?? state.chat)) state.beside = null;
  toggle("set", false);
  choose(turns[0]);
  for (const turn of turns) runner.run(turn);
  return true;
}

const actions = {
  siblings,
  retry: (turn) => ask(turn.parent, turn.input, { alone: true }),
  branch(turn) {
    state.beside = null;
    choose(turn);
    byId("ask").focus();
  },
  edit(turn) {
    state.editing = turn;
    byId("editing").hidden = false;
    byId("ask").value = turn.question;
    byId("ask").focus();
  },
  choose(turn) {
    state.beside = null;
    choose(latest(turn));
  },
  compare(turn) {
    state.beside = turn.parent ?? state.chat;
    choose(turn);
  },
  // Leaves the other columns: the conversation goes on with this answer and its settings.
  goOn(turn) {
    clearColumns();
    if (turn.request) use(turn.request);
    actions.choose(turn);
    byId("ask").focus();
  },
  inspect(turn) {
    state.inspected = turn;
    toggle("look", true);
    look();
    byId("panel").focus();
  },
  answer(turn, item, output) {
    turn.results.set(keyOf(item), output);
    thread.update([turn]);
    if (turn.calls.some((call) => !turn.results.has(keyOf(call)))) return; // the others first
    ask(turn, turn.calls.map((call) => answerTo(call, turn.results.get(keyOf(call)))), { alone: true });
  },
};

const thread = new Thread(byId("turns"), actions, (atEnd) => (byId("to-end").hidden = atEnd));

// The newest turn below this one.
function latest(turn) {
  let last = turn;
  while (last.children.length) last = last.children.at(-1);
  return last;
}

function send(event) {
  event?.preventDefault();
  const text = draft();
  if (!text.trim() || running().length) return;
  const { editing } = state;
  const parent = editing ? editing.parent : state.active;
  if (!ask(parent, [{ type: "message", role: "user", content: text }])) return;
  setDraft("");
  forgetFiles();
  leaveEditing();
}

function leaveEditing() {
  state.editing = null;
  byId("editing").hidden = true;
}

function begin(chat) {
  state.chat = chat;
  state.beside = null;
  leaveEditing();
  open_chats = open_chats.filter((each) => each !== chat && each.roots.length);
  open_chats.push(chat);
  const idle = open_chats.filter((each) => each !== chat && !each.roots.some((root) => latest(root).running));
  for (const each of idle.slice(0, -OPEN_CHATS)) open_chats.splice(open_chats.indexOf(each), 1);
}

function startAnew() {
  begin(chats.newChat());
  state.active = state.inspected = null;
  address(null);
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
async function openChat(record, id = record.shown ?? record.leaves.at(-1)) {
  if (narrow()) toggle("past", false);
  const there = open_chats.find(({ key, roots }) => key === record.key && roots.length);
  if (there) {
    begin(there);
    choose(there.known.get(id) ?? latest(there.roots.at(-1)));
    return;
  }
  const chat = { ...chats.newChat(), key: record.key, title: record.title };
  try {
    await withKey(() => read(chat, record, id));
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    tell(fault.message);
  }
}

// Reads a conversation and shows it from its first turn on: earlier ones come above it.
async function read(chat, record, shown) {
  const { leaves } = record;
  let fault = null;
  const grown = nowAndThen(() => state.chat === chat && showThread());
  for (const leaf of [shown, ...leaves.filter((id) => id !== shown)]) {
    try {
      await load(chat, leaf, leaves.indexOf(leaf), (last) => {
        if (!record.title) chat.title = last.path[0].question.slice(0, 80);
        if (open_chats.includes(chat)) return grown();
        begin(chat);
        choose(last);
      });
    } catch (error) {
      fault = error; // deleted, or expired
    }
  }
  if (!chat.roots.length) throw fault;
  chats.remember(chat, shown);
  if (state.chat === chat) show();
  for (const turn of chat.known.values()) if (turn.running) runner.follow(turn);
}

async function importFile(file) {
  if (!file) return;
  try {
    const turn = chats.imported(await file.text());
    begin({ ...chats.newChat(), title: file.name.replace(/\.json$/, ""), roots: [turn.path[0]] });
    choose(turn);
  } catch (error) {
    tell(`${file.name} is not an exported conversation: ${error.message}.`);
  }
}

// Escape closes the sheet, else leaves an edit, else stops the answers.
function escape() {
  if (!byId("set").hidden) toggle("set", false);
  else if (state.editing) leaveEditing();
  else stop();
}

const stop = () => running().forEach((turn) => runner.stop(turn));

// --- the beginning ---------------------------------------------------------------------------

const past = new Past({ state, choose: actions.choose, open: openChat, again: show, anew: startAnew });

beginComposer(send, () => state.active?.question && (actions.edit(state.active), true));
byId("stop").addEventListener("click", stop);
byId("edit-off").addEventListener("click", leaveEditing);
byId("new").addEventListener("click", startAnew);
byId("open").addEventListener("submit", (event) => {
  event.preventDefault();
  open(byId("open-id").value.trim());
});
byId("to-import").addEventListener("click", () => byId("import").click());
byId("import").addEventListener("change", (event) => importFile(event.target.files[0]));
byId("to-end").addEventListener("click", () => thread.toEnd());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) escape();
});
beginFrame({ look });
beginTabs(Object.keys(LOOKS), (name) => {
  state.look = name;
  look();
});
beginSettings();
show();
look();
const models = await beginServer();
state.note = models[0]?.description ?? "";
showSwitches(models[0]?.tools ?? []);
beginCompare(models.map(({ id }) => id));
if (state.note && !state.active) show();
if (location.hash.startsWith("#resp_")) await open(location.hash.slice(1));
byId("ask").focus();
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#resp_")) open(location.hash.slice(1));
});
document.body.dataset.ready = "true";
