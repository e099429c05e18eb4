// Waits for the training of a classifier.

import { get } from "./api.js";

const PAUSE = 1000;

/** The classifier once no training of it runs. */
export async function ended(name, signal) {
  for (;;) {
    const found = await get(`classifiers/${encodeURIComponent(name)}`, signal);
    if (!found.training) return found;
    if (found.training.state === "failed") throw Object.assign(new Error(found.training.error), { status: 409 });
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
