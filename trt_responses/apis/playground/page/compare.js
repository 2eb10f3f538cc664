// More columns: the same question to another model, or to the same one with other settings.

import { button, byId, el } from "./dom.js";

const MOST = 2; // besides the first column
const EFFORTS = ["none", "minimal", "low", "medium", "high"];

let models = [];

const option = (value, label) => el("option", { value }, label ?? value);

function row() {
  const number = byId("columns").children.length + 2;
  const label = (what) => ({ "aria-label": `${what} of column ${number}` });
  return el(
    "li", {},
    el("select", { name: "model", ...label("Model") }, ...models.map((name) => option(name))),
    el("select", { name: "effort", ...label("Effort") }, option("", "same effort"), ...EFFORTS.map((name) => option(name))),
    el("input", { name: "temperature", type: "number", min: "0", max: "2", step: "0.1", placeholder: "same temp.", ...label("Temperature") }),
    button("✕", (click) => {
      click.target.closest("li").remove();
      changed();
    }, { "aria-label": `Remove column ${number}` }),
  );
}

function changed() {
  const count = byId("columns").children.length;
  byId("add-column").hidden = count >= MOST;
  byId("comparing").hidden = !count;
  byId("comparing-text").textContent = `Side by side: ${count + 1} answers to each question.`;
}

export function clearColumns() {
  byId("columns").replaceChildren();
  changed();
}

// `names`: of the models that the server lists.
export function beginCompare(names) {
  models = names;
  byId("add-column").addEventListener("click", () => {
    byId("columns").append(row());
    byId("columns").lastChild.querySelector("select").value = models[byId("columns").children.length] ?? byId("model").value;
    changed();
  });
  byId("comparing-off").addEventListener("click", clearColumns);
  changed();
}

// The fields of each further column that differ from those of the first.
export function columns() {
  return [...byId("columns").children].map((line) => {
    const value = (name) => line.querySelector(`[name=${name}]`).value;
    return {
      ...(value("model") ? { model: value("model") } : {}),
      ...(value("effort") ? { reasoning: { effort: value("effort") } } : {}),
      ...(value("temperature") ? { temperature: Number(value("temperature")) } : {}),
    };
  });
}
