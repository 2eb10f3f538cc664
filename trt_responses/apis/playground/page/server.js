// The server as the page's head shows it: which model, whether it answers, and the key it wants.

import { call, getJson, setKey } from "./api.js";
import { byId, el } from "./dom.js";

const AGAIN_MS = 2000;

let waiting = null;

// Until the server answers again; says so meanwhile.
export function serverBack() {
  waiting ??= (async () => {
    const banner = byId("banner");
    for (let words = await refused(); words; words = await refused()) {
      banner.textContent = words;
      banner.hidden = false;
      byId("server").textContent = "away";
      await new Promise((done) => setTimeout(done, AGAIN_MS));
    }
    banner.hidden = true;
    byId("server").textContent = "ready";
    waiting = null;
  })();
  return waiting;
}

// Why the server cannot answer now; nothing if it can.
async function refused() {
  try {
    await call("health/ready", { root: true });
    return "";
  } catch (fault) {
    if (fault.kind !== "away") return `The server is not ready yet. ${fault.message}`;
    return "The server does not answer. This page asks again every two seconds.";
  }
}

// Resolves when somebody has given a key; rejects nothing: a dialog that is left asks again later.
export function askForKey(why) {
  const dialog = byId("key-dialog");
  byId("key-why").textContent = why;
  byId("key").value = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      const given = byId("key").value.trim();
      if (given) setKey(given);
      byId("key").value = "";
      done(Boolean(given));
    }, { once: true });
  });
}

const KEPT = "A key is kept in this page's memory alone, and gone when you close or reload it.";

// Does the work, and does it again with another key for as long as the server wants one.
export async function withKey(work) {
  for (;;) {
    try {
      return await work();
    } catch (fault) {
      if (fault.kind !== "key" || !(await askForKey(`${fault.message} ${KEPT}`))) throw fault;
    }
  }
}

// Returns the models that the server lists.
export async function beginServer() {
  for (;;) {
    try {
      const { data } = await withKey(() => getJson("models"));
      byId("model").replaceChildren(...data.map((model) => el("option", {}, model.id)));
      byId("server").textContent = "ready";
      return data;
    } catch (fault) {
      if (fault.kind === "key") {
        byId("server").textContent = "no key";
        return [];
      }
      await serverBack();
    }
  }
}
