// Where a question is written: its draft, which outlives a reload, and the text files that are dropped on it.

import { byId, visit } from "./dom.js";

const LARGEST = 1_000_000;
const IMAGE = "is an image: this model reads text only";
const REFUSED = { image: IMAGE, audio: "is sound: this model reads text only", video: "is a video: this model reads text only" };

export const draft = () => byId("ask").value;

export function setDraft(text) {
  byId("ask").value = text;
  visit.set("draft", text);
}

export function forgetFiles() {
  byId("added").hidden = true;
}

// Adds text files to the question, each as a block of code. What is no text is refused in words.
async function addFiles(files) {
  const notes = [];
  for (const file of files) {
    const refused = REFUSED[file.type.split("/")[0]];
    const text = refused || file.size > LARGEST ? "" : await file.text();
    if (refused) notes.push(`${file.name} ${refused}.`);
    else if (file.size > LARGEST) notes.push(`${file.name} is larger than 1 MB.`);
    else if (text.includes("\0")) notes.push(`${file.name} is not text: the model reads text only.`);
    else {
      const fence = text.includes("```") ? "~~~~" : "```";
      setDraft(`${draft()}\n\n${file.name}:\n${fence}\n${text.trimEnd()}\n${fence}\n`.trimStart());
      notes.push(`${file.name} is added.`);
    }
  }
  byId("added").textContent = notes.join(" ");
  byId("added").hidden = !notes.length;
  byId("ask").focus();
}

// `editLast` is called by ArrowUp in an empty question; it returns whether there is one to edit.
export function beginComposer(send, editLast) {
  byId("composer").addEventListener("submit", send);
  byId("ask").addEventListener("input", () => setDraft(draft()));
  byId("ask").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    if (event.key === "ArrowUp" && !draft() && editLast()) event.preventDefault();
  });
  byId("ask").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    addFiles(event.clipboardData.files);
  });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    addFiles(event.dataTransfer.files);
  });
  byId("attach").addEventListener("click", () => byId("files").click());
  byId("files").addEventListener("change", () => {
    addFiles([...byId("files").files]);
    byId("files").value = "";
  });
  byId("ask").value = visit.get("draft") ?? "";
}
