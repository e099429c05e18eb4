// The topics of a map as a table, and the classifiers that are trained on them.

import { address } from "./address.js";
import { get, send } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { colour } from "./points.js";
import { ended } from "./training.js";

// examples of a classifier with each of its two labels
const MOST = 300;
// examples of a classifier of all topics
const MOST_OF_ALL = 1000;
const LONGEST = 128;

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
  const table = h("div.scroll", { tabindex: 0, role: "region", "aria-label": "Topics" }, h("table.topics", {},
    h("caption", {}, `${count(found.topics.length, "topic")}; ${count(found.without, "document")} without one`),
    h("thead", {}, h("tr", {}, ["Topic", "Documents", "Examples", "Classifier"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, found.topics.map((topic) => row(index, topic, documents, show, signal)))));
  return [table, found.topics.length > 1 && all(index, found.topics, documents, signal)];
}

/** A button that trains a classifier of all topics; it gives a document several of them, or none. */
function all(index, topics, { ids, numbers }, signal) {
  const said = h("div", { "aria-live": "polite" });
  const most = Math.ceil(MOST_OF_ALL / (topics.length + 1));
  const act = () => {
    const examples = [];
    for (const topic of [...topics, null]) {
      const own = spread(ids, (at) => numbers[at] === (topic?.topic ?? -1), most);
      // a label needs two examples
      if (!topic || own.length > 1) examples.push(...own.map((id) => [id, topic ? [short(nameOf(topic))] : []]));
    }
    put(index, `${index}-topics`, { ids: examples.map(([id]) => id), labels: examples.map(([, labels]) => labels), multi_label: true }, said, signal);
  };
  return h("div.own-label", {}, h("button", { type: "button", id: "train-all", onclick: act }, "Train a classifier of all topics"),
    h("span.note", {}, "It gives a document each topic that fits, or none."), said);
}

const nameOf = (topic) => topic.name || `topic ${topic.topic}`;
const short = (label) => [...label].slice(0, LONGEST).join("");

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
      onclick: () => train(index, nameOf(topic), documents.ids,
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
export function train(index, label, ids, chosen, said, signal) {
  const own = spread(ids, chosen, MOST);
  const others = spread(ids, (at) => !chosen(at), MOST);
  const labels = [...own.map(() => short(label)), ...others.map(() => "other")];
  return put(index, `${index}-${label}`, { ids: [...own, ...others], labels }, said, signal);
}

async function put(index, wanted, examples, said, signal) {
  try {
    const tell = (wrong) => fill(said, h("p.note", {}, "Training…"), wrong && h("p.problem", {}, wrong));
    tell(null);
    const { classifiers, untrained } = await get("classifiers", signal);
    const name = free(wanted, new Set([...classifiers, ...untrained]));
    const { status } = await send("PUT", `classifiers/${encodeURIComponent(name)}`, { index, ...examples }, signal);
    // many examples are learnt after the answer
    if (status === 202) await ended(name, tell, signal);
    fill(said, h("p.note", {}, "Trained: ", h("b", {}, name), " ", h("a", { href: address(index, "map", { labels: name }) }, "Show its labels")));
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

/** Up to a number of the ids that fit, at even distances. */
function spread(ids, fits, most) {
  const found = ids.filter((_, at) => fits(at));
  const step = Math.max(1, found.length / most);
  return Array.from({ length: Math.min(most, found.length) }, (_, at) => found[Math.floor(at * step)]);
}
