// The topics of a map as a table, and the classifiers that are trained on them.

import { address } from "./address.js";
import { get, send } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { colour } from "./points.js";

// examples of a classifier with each of its two labels
const MOST = 300;

/**
 * @param {string} index
 * @param {object} found as GET /indexes/{name}/topics answers it
 * @param {{ids: string[], numbers: Int32Array}} documents those on the map, with their topics
 * @param {(topic: number) => void} show marks the documents of a topic
 */
export function topicTable(index, found, documents, show, signal) {
  if (!found.topics.length) {
    return h("p.note", {}, "This map has no topics: no group of documents is dense enough.");
  }
  return h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Topics" }, h("table.topics", {},
    h("caption", {}, `${count(found.topics.length, "topic")}; ${count(found.without, "document")} without one`),
    h("thead", {}, h("tr", {}, ["Topic", "Documents", "Examples", "Classifier"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, found.topics.map((topic) => row(index, topic, documents, show, signal)))));
}

function row(index, topic, documents, show, signal) {
  const said = h("div", { "aria-live": "polite" });
  return h("tr", {},
    h("th", { scope: "row" }, swatch(topic.topic),
      h("button.plain", { type: "button", onclick: () => show(topic.topic) }, topic.name || `Topic ${topic.topic}`),
      h("span.note", {}, topic.words.slice(3).join(", "))),
    h("td", {}, topic.size.toLocaleString("en")),
    h("td", {}, topic.examples.slice(0, 3).map((id) => h("a", { href: address(index, "document", { id }) }, id))),
    h("td", {}, h("button", {
      type: "button", disabled: topic.size < 2,
      onclick: () => train(index, topic.name || `topic ${topic.topic}`, documents.ids,
        (at) => documents.numbers[at] === topic.topic, said, signal),
    }, "Train"), said));
}

/** A small circle in the colour of a number. */
export function swatch(number, shade = colour) {
  return h("svg.swatch", { viewBox: "0 0 10 10", "aria-hidden": "true" },
    h("circle", { cx: 5, cy: 5, r: 5, fill: `rgb(${shade(number).join(" ")})` }));
}

/**
 * Train a new classifier that tells some documents from others.
 * @param {string} index
 * @param {string} label of these documents; the others get "other"
 * @param {string[]} ids of all documents on the map
 * @param {(at: number) => boolean} chosen whether a document is one of these
 * @param {HTMLElement} said gets the name of the classifier, or the error
 */
export async function train(index, label, ids, chosen, said, signal) {
  const own = spread(ids, chosen);
  const others = spread(ids, (at) => !chosen(at));
  try {
    fill(said, h("p.note", {}, "Training…"));
    const { classifiers } = await get("classifiers", signal);
    const name = free(`${index}-${label}`, new Set(classifiers));
    const labels = [...own.map(() => label), ...others.map(() => "other")];
    await send("PUT", `classifiers/${encodeURIComponent(name)}`, { index, ids: [...own, ...others], labels }, signal);
    fill(said, h("p.note", {}, "Trained: ", h("b", {}, name)));
  } catch (error) {
    if (error.name !== "AbortError") fill(said, problem(error));
  }
}

/** A name for a classifier that has none of the taken ones. */
function free(text, taken) {
  const name = text.normalize("NFKD").toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 56).replace(/-$/, "");
  for (let number = 1; ; number++) {
    const tried = number === 1 ? name : `${name}-${number}`;
    if (!taken.has(tried)) return tried;
  }
}

/** Up to MOST of the ids that fit, at even distances. */
function spread(ids, fits) {
  const found = ids.filter((_, at) => fits(at));
  const step = Math.max(1, found.length / MOST);
  return Array.from({ length: Math.min(MOST, found.length) }, (_, at) => found[Math.floor(at * step)]);
}
