// Runs turns: asks, follows streams to their end, takes up those that broke, and stops them.

import { Fault, call, events, getJson } from "./api.js";
import { serverBack, withKey } from "./server.js";

const EVENTS_OF = 20; // turns whose events are kept to look into
const WITHOUT_NEWS = 5; // streams in a row that may break before their first event

export class Runner {
  constructor(changed) {
    this.changed = changed;
    this.controllers = new Map();
    this.recent = [];
    this.inBackground = true; // until the server refuses it
  }

  async run(turn) {
    const { background, ...rest } = turn.request;
    if (!this.inBackground) turn.request = rest;
    await this.guarded(turn, () => withKey(() => this.take(turn, "responses", { body: turn.request })));
  }

  // Streams a response from the first event that this page has not received.
  async follow(turn) {
    await this.guarded(turn, () => {
      const after = turn.lastNumber < 0 ? "" : `&starting_after=${turn.lastNumber}`;
      return this.take(turn, `responses/${turn.id}?stream=true${after}`);
    });
  }

  async guarded(turn, work) {
    const before = turn.lastNumber;
    try {
      await work();
      if (turn.running) throw new Fault("The stream ended before the answer did.", "away");
    } catch (fault) {
      turn.breaks = turn.lastNumber > before ? 0 : (turn.breaks ?? 0) + 1;
      await this.handle(turn, fault);
    }
    this.controllers.delete(turn);
    this.remember(turn);
    this.changed(turn);
  }

  async handle(turn, fault) {
    if (fault.name === "AbortError") return turn.stop();
    if (!fault.kind) throw fault;
    if (fault.param === "background" && turn.request.background) {
      this.inBackground = false;
      return this.run(turn);
    }
    if (fault.kind === "away" && turn.id && turn.running && turn.breaks <= WITHOUT_NEWS) return this.resume(turn);
    if (turn.breaks && turn.id && turn.running && fault.kind === "refused") return this.lost(turn);
    turn.fail(fault.message);
    if (fault.kind === "away") serverBack();
  }

  // Goes on with a stream that broke, as soon as the server answers.
  async resume(turn) {
    turn.broken = true;
    this.changed(turn);
    await serverBack();
    turn.broken = false;
    if (turn.running) await this.follow(turn);
  }

  // The server cannot stream the rest: what it has stored is the answer, else what has come stays.
  async lost(turn) {
    try {
      turn.settle(await getJson(`responses/${turn.id}`));
      if (!turn.running) return;
    } catch (fault) {
      if (!fault.kind) throw fault;
    }
    turn.fail("The connection broke, and the server does not have the rest. Retry asks again.");
  }

  // Events of older turns are forgotten: a long conversation keeps its texts only.
  remember(turn) {
    if (turn.running || this.recent.includes(turn)) return;
    this.recent.push(turn);
    if (this.recent.length > EVENTS_OF) this.recent.shift().forgetEvents();
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
    if (!turn?.running) return;
    if (turn.response?.background) {
      try {
        const reply = await call(`responses/${turn.id}/cancel`, { method: "POST" });
        turn.settle(await reply.json());
      } catch (fault) {
        turn.error = fault.message;
      }
    }
    turn.stop();
    this.controllers.get(turn)?.abort();
    this.changed(turn);
  }
}
