// Labels of a document by the trained classifiers, and the windows that carried each decision.

import { get, post } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { cut, flow, slicer } from "./texts.js";

// characters of a window in the list
const SHORT = 160;
// probability of a label from which on a classifier of several labels gives it
const LEAST = 0.5;

/**
 * Offer the classifiers that the key may use; nothing if there are none.
 * @param {HTMLElement} shown has the windows of the text
 * @param {(at: number) => void} reach shows the window that begins at a code point
 */
export async function labels(beside, shown, text, open, reach, signal) {
  const { classifiers: names } = await get("classifiers", signal);
  if (!names.length) return;
  const answer = h("div", { "aria-live": "polite" });
  const ask = async (classifier) => {
    try {
      const [found, { multi_label: several }] = await Promise.all(
        [explain(classifier, text, signal), get(`classifiers/${encodeURIComponent(classifier)}`, signal)]);
      markCarried(shown, found.windows);
      fill(answer, several && decided(found.labels), explained(classifier, found, slicer(text), reach));
    } catch (error) {
      if (error.name !== "AbortError") fill(answer, problem(error));
    }
  };
  beside.append(h("details.part", { open }, h("summary", {}, h("h2", {}, "Labels"), h("span", {}, names.length)),
    h("p.choices", {}, names.map((name) => h("button.chip", { type: "button", onclick: () => ask(name) }, name))), answer));
}

/** The labels of a text and the windows that carried the first one. */
export async function explain(classifier, text, signal) {
  const [found] = await post("classify", { inputs: [text], classifier, explain: true, top_k: 5 }, signal);
  return found;
}

/** Mark the windows of a shown text that carried a decision, each with its share. */
export function markCarried(shown, windows) {
  const all = [...shown.querySelectorAll(".window")];
  for (const one of all) {
    one.classList.remove("carried");
    one.querySelector(".share")?.remove();
  }
  for (const { start, contribution } of windows) {
    const found = all.find((one) => Number(one.dataset.start) <= start && start < Number(one.dataset.end));
    found?.classList.add("carried");
    found?.querySelector(".edge").append(h("b.share", {}, `share in the label ${contribution.toFixed(2)}`));
  }
}

/** Which of several labels a document gets: those that are more probable than not. */
function decided(given) {
  const fitting = given.filter(({ score }) => score >= LEAST).map(({ label }) => label);
  return h("p", {}, fitting.length ? ["It gets: ", h("b", {}, fitting.join(", "))] : "It gets none: no label is more probable than not.");
}

function explained(classifier, { labels: given, windows }, slice, reach) {
  return [
    h("dl.labels", { "aria-label": `Labels by ${classifier}` }, given.map(({ label, score }) =>
      [h("dt", {}, label), h("dd", {}, score.toFixed(2))])),
    h("p.note", {}, `Parts that carried “${given[0]?.label ?? ""}”:`),
    h("ul", {}, windows.map((one) => h("li", {},
      h("button.plain.excerpt", { type: "button", onclick: () => reach(one.start) }, cut(flow(slice(one.start, one.end)), SHORT)),
      h("p.scores", {}, h("span", {}, "share ", h("b", {}, one.contribution.toFixed(2))))))),
  ];
}
