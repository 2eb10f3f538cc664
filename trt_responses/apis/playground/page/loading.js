// Stored responses as turns: read from the newest back, so that the end is shown first.

import { getJson } from "./api.js";
import { Turn, answered } from "./turn.js";

const PAGE = "limit=100&order=asc";
const WHOLE = "include[]=code_interpreter_call.outputs";

async function stored(id) {
  const path = `responses/${encodeURIComponent(id)}`;
  const [response, input] = await Promise.all([
    getJson(`${path}?${WHOLE}`),
    getJson(`${path}/input_items?${PAGE}`).catch(() => null), // one that goes on has none yet
  ]);
  const turn = new Turn(null, input?.data ?? []);
  turn.settle(response);
  return turn;
}

// Branches in the order of their requests; `place` is that of the branch in the list of this browser.
const inOrder = (one, other) => one.response.created_at - other.response.created_at || one.place - other.place;

function attach(parent, child) {
  child.parent = parent;
  parent.children.push(child);
  parent.children.sort(inOrder);
  for (const item of child.input) {
    const known = answered(item);
    if (known) parent.results.set(...known);
  }
}

// Reads the response and those before it into the chat, up to a known one. `grew` is called with
// the last turn each time one was read. A chain whose earlier responses were deleted begins behind them.
export async function load(chat, id, place, grew) {
  let last = null, child = null;
  for (let next = id; next; next = child.response.previous_response_id) {
    const there = chat.known.get(next);
    if (there) {
      if (child) {
        attach(there, child);
        chat.roots = chat.roots.filter((root) => root !== child);
      }
      last ??= there;
      break;
    }
    let turn;
    try {
      turn = await stored(next);
    } catch (fault) {
      if (!last) throw fault;
      break;
    }
    turn.place = place;
    chat.known.set(next, turn);
    if (child) attach(turn, child);
    chat.roots = [...chat.roots.filter((root) => root !== child), turn];
    chat.roots.sort(inOrder);
    child = turn;
    last ??= turn;
    grew(last);
  }
  grew(last);
  return last;
}
