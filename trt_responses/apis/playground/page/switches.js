// Switches for the tools that the server runs itself, as its list of models names them.

import { byId, el, kept } from "./dom.js";

const NAMES = { code_interpreter: "Python", web_search: "Web search", shell: "Shell" };
const OUTPUTS = { code_interpreter: "code_interpreter_call.outputs", web_search: "web_search_call.action.sources" };
const PLACE = "tools";

let offered = [];
const on = new Set((kept.get(PLACE) ?? "").split("\n"));

const nameOf = (tool) => tool.server_label ?? NAMES[tool.type] ?? tool.type;

// Shows a switch for each tool of the server; nothing where it has none.
export function showSwitches(tools) {
  offered = tools;
  byId("switches").hidden = !tools.length;
  byId("asks").hidden = !tools.some(({ type }) => type === "mcp");
  byId("switches").replaceChildren(...tools.map((tool) => {
    const name = nameOf(tool);
    const flip = (click) => {
      if (!on.delete(name)) on.add(name);
      click.target.setAttribute("aria-pressed", String(on.has(name)));
      kept.set(PLACE, [...on].join("\n"));
    };
    return el("button", {
      type: "button", class: "switch", "aria-pressed": String(on.has(name)), onclick: flip,
      title: tool.type === "mcp" ? `Tools of the MCP server ${name}` : `${name}, run by the server`,
    }, name);
  }));
}

// The tools that are switched on, as a request names them.
export function switchedOn() {
  const approval = byId("approve").checked ? undefined : "never";
  return offered.filter((tool) => on.has(nameOf(tool))).map((tool) =>
    (tool.type === "mcp" ? { ...tool, require_approval: approval } : tool));
}

// What a request has to include so that the page can show what these tools gave.
export function included(tools) {
  const outputs = tools.map(({ type }) => OUTPUTS[type]).filter(Boolean);
  return outputs.length ? outputs : undefined;
}
