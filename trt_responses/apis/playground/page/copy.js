// A turn's request as a program.

import { baseUrl } from "./api.js";
import { copyButton, el, json } from "./dom.js";

const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`;

function curl(body) {
  return `curl -N ${baseUrl()}/responses \\
  -H "authorization: Bearer $OPENAI_API_KEY" \\
  -H 'content-type: application/json' \\
  -d ${shell(json(body))}`;
}

const python = (body) => `import json
from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(baseUrl())})  # its key: OPENAI_API_KEY
request = json.loads(r'''${JSON.stringify(body).replaceAll("'", "\\u0027")}''')
for event in client.responses.create(**request):
    print(event.type, getattr(event, "delta", ""))`;

const node = (body) => `import OpenAI from "openai";

const client = new OpenAI({ baseURL: ${JSON.stringify(baseUrl())} }); // its key: OPENAI_API_KEY
const request = ${json(body)};
for await (const event of await client.responses.create(request)) {
  console.log(event.type, event.delta ?? "");
}`;

export function programsOf(turn) {
  if (!turn.request) return [el("p", { class: "faint" }, "This response was not requested from this page.")];
  const { background, ...request } = turn.request; // so that the page can take up a stream that broke
  const body = { ...request, stream: true };
  return Object.entries({ curl: curl(body), Python: python(body), "Node.js": node(body) }).map(
    ([name, text]) => el("section", {}, el("h3", {}, name), copyButton(() => text), el("pre", { tabindex: "0" }, text)),
  );
}
