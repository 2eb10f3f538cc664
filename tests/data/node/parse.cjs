// Asks a server, whose base URL is given, for what Zod describes, with the helpers of openai-node:
// plain, streamed, as the arguments of a strict tool, and over chat completions. Prints a JSON
// object for each; what Zod refuses is thrown by the SDK's own `parse`.
"use strict";
const { OpenAI } = require("openai");
const { zodResponseFormat, zodResponsesFunction, zodTextFormat } = require("openai/helpers/zod");
const { z } = require("zod");

const client = new OpenAI({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0 });
const word = z.string().min(1).max(12);
const step = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("walk"), metres: z.number().int().positive().max(900) }),
  z.object({ kind: z.literal("wait"), seconds: z.number().multipleOf(5).min(0).max(60) }),
]);
const shapes = {
  whole: z.object({ age: z.number().int(), small: z.int32(), positive: z.number().positive().max(9) }),
  texts: z.object({ name: word, code: z.string().regex(/^[A-Z]{2}-\d{1,4}$/), id: z.uuid() }),
  formats: z.object({ day: z.iso.date(), at: z.iso.datetime(), address: z.ipv4() }),
  chosen: z.object({ unit: z.enum(["celsius", "kelvin"]), step: z.literal([0, 5]), is: z.boolean() }),
  lists: z.object({ tags: z.array(word).max(3), numbers: z.array(z.number().int().max(9)).min(2).max(2) }),
  union: z.object({ steps: z.array(step).min(1).max(2) }),
  nothing: z.object({ note: word.nullable(), more: z.union([word, z.number().int().max(9)]) }),
  nested: z.object({ home: z.object({ city: word, zip: z.string().length(4) }), count: z.int().max(9) }),
};

const input = "Describe one. Keep it short.";
const asked = { model: "demo", temperature: 0, seed: 1, max_output_tokens: 600 };
const tools = (shape) => [zodResponsesFunction({ name: "take", parameters: shape })];
const ways = {
  plain: async (shape) => {
    const text = { format: zodTextFormat(shape, "shape") };
    return (await client.responses.parse({ ...asked, input, text })).output_parsed;
  },
  stream: async (shape) => {
    const text = { format: zodTextFormat(shape, "shape") };
    return (await client.responses.stream({ ...asked, input, text }).finalResponse()).output_parsed;
  },
  tool: async (shape) => {
    const forced = { tools: tools(shape), tool_choice: "required" };
    const made = await client.responses.parse({ ...asked, input, ...forced });
    return made.output.find((item) => item.type === "function_call").parsed_arguments;
  },
  chat: async (shape) => {
    const made = await client.chat.completions.parse({
      model: "demo",
      temperature: 0,
      max_completion_tokens: 600,
      messages: [{ role: "user", content: input }],
      response_format: zodResponseFormat(shape, "shape"),
    });
    return made.choices[0].message.parsed;
  },
};

async function main() {
  for (const [name, shape] of Object.entries(shapes)) {
    for (const [way, ask] of Object.entries(ways)) {
      const told = { name, way, parsed: null, fault: null };
      try {
        told.parsed = shape.parse(await ask(shape));
      } catch (fault) {
        told.fault = `${fault.constructor.name}: ${fault.message}`.slice(0, 300);
      }
      console.log(JSON.stringify(told));
    }
  }
}

main();
