// Looking inside a turn: its events in time, its explanation, its three ways of being read.

import { call, getJson } from "./api.js";
import { button, copyButton, el, json } from "./dom.js";

const ms = (at) => `${at.toFixed(0).padStart(6)} ms`;

function brief(event) {
  if (event.delta !== undefined) return event.delta;
  if (event.item) return `${event.item.type} ${event.item.status}`;
  if (event.part) return event.part.type;
  if (event.response) return event.response.status;
  return event.message ?? event.text ?? event.arguments ?? event.input ?? "";
}

function row({ event, at }) {
  return el(
    "tr", {},
    el("td", { class: "number" }, ms(at)),
    el("td", { class: "number" }, String(event.sequence_number)),
    el("td", {}, event.type.replace("response.", ""),
      el("div", { class: "brief" }, String(brief(event)).slice(0, 80))),
  );
}

// Deltas of one text are one line that unfolds, so that a long answer is not a thousand rows.
function folded(run) {
  const [first, last] = [run[0], run.at(-1)];
  const head = el(
    "tr", { class: "fold" },
    el("td", { class: "number" }, ms(first.at)),
    el("td", { class: "number" }, `${first.event.sequence_number}–${last.event.sequence_number}`),
    el("td", {}, button(`${run.length} × ${first.event.type.replace("response.", "")}`, (click) => {
      click.target.closest("tr").after(...run.slice(0, 500).map(row));
      click.target.disabled = true;
    }), el("div", { class: "brief" }, `until ${ms(last.at).trim()}`)),
  );
  return head;
}

function runs(events) {
  const found = [];
  for (const entry of events) {
    const run = found.at(-1), delta = entry.event.type.endsWith(".delta");
    if (run && delta && run[0].event.type === entry.event.type) run.push(entry);
    else found.push([entry]);
  }
  return found;
}

export function eventsOf(turn) {
  if (!turn.events.length) {
    return [el("p", { class: "faint" }, turn.id ? "It was read as a whole, without its events." : "No events yet.")];
  }
  const rows = runs(turn.events).map((run) => (run.length > 2 ? folded(run) : run.map(row))).flat();
  return [
    el("p", { class: "figures" }, turn.figures.join(" · ")),
    el("table", { class: "events" },
      el("thead", {}, el("tr", {}, ...["since asking", "#", "event"].map((t) => el("th", {}, t)))),
      el("tbody", {}, ...rows)),
  ];
}

// --- explain ---------------------------------------------------------------------------------

function pieces(given, kind) {
  return given.map((piece) => {
    if (piece.control) return el("span", { class: "control", title: `id ${piece.id}` }, piece.control);
    if (piece.tokens) return el("span", { class: "faint" }, `[${piece.tokens} tokens]`);
    const ids = piece.ids.slice(0, 200).join(" ");
    return el("span", { class: kind, title: `ids ${ids}`, "data-ids": ids }, piece.text);
  });
}

const harmony = (given, kind) => el("pre", { class: "harmony", tabindex: "0" }, ...pieces(given, kind));

function segment(one, number) {
  const guide = one.guide ? `, guided by ${one.guide.kind}` : "";
  const parts = ["forced", "kept", "discarded"].filter((part) => one[part].length);
  return el(
    "section", {},
    el("h3", {}, `Segment ${number + 1}: ${one.name}`),
    el("p", { class: "faint" },
      `${one.outcome} in ${(one.ended_ms - one.began_ms).toFixed(0)} ms, at most ${one.max_tokens} tokens${guide}` +
      (one.ended_by ? `, ended by ${one.ended_by}` : "")),
    ...parts.flatMap((part) => [el("h4", {}, part), harmony(one[part], part)]),
    one.guide?.source ? el("details", {}, el("summary", {}, "Guide"), el("pre", { tabindex: "0" }, one.guide.source)) : null,
  );
}

function transcript(turn) {
  const place = el("div");
  const get = async () => {
    try {
      const text = await (await call(`responses/${turn.id}/explain?transcript=seen_on_the_page`)).text();
      place.replaceChildren(copyButton(() => text), el("pre", { tabindex: "0" }, text));
    } catch (fault) {
      place.replaceChildren(el("p", { class: "fault" }, fault.message));
    }
  };
  return el("section", {}, el("h3", {}, "Transcript"), button("Write a test of this response", get), place);
}

export async function explanationOf(turn) {
  if (!turn.id || turn.running) return [el("p", { class: "faint" }, "Available when the response has ended.")];
  const explained = await getJson(`responses/${turn.id}/explain`);
  const repairs = Object.entries(explained.repairs).map(([kind, count]) => `${kind} ${count}`);
  const show = el("label", { class: "check" },
    el("input", { type: "checkbox", onchange: (e) => e.target.closest("#panel").classList.toggle("ids", e.target.checked) }),
    " Show token ids");
  return [
    el("p", { class: "figures" }, `${explained.plan} · ${explained.status} · ${explained.engine.kind}`),
    show,
    el("h3", {}, `Prompt: ${explained.prompt.tokens} tokens, ${explained.prompt.cached_tokens ?? 0} cached`),
    harmony(explained.prompt.pieces, "text"),
    ...explained.segments.map(segment),
    el("h3", {}, "Repairs"),
    el("p", {}, repairs.join(", ") || "none"),
    el("h3", {}, "Timeline"),
    el("table", {}, el("tbody", {}, ...explained.timeline.map((mark) =>
      el("tr", {}, el("td", { class: "number" }, `${mark.at_ms.toFixed(1)} ms`), el("td", {}, mark.mark))))),
    el("details", {}, el("summary", {}, "Engine"), el("pre", { tabindex: "0" }, json(explained.engine))),
    transcript(turn),
  ];
}

// --- side by side ----------------------------------------------------------------------------

function column(title, value, others) {
  const known = others.map((other) => new Set(json(other).split("\n")));
  const lines = json(value).split("\n").map((line) =>
    el("span", { class: known.every((set) => set.has(line)) ? "" : "differs" }, `${line}\n`));
  return el("section", {}, el("h3", {}, title), el("pre", { tabindex: "0" }, ...lines));
}

export async function sidesOf(turn) {
  if (!turn.id || turn.running) return [el("p", { class: "faint" }, "There is more than one side when it has ended.")];
  const place = el("div", { class: "sides" });
  const sides = { streamed: turn.events.at(-1)?.event.response ?? null };
  sides.stored = await getJson(`responses/${turn.id}`).catch((fault) => ({ error: fault.message }));
  const show = () => {
    const there = Object.entries(sides).filter(([, value]) => value);
    place.replaceChildren(...there.map(([title, value]) =>
      column(title, value, there.filter(([other]) => other !== title).map(([, v]) => v))));
  };
  show();
  const plain = async (click) => {
    click.target.disabled = true;
    const reply = await call("responses", { body: { ...turn.request, stream: false, background: false } })
      .then((r) => r.json(), (fault) => ({ error: fault.message }));
    sides.plain = reply;
    show();
  };
  return [
    el("p", { class: "faint" }, "Lines that differ are marked. A repeated request gets a new id and new times, and new text unless the temperature is 0."),
    turn.request ? button("Repeat without streaming", plain) : null,
    place,
  ];
}
