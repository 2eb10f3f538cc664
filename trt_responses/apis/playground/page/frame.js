// The frame around the chat: its panels and their tabs, the width of the drawer, the colours.

import { byId, kept } from "./dom.js";

export const narrow = () => matchMedia("(max-width: 64rem)").matches;

const PARTS = ["past", "look", "set"];
const opens = {};

// Opens or closes a part beside the chat. On a narrow screen one is open at a time.
export function toggle(name, open = byId(name).hidden) {
  byId(name).hidden = !open;
  byId(`to-${name}`).setAttribute("aria-expanded", String(open));
  const others = narrow() ? PARTS : name === "past" ? [] : ["look", "set"];
  if (open) for (const other of others) if (other !== name && !byId(other).hidden) toggle(other, false);
  if (name === "past" && !narrow()) kept.set("past", open ? "open" : "closed");
  if (open) opens[name]?.();
}

export function tell(text) {
  byId("banner").textContent = text;
  byId("banner").hidden = !text;
}

// The drawer keeps the width that it is dragged to.
function beginGrip() {
  const grip = byId("grip");
  const set = (width) => {
    const wide = Math.round(Math.min(Math.max(width, 280), innerWidth - 360));
    byId("look").style.width = `${wide}px`;
    grip.setAttribute("aria-valuenow", String(wide));
    kept.set("look", String(wide));
  };
  const width = () => byId("look").getBoundingClientRect().width;
  if (kept.get("look")) set(Number(kept.get("look")));
  grip.addEventListener("pointerdown", (event) => grip.setPointerCapture(event.pointerId));
  grip.addEventListener("pointermove", (event) => {
    if (grip.hasPointerCapture(event.pointerId)) set(innerWidth - event.clientX);
  });
  grip.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: 40, ArrowRight: -40 }[event.key];
    if (step) set(width() + step);
  });
}

// The tabs of the drawer; `choose` is called with the name of the chosen one.
export function beginTabs(names, choose) {
  let at = 0;
  const to = (number, focus) => {
    at = (number + names.length) % names.length;
    for (const [place, name] of names.entries()) {
      byId(`tab-${name}`).setAttribute("aria-selected", String(place === at));
      byId(`tab-${name}`).tabIndex = place === at ? 0 : -1;
    }
    byId("panel").setAttribute("aria-labelledby", `tab-${names[at]}`);
    if (focus) byId(`tab-${names[at]}`).focus();
    choose(names[at]);
  };
  for (const [place, name] of names.entries()) byId(`tab-${name}`).addEventListener("click", () => to(place));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) to(at + step, true);
  });
}

// With Ctrl or Cmd: K searches, B opens and closes the conversations, Shift+O begins a new one.
function shortcut(event) {
  if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
  const key = `${event.shiftKey ? "shift+" : ""}${event.key.toLowerCase()}`;
  const act = {
    k() {
      toggle("past", true);
      byId("search").focus();
    },
    b: () => toggle("past"),
    "shift+o": () => byId("new").click(),
  }[key];
  if (!act) return;
  event.preventDefault();
  act();
}

// `whenOpened`: what to do when a part is opened, by its name.
export function beginFrame(whenOpened) {
  Object.assign(opens, whenOpened);
  byId("theme").addEventListener("click", () => {
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const now = document.documentElement.dataset.theme ?? (dark ? "dark" : "light");
    document.documentElement.dataset.theme = now === "dark" ? "light" : "dark";
    kept.set("theme", document.documentElement.dataset.theme);
  });
  if (kept.get("theme")) document.documentElement.dataset.theme = kept.get("theme");
  for (const name of PARTS) byId(`to-${name}`).addEventListener("click", () => toggle(name));
  for (const node of document.querySelectorAll("[data-close]")) {
    node.addEventListener("click", () => toggle(node.dataset.close, false));
  }
  toggle("past", !narrow() && kept.get("past") !== "closed");
  document.addEventListener("keydown", shortcut);
  beginGrip();
}
