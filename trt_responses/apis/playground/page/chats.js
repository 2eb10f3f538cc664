// The conversations that this browser knows: their titles, and the ids of their last responses.
//
// The messages stay on the server. A title is the first question, or what the user typed in its place.

import { call } from "./api.js";
import { kept } from "./dom.js";
import { Turn, textOf } from "./turn.js";

const PLACE = "chats";
const MOST = 500;
const SEARCHED = 2000; // characters of the questions that a search looks through

function stored() {
  try {
    return JSON.parse(kept.get(PLACE)) ?? [];
  } catch {
    return []; // not our JSON
  }
}

const store = (records) => kept.set(PLACE, JSON.stringify(records.slice(0, MOST)));

export const newChat = () => ({ key: `${Date.now()}-${Math.random()}`, title: "", roots: [], known: new Map() });

// The records of conversations whose title or questions have the words, the newest first.
export function found(words) {
  const wanted = words.toLowerCase();
  return stored().filter(({ title, questions }) => `${title}\n${questions ?? ""}`.toLowerCase().includes(wanted));
}

function leaves(turns) {
  return turns.flatMap((turn) => {
    const below = leaves(turn.children);
    return below.length ? below : turn.id && (turn.stored || turn.response?.background) ? [turn.id] : [];
  });
}

// Keeps what is needed to open the conversation again, at the response `last` if a branch ends there.
export function remember(chat, last) {
  const ids = leaves(chat.roots);
  if (!ids.length) return;
  const questions = all(chat.roots).map(({ question }) => question.slice(0, 200)).join("\n").slice(0, SEARCHED);
  const record = { questions, key: chat.key, title: chat.title, at: Date.now(), leaves: ids, shown: ids.includes(last) ? last : ids.at(-1) };
  store([record, ...stored().filter(({ key }) => key !== chat.key)]);
}

export function rename(chat, title) {
  chat.title = title;
  store(stored().map((record) => (record.key === chat.key ? { ...record, title } : record)));
}

const all = (turns) => turns.flatMap((turn) => [turn, ...all(turn.children)]);

// Deletes the conversation's responses on the server, then its record here.
export async function forget(chat) {
  for (const { id } of all(chat.roots)) {
    if (id) await call(`responses/${id}`, { method: "DELETE" }).catch(() => {}); // it may be deleted already
  }
  store(stored().filter(({ key }) => key !== chat.key));
}

// --- as files --------------------------------------------------------------------------------

const items = (turn) => turn.path.flatMap((each) => [...each.input, ...each.items]);

export const asJson = (turn) => JSON.stringify(items(turn), null, 2);

export function asMarkdown(turn) {
  const quoted = (text) => text.replace(/^/gm, "> ");
  return items(turn).map((item) => {
    const text = typeof item.content === "string" ? item.content : textOf(item);
    if (item.type === "message" || item.role) return `**${item.role}**\n\n${text}\n`;
    if (item.type === "reasoning") return `${quoted(text)}\n`;
    return `**${item.type}**\n\n\`\`\`json\n${JSON.stringify(item, null, 2)}\n\`\`\`\n`;
  }).join("\n");
}

const isInput = (item) => item.type?.endsWith("_output") || (item.role && item.role !== "assistant");

// The turns of items that were exported, here or by `trt-responses chat`. Returns the last one.
export function imported(text) {
  const given = JSON.parse(text);
  if (!Array.isArray(given) || !given.length) throw new Error("it has no items");
  let turn = null;
  for (const item of given) {
    if (isInput(item)) {
      if (!turn || turn.items.length) turn = Object.assign(new Turn(turn, []), { status: "imported" });
      turn.input.push({ type: "message", ...item });
    } else {
      turn ??= Object.assign(new Turn(null, []), { status: "imported" });
      const content = typeof item.content === "string" ? [{ type: "output_text", text: item.content }] : item.content;
      turn.items.push({ ...item, content, status: "completed" });
    }
  }
  return turn;
}
