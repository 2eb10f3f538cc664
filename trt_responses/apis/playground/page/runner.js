// Runs turns: asks, follows streams to their end, stops them, and takes them up again.

import { call, events, getJson } from "./api.js";
import { serverBack, withKey } from "./server.js";
import { Turn, answered } from "./turn.js";

export class Runner {
  constructor(changed) {
    this.changed = changed;
    this.controllers = new Map();
  }

  async run(turn) {
    await this.guarded(turn, () =>
      withKey(() => this.take(turn, "responses", { body: turn.request })));
  }

  // Streams a background response from the first event that this page has not received.
  async follow(turn) {
    turn.begun ??= performance.now();
    await this.guarded(turn, () => {
      const after = turn.lastNumber < 0 ? "" : `&starting_after=${turn.lastNumber}`;
      return this.take(turn, `responses/${turn.id}?stream=true${after}`);
    });
  }

  async guarded(turn, work) {
    try {
      await work();
      if (turn.running) turn.fail("The stream ended before the answer did.");
    } catch (fault) {
      await this.handle(turn, fault);
    }
    this.controllers.delete(turn);
    this.changed(turn);
  }

  async handle(turn, fault) {
    if (fault.name === "AbortError") return turn.stop();
    if (!fault.kind) throw fault;
    if (fault.kind === "away" && turn.id && turn.response?.background && turn.running) {
      this.changed(turn);
      await serverBack();
      return this.follow(turn);
    }
    turn.fail(fault.message);
    if (fault.kind === "away") serverBack();
  }

  async take(turn, path, options = {}) {
    const controller = new AbortController();
    this.controllers.set(turn, controller);
    turn.begun ??= performance.now();
    this.changed(turn);
    for await (const event of events(path, { ...options, signal: controller.signal })) {
      turn.take(event, performance.now() - turn.begun);
      this.changed(turn);
    }
  }

  // Cancels a background response at the server; closes the stream of any other.
  async stop(turn) {
    if (!turn?.response?.background) return this.controllers.get(turn)?.abort();
    try {
      const reply = await call(`responses/${turn.id}/cancel`, { method: "POST" });
      turn.settle(await reply.json());
    } catch (fault) {
      turn.error = fault.message;
    }
    this.controllers.get(turn)?.abort();
    this.changed(turn);
  }
}

const PAGE = "limit=100&order=asc";
const WHOLE = "include[]=code_interpreter_call.outputs";

// The turns of a stored response and of those before it in its chain; the last turn is `id`.
export async function loaded(id) {
  const chain = [];
  for (let next = id; next; next = chain[0].response.previous_response_id) {
    const response = await getJson(`responses/${encodeURIComponent(next)}?${WHOLE}`).catch((fault) => {
      if (!chain.length) throw fault;
      return null; // an earlier one is gone: the chain begins behind it
    });
    if (!response) break;
    chain.unshift({ response, input: await inputOf(response) });
  }
  let parent = null;
  for (const { response, input } of chain) {
    const turn = new Turn(parent, input);
    turn.settle(response);
    for (const item of input) {
      const known = answered(item);
      if (known) parent?.results.set(...known);
    }
    parent = turn;
  }
  return parent.path;
}

async function inputOf(response) {
  const listed = await getJson(`responses/${response.id}/input_items?${PAGE}`).catch(() => null);
  return listed?.data ?? []; // one that goes on has none yet
}
