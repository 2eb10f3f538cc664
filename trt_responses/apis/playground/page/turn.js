// A turn: the input of one request, and its response as of the events so far.
//
// Turns are a tree: a turn continues its parent's response, and two turns of one parent are
// branches. Knows events; knows no node of the page.

export class Turn {
  constructor(parent, input, request = null) {
    this.parent = parent;
    this.input = input;
    this.request = request;
    this.children = [];
    this.place = 0;
    this.id = null;
    this.status = "asking";
    this.items = [];
    this.events = [];
    this.response = null;
    this.error = null;
    this.results = new Map(); // results of tool calls, by call id
    parent?.children.push(this);
  }

  // The turns from the first question to this one.
  get path() {
    const turns = [];
    for (let turn = this; turn; turn = turn.parent) turns.unshift(turn);
    return turns;
  }

  get running() {
    return this.status === "queued" || this.status === "in_progress" || this.status === "asking";
  }

  // Whether the server stored it, so that a request can continue it. A stopped response is not stored.
  get stored() {
    return this.id !== null && (this.status === "completed" || this.status === "incomplete");
  }

  // The items that wait for an answer of the user.
  get calls() {
    return this.items.filter((item) => item && item.type in ANSWERS);
  }

  // Whether the answer is to be JSON.
  get wantsJson() {
    const format = this.response?.text?.format ?? this.request?.text?.format;
    return Boolean(format) && format.type !== "text";
  }

  get question() {
    const message = this.input.find((item) => item.type === "message");
    if (!message) return "";
    if (typeof message.content === "string") return message.content;
    return message.content.map((part) => part.text ?? `[${part.type}]`).join("\n");
  }

  get answer() {
    const messages = this.items.filter((item) => item.type === "message" && item.phase !== "commentary");
    return messages.map(textOf).join("\n\n");
  }

  // The request fields that continue this turn: its last stored response and the items after that.
  continued(input) {
    const unstored = [];
    let last = this;
    while (last && !last.stored) {
      const { answer, results } = last;
      unstored.unshift(...last.calls.filter(({ call_id }) => results.has(call_id)));
      if (answer) unstored.unshift({ type: "message", role: "assistant", content: answer });
      unstored.unshift(...last.input);
      last = last.parent;
    }
    return { previous_response_id: last?.id, input: [...unstored, ...input] };
  }

  take(event, now) {
    this.events.push({ event, at: now });
    const item = this.items[event.output_index];
    switch (event.type) {
      case "response.output_item.added":
      case "response.output_item.done":
        this.items[event.output_index] = event.item;
        break;
      case "response.content_part.added":
        item.content[event.content_index] = event.part;
        break;
      case "response.output_text.delta":
      case "response.reasoning_text.delta":
        item.content[event.content_index].text += event.delta;
        break;
      case "response.function_call_arguments.delta":
      case "response.mcp_call_arguments.delta":
        item.arguments += event.delta;
        break;
      case "response.custom_tool_call_input.delta":
        item.input += event.delta;
        break;
      case "response.code_interpreter_call_code.delta":
        item.code += event.delta;
        break;
      case "response.shell_call_command.delta":
        item.action.commands[event.command_index] = (item.action.commands[event.command_index] ?? "") + event.delta;
        break;
      case "response.code_interpreter_call.interpreting":
      case "response.web_search_call.searching":
        item.status = event.type.split(".")[2];
        break;
      case "error":
        this.error = event.message;
        break;
      default:
        if (event.response) this.settle(event.response);
    }
  }

  // A snapshot of the whole response.
  settle(response) {
    this.id = response.id;
    this.status = response.status;
    this.response = response;
    if (!this.running || !this.items.length) this.items = structuredClone(response.output);
    if (response.error) this.error = response.error.message;
  }

  // Marks a running turn as stopped: the page closed its stream.
  stop() {
    if (this.running) this.status = "stopped";
  }

  fail(message) {
    this.status = "failed";
    this.error = message;
  }

  get lastNumber() {
    return this.events.at(-1)?.event.sequence_number ?? -1;
  }

  forgetEvents() {
    const { figures } = this;
    Object.defineProperty(this, "figures", { value: figures });
    this.events = [];
  }

  // Times and shares for people; nothing that is not known.
  get figures() {
    const isDelta = ({ event }) => event.type.endsWith(".delta");
    const first = this.events.find(isDelta)?.at, last = this.events.at(-1)?.at;
    const usage = this.response?.usage;
    const figures = [];
    if (first !== undefined) figures.push(`first token ${Math.round(first)} ms`);
    const spent = last - first, tokens = usage?.output_tokens;
    if (tokens > 1 && spent > 20) {  // less says nothing of the engine
      const rate = (1000 * (tokens - 1)) / spent;
      figures.push(`${rate < 100 ? rate.toFixed(1) : Math.round(rate)} tokens/s`);
    }
    if (usage) {
      const cached = usage.input_tokens_details.cached_tokens;
      figures.push(`${usage.input_tokens} in, ${Math.round((100 * cached) / usage.input_tokens)} % cached`);
      figures.push(`${usage.output_tokens} out`);
    }
    return figures;
  }
}

// The input item that answers an item, from the text with which the user answers it.
const ANSWERS = {
  function_call: (item, output) => ({ type: "function_call_output", call_id: item.call_id, output }),
  custom_tool_call: (item, output) => ({ type: "custom_tool_call_output", call_id: item.call_id, output }),
  mcp_approval_request: (item, answer) => ({ type: "mcp_approval_response", approval_request_id: item.id, approve: answer === "approved" }),
};

export const answerTo = (item, text) => ANSWERS[item.type](item, text);
export const keyOf = (item) => item.call_id ?? item.id;

// Which item an input item answers, and how; undefined for one that answers none.
export function answered(item) {
  if (item.approval_request_id) return [item.approval_request_id, item.approve ? "approved" : "refused"];
  if (!item.call_id || !item.type.endsWith("_output")) return undefined;
  return [item.call_id, typeof item.output === "string" ? item.output : JSON.stringify(item.output, null, 2)];
}

export const textOf = (item) => (item.content ?? []).map((part) => part.text ?? part.refusal ?? "").join("");
