// Files that an answer's code has written in its container: images are shown, all can be saved.

import { call, getJson } from "./api.js";
import { button, download, el } from "./dom.js";
import { picture } from "./items.js";

const IMAGES = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const LARGEST = 5_000_000; // bytes of an image that is shown
const MOST = 12;
const LIFE_S = 20 * 60; // of a container that is not used

const containersOf = (turn) =>
  new Set(turn.items.map((item) => item?.container_id ?? item?.environment?.container_id).filter(Boolean));

async function contentOf(file, type) {
  const reply = await call(`containers/${file.container_id}/files/${file.id}/content`);
  return new Blob([await reply.arrayBuffer()], { type });
}

const asData = (blob) => new Promise((done) => {
  const reader = new FileReader();
  reader.onload = () => done(reader.result);
  reader.readAsDataURL(blob);
});

async function shown(file, outputs) {
  const name = file.path.split("/").at(-1);
  const type = IMAGES[name.split(".").at(-1).toLowerCase()];
  const save = button(`Save ${name}`, async () => download(await contentOf(file), name));
  if (!type || file.bytes > LARGEST) return el("p", {}, save);
  const data = await asData(await contentOf(file, type));
  if (outputs.has(data)) return el("p", {}, save); // it stands below its code
  return el("figure", {}, picture(data, name), el("figcaption", {}, save));
}

// The nodes of the files that were written while the answer was made; none once the container has ended.
export async function filesOf(turn) {
  const begun = turn.response?.created_at;
  if (!begun || Date.now() / 1000 > begun + 2 * LIFE_S) return [];
  const nodes = [];
  const outputs = new Set(turn.items.flatMap((item) => item?.outputs ?? []).map(({ url }) => url));
  for (const id of containersOf(turn)) {
    try {
      const { data } = await getJson(`containers/${id}/files?limit=100`);
      const written = data.filter(({ source, created_at }) => source !== "user" && created_at >= begun);
      for (const file of written.slice(0, MOST)) nodes.push(await shown(file, outputs));
    } catch {
      // the container has ended, and its files with it
    }
  }
  return nodes;
}
