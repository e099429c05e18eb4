// The topics of a map as a table, and the classifiers that are trained on them.

import { address } from "./address.js";
import { send } from "./api.js";
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
      onclick: () => train(index, topic, documents, said, signal),
    }, "Train"), said));
}

/** A small circle in the colour of a number. */
export function swatch(number, shade = colour) {
  return h("svg.swatch", { viewBox: "0 0 10 10", "aria-hidden": "true" },
    h("circle", { cx: 5, cy: 5, r: 5, fill: `rgb(${shade(number).join(" ")})` }));
}

/** Train a classifier that tells the documents of a topic from others. */
async function train(index, topic, { ids, numbers }, said, signal) {
  const own = spread(ids, (at) => numbers[at] === topic.topic);
  const others = spread(ids, (at) => numbers[at] !== topic.topic);
  const name = `${index}-${topic.words.slice(0, 3).join("-")}`.normalize("NFKD").toLowerCase()
    .replace(/[^a-z0-9-]+/g, "").slice(0, 60) || `topic-${topic.topic}`;
  const labels = [...own.map(() => topic.name || "topic"), ...others.map(() => "other")];
  try {
    fill(said, h("p.note", {}, "Training…"));
    const path = `classifiers/${encodeURIComponent(name)}`;
    await send("PUT", path, { index, ids: [...own, ...others], labels }, signal);
    fill(said, h("p.note", {}, "Trained: ", h("b", {}, name)));
  } catch (error) {
    if (error.name !== "AbortError") fill(said, problem(error));
  }
}

/** Up to MOST of the ids that fit, at even distances. */
function spread(ids, fits) {
  const found = ids.filter((_, at) => fits(at));
  const step = Math.max(1, found.length / MOST);
  return Array.from({ length: Math.min(MOST, found.length) }, (_, at) => found[Math.floor(at * step)]);
}
