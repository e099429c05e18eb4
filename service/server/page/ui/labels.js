// Labels of a document by the trained classifiers, and the windows that carried each decision.

import { get, post } from "./api.js";
import { fill, h } from "./dom.js";
import { problem } from "./empty.js";

/**
 * Offer the classifiers that the key may use; nothing if there are none.
 * @param {(at: number) => void} reach shows the window that begins at a code point
 */
export async function labels(beside, text, open, reach, signal) {
  const { classifiers: names } = await get("classifiers", signal);
  if (!names.length) return;
  const answer = h("div", { "aria-live": "polite" });
  const ask = async (classifier) => {
    try {
      const [found] = await post("classify", { inputs: [text], classifier, explain: true, top_k: 5 }, signal);
      fill(answer, explained(classifier, found, reach));
    } catch (error) {
      if (error.name !== "AbortError") fill(answer, problem(error));
    }
  };
  beside.append(h("details.part", { open }, h("summary", {}, h("h2", {}, "Labels"), h("span", {}, names.length)),
    h("p.choices", {}, names.map((name) => h("button.chip", { type: "button", onclick: () => ask(name) }, name))), answer));
}

function explained(classifier, { labels: given, windows }, reach) {
  return [
    h("dl.labels", { "aria-label": `Labels by ${classifier}` }, given.map(({ label, score }) =>
      [h("dt", {}, label), h("dd", {}, score.toFixed(2))])),
    h("p.note", {}, `Windows that carried “${given[0]?.label ?? ""}”:`),
    h("ul", {}, windows.map((one) => h("li", {},
      h("button.plain", { type: "button", onclick: () => reach(one.start) }, `from character ${one.start.toLocaleString("en")}`),
      h("p.scores", {}, h("span", {}, "share ", h("b", {}, one.contribution.toFixed(2))))))),
  ];
}
