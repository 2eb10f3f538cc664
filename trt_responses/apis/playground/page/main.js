// The page: its buttons, and which turn each part shows.

import { programsOf } from "./copy.js";
import { byId, eachFrame, el } from "./dom.js";
import { Fault } from "./api.js";
import { eventsOf, explanationOf, sidesOf } from "./inspect.js";
import { Runner, loaded } from "./runner.js";
import { SettingFault, begin as beginSettings, fields } from "./settings.js";
import { beginServer, withKey } from "./server.js";
import { Turn } from "./turn.js";
import { TurnView, tree } from "./view.js";

const NEAR = 80; // pixels from the end within which the page follows an answer
const LOOKS = { events: eventsOf, explain: explanationOf, sides: sidesOf, copy: programsOf };

const state = { roots: [], active: null, inspected: null, look: "events", editing: null, note: "" };
const views = new Map();
const runner = new Runner(changed);

// --- what is shown ---------------------------------------------------------------------------

function viewOf(turn) {
  if (!views.has(turn)) views.set(turn, new TurnView(turn, actions));
  return views.get(turn);
}

function show() {
  const path = state.active?.path ?? [];
  const welcome = el("p", { class: "welcome" }, "Ask the model something, or open a response by its id.");
  const note = el("p", { class: "welcome", id: "note" }, state.note);
  const empty = state.note ? [welcome, note] : [welcome];
  byId("turns").replaceChildren(...(path.length ? path.map((turn) => viewOf(turn).node) : empty));
  byId("tree").replaceChildren(state.roots.length
    ? tree(state.roots, state.active, choose)
    : el("p", { class: "faint" }, "Branches appear here."));
  showRunning();
}

function showRunning() {
  const running = Boolean(state.active?.running);
  byId("stop").hidden = !running;
  byId("send").hidden = running;
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
  if (turn === state.active && turn.id) history.replaceState(null, "", `#${turn.id}`);
  if (turn !== state.inspected || looking || !(state.look === "events" || !turn.running)) return;
  looking = setTimeout(() => {
    looking = null;
    look();
  }, 200);
}

async function look() {
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
    pane("set");
    return false;
  }
  const turn = new Turn(parent, input, request);
  if (!parent) state.roots.push(turn);
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
  inspect(turn) {
    state.inspected = turn;
    pane("look");
    look();
    byId("panel").focus();
  },
  answer(turn, item, output) {
    turn.results.set(item.call_id, output);
    viewOf(turn).update();
    if (turn.calls.some((call) => !turn.results.has(call.call_id))) return; // the others first
    const input = turn.calls.map((call) => ({
      type: call.type === "custom_tool_call" ? "custom_tool_call_output" : "function_call_output",
      call_id: call.call_id,
      output: turn.results.get(call.call_id),
    }));
    ask(turn, input);
  },
};

function send(event) {
  event?.preventDefault();
  const text = byId("ask").value;
  if (!text.trim() || state.active?.running) return;
  const { editing } = state;
  const parent = editing ? editing.parent : state.active;
  if (!ask(parent, [{ type: "message", role: "user", content: text }])) return;
  byId("ask").value = "";
  leaveEditing();
}

function leaveEditing() {
  state.editing = null;
  byId("editing").hidden = true;
}

function startAnew() {
  Object.assign(state, { active: null, inspected: null });
  history.replaceState(null, "", location.pathname);
  leaveEditing();
  show();
  look();
  byId("ask").focus();
}

// A response by its id, with those before it; one that goes on is followed.
async function open(id) {
  const known = [...views.keys()].find((turn) => turn.id === id);
  if (known) return choose(known);
  try {
    const turns = await withKey(() => loaded(id));
    state.roots.push(turns[0]);
    choose(turns.at(-1));
    if (turns.at(-1).running) runner.follow(turns.at(-1));
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    byId("banner").textContent = fault.message;
    byId("banner").hidden = false;
  }
}

// --- the frame -------------------------------------------------------------------------------

function pane(name) {
  document.body.dataset.pane = name;
  for (const node of document.querySelectorAll("[data-show]")) {
    node.setAttribute("aria-pressed", String(node.dataset.show === name));
  }
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

function beginFrame() {
  byId("composer").addEventListener("submit", send);
  byId("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
  });
  byId("stop").addEventListener("click", () => runner.stop(state.active));
  byId("new").addEventListener("click", startAnew);
  byId("edit-off").addEventListener("click", leaveEditing);
  byId("open").addEventListener("submit", (event) => {
    event.preventDefault();
    open(byId("open-id").value.trim());
  });
  byId("theme").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
  });
  for (const node of document.querySelectorAll("[data-show]")) {
    node.addEventListener("click", () => pane(node.dataset.show));
  }
}

beginFrame();
beginTabs();
beginSettings();
show();
look();
state.note = await beginServer();
if (state.note && !state.active) show();
if (location.hash.startsWith("#resp_")) await open(location.hash.slice(1));
window.addEventListener("hashchange", () => {
  if (location.hash.startsWith("#resp_")) open(location.hash.slice(1));
});
document.body.dataset.ready = "true";
