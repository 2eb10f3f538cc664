// The server over HTTP. The key is kept here, in memory alone.

const base = new URL("v1/", document.baseURI);
let key = "";

export const baseUrl = () => base.href.replace(/\/$/, "");
export const setKey = (value) => (key = value);

// What went wrong, in words. `kind`: away, key, busy or refused.
export class Fault extends Error {
  constructor(message, kind, param) {
    super(message);
    this.kind = kind;
    this.param = param; // the field of the request
  }
}

const kindOf = (status) =>
  status === 401 ? "key" : status === 429 || status === 503 ? "busy" : "refused";

async function faultOf(reply) {
  let message = `The server answered ${reply.status} and sent no error message.`;
  let param;
  try {
    ({ message, param } = (await reply.json()).error);
  } catch {
    // not an error body of the API: the message above names the status
  }
  const wait = reply.headers.get("retry-after");
  const kind = kindOf(reply.status);
  return new Fault(kind === "busy" && wait ? `${message} Try again in ${wait} s.` : message, kind, param);
}

export async function call(path, { body, signal, method, root } = {}) {
  const headers = key ? { authorization: `Bearer ${key}` } : {};
  if (body) headers["content-type"] = "application/json";
  let reply;
  try {
    reply = await fetch(new URL(path, root ? document.baseURI : base), {
      method: method ?? (body ? "POST" : "GET"),
      headers,
      body: body && JSON.stringify(body),
      signal,
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("The server does not answer.", "away");
  }
  if (!reply.ok) throw await faultOf(reply);
  return reply;
}

export const getJson = async (path) => (await call(path)).json();

const SILENCE_MS = 120_000; // the server sends something every few seconds: a connection that is silent so long is dead

// The events of a stream, each as it comes.
export async function* events(path, options) {
  const reply = await call(path, options);
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const pieces = [];
  try {
    for (;;) {
      let read;
      const silent = setTimeout(() => reader.cancel().catch(() => {}), SILENCE_MS);
      try {
        read = await reader.read();
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new Fault("The connection broke.", "away");
      } finally {
        clearTimeout(silent);
      }
      if (read.done) return;
      pieces.push(read.value);
      if (!read.value.includes("\n")) continue;
      const frames = pieces.join("").split("\n\n");
      pieces.length = 0;
      pieces.push(frames.pop());
      for (const frame of frames) {
        const data = frame.split("\n").find((line) => line.startsWith("data: "));
        if (data && data !== "data: [DONE]") yield JSON.parse(data.slice(6));
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
