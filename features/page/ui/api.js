// Requests to the service.

import { askKey, storedKey } from "./key.js";

// digits of an integer that a number of a script may round
const LONG = /[:[,]\s*-?\d{16,}\s*[,}\]]/;
const PAUSE = 1000;
// of a service that is away for a moment, or busy
const PASSING = new Set([0, 429, 502, 503, 504]);
const UNREACHED = "The service does not answer. Is it running, and is this computer connected?";

/** An answer that is no success, with the service's own hint. */
export class Refused extends Error {
  constructor(status, message, body) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/**
 * Send a request; ask for a key when the service wants one.
 * @returns {Promise<{data: any, ms: number, status: number}>}
 */
export async function send(method, path, body, signal) {
  for (;;) {
    const began = performance.now();
    const { answer, text } = await once(method, path, body, signal);
    if (answer.status === 401) {
      await askKey();
      continue;
    }
    const data = text && (answer.headers.get("content-type") ?? "").includes("json") ? parsed(text) : text;
    if (!answer.ok) throw new Refused(answer.status, message(answer, data), data);
    return { data, ms: performance.now() - began, status: answer.status };
  }
}

export const get = async (path, signal) => (await send("GET", path, undefined, signal)).data;
export const post = async (path, body, signal) => (await send("POST", path, body, signal)).data;

/**
 * What a job or a training says after a pause. Work goes on while the service does not answer, so
 * the page asks until it does.
 * @param {(wrong: string|null) => void} tell takes what is wrong meanwhile; null once an answer came
 */
export async function later(path, tell, signal) {
  let told = null;
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    try {
      const data = await get(path, signal);
      if (told) tell(null);
      return data;
    } catch (error) {
      if (!PASSING.has(error.status)) throw error;
      // a screen reader says each text that is set
      if (told !== error.message) tell(`${error.message} The page asks again.`);
      told = error.message;
    }
  }
}

/**
 * Send files.
 * @param {(share: number) => void} tell takes the share that was sent, 0 to 1
 * @returns {Promise<object>} the answer: the job that indexes them, or the text of one file
 */
export function upload(path, form, tell) {
  return new Promise((resolve, reject) => {
    // fetch does not say how much it has sent
    const request = new XMLHttpRequest();
    request.open("POST", path);
    const key = storedKey();
    if (key) request.setRequestHeader("authorization", `Bearer ${key}`);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && tell(event.loaded / event.total));
    request.addEventListener("load", () => {
      let data = null;
      try {
        data = JSON.parse(request.responseText);
      } catch {
        // a balancer's own page
      }
      if (request.status < 300 && data) resolve(data);
      else reject(new Refused(request.status, data?.error ?? `The service answered with status ${request.status}.`, data));
    });
    request.addEventListener("error", () => reject(new Refused(0, UNREACHED, null)));
    request.send(form);
  });
}

/** JSON with BigInt for the integers that a number would round, where the browser can say them. */
function parsed(text) {
  return LONG.test(text) ? JSON.parse(text, (_, value, context) => whole(context?.source) ?? value) : JSON.parse(text);
}

/** The BigInt of an integer that a number would round, if the browser can send it; else null. */
export function whole(text) {
  return JSON.rawJSON && /^-?\d{16,}$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : null;
}

/** Path of an index, or of something below it. */
export function below(index, ...parts) {
  return ["indexes", index, ...parts].map(encodeURIComponent).join("/");
}

async function once(method, path, body, signal) {
  const headers = {};
  const key = storedKey();
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    const answer = await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body, (_, value) => (typeof value === "bigint" ? JSON.rawJSON(value) : value)),
      cache: "no-store",
      credentials: "omit",
    });
    // a connection can also end in the middle of an answer
    return { answer, text: await answer.text() };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, UNREACHED, null);
  }
}

function message(answer, data) {
  const said = data && typeof data === "object" ? data.error : "";
  const text = typeof said === "string" && said ? said : `The service answered with status ${answer.status}.`;
  const wait = answer.headers.get("retry-after");
  return wait ? `${text} Try again in ${wait} s.` : text;
}
