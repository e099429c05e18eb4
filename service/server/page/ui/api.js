// Requests to the service. The API key stays in this tab: sessionStorage ends with it.

import { askKey } from "./key.js";

const STORED = "docsplit.key";

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
    const answer = await once(method, path, body, signal);
    if (answer.status === 401) {
      await askKey(sessionStorage.getItem(STORED) !== null, (key) => sessionStorage.setItem(STORED, key));
      continue;
    }
    const text = await answer.text();
    const data = text && (answer.headers.get("content-type") ?? "").includes("json") ? JSON.parse(text) : text;
    if (!answer.ok) throw new Refused(answer.status, message(answer, data), data);
    return { data, ms: performance.now() - began, status: answer.status };
  }
}

export const get = async (path, signal) => (await send("GET", path, undefined, signal)).data;
export const post = async (path, body, signal) => (await send("POST", path, body, signal)).data;

/** Path of an index, or of something below it. */
export function below(index, ...parts) {
  return ["indexes", index, ...parts].map(encodeURIComponent).join("/");
}

async function once(method, path, body, signal) {
  const headers = {};
  const key = sessionStorage.getItem(STORED);
  if (key) headers.authorization = `Bearer ${key}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  try {
    return await fetch(path, {
      method,
      headers,
      signal,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The service does not answer. Is it running, and is this computer connected?", null);
  }
}

function message(answer, data) {
  const said = data && typeof data === "object" ? data.error : "";
  const text = typeof said === "string" && said ? said : `The service answered with status ${answer.status}.`;
  const wait = answer.headers.get("retry-after");
  return wait ? `${text} Try again in ${wait} s.` : text;
}
