// Waits for the training of a classifier.

import { get, later } from "./api.js";

/**
 * The classifier once no training of it runs.
 * @param {(wrong: string|null) => void} tell see `later`
 */
export async function ended(name, tell, signal) {
  const path = `classifiers/${encodeURIComponent(name)}`;
  let found = await get(path, signal);
  while (found.training) {
    if (found.training.state === "failed") throw Object.assign(new Error(found.training.error), { status: 409 });
    found = await later(path, tell, signal);
  }
  return found;
}
