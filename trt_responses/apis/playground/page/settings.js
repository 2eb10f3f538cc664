// The request's fields, read from the form.

import { byId } from "./dom.js";
import { included, switchedOn } from "./switches.js";

const SAMPLE = [{
  type: "function",
  name: "get_weather",
  description: "The weather in a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
}];

export class SettingFault extends Error {}

function parsed(id, what) {
  const text = byId(id).value.trim();
  if (!text) return undefined;
  try {
    return JSON.parse(text);
  } catch (error) {
    byId(id).focus();
    throw new SettingFault(`${what} is not valid JSON: ${error.message}.`);
  }
}

function number(id) {
  const { value } = byId(id);
  return value === "" ? undefined : Number(value);
}

// The request fields of the form; throws a `SettingFault` for a wrong value.
export function fields() {
  const schema = parsed("schema", "The schema");
  const tools = parsed("tools", "The list of tools");
  if (tools !== undefined && !Array.isArray(tools)) throw new SettingFault("Tools must be a JSON list: [ … ].");
  const effort = byId("effort").value;
  const all = [...switchedOn(), ...(tools ?? [])];
  return {
    model: byId("model").value,
    instructions: byId("instructions").value.trim() || undefined,
    reasoning: effort ? { effort } : undefined,
    temperature: number("temperature"),
    max_output_tokens: number("tokens"),
    text: schema && { format: { type: "json_schema", name: "answer", schema } },
    tools: all.length ? all : undefined,
    include: included(all),
    background: byId("background").checked || undefined,
  };
}

// Takes over the model, effort and temperature of a request.
export function use({ model, reasoning, temperature }) {
  byId("model").value = model;
  byId("effort").value = reasoning?.effort ?? "";
  byId("temperature").value = temperature ?? "";
}

export function begin() {
  byId("sample-tool").addEventListener("click", () => {
    byId("tools").value = JSON.stringify(SAMPLE, null, 2);
  });
}
