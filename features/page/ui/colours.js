// What the colours of a map show: its topics, the values of a field, or the labels of a classifier.

import { address } from "./address.js";
import { h } from "./dom.js";
import { problem } from "./empty.js";
import { floats, integers } from "./encoded.js";
import { colour, ramp } from "./points.js";
import { swatch } from "./topics.js";

const KINDS = new Set(["string", "integer", "boolean"]);
const LISTED = 24;

/** What the address asks for, as parameters of GET /indexes/{name}/map. */
export function wanted(index, given) {
  if (KINDS.has(index.fields[given.get("by")])) return { field: given.get("by") };
  return given.get("labels") ? { classifier: given.get("labels") } : {};
}

/**
 * The colours of the documents on a map.
 * @param {object} index
 * @param {object} found as GET /indexes/{name}/map answers it
 * @param {object[]} topics
 * @returns {{codes: Int32Array, names: string[], order: number[], shade: (code: number) => number[],
 *   tell: (at: number) => string|undefined}} the number of each document's colour, what each number
 *   means, the numbers in the order of the legend, their colours, and a word about a document
 */
export function colours(index, found, topics) {
  if (found.labels) {
    const [codes, scores] = [integers(found.labels.codes), floats(found.labels.scores)];
    const names = found.labels.labels;
    const tell = (at) => (codes[at] < 0 ? undefined : `${names[codes[at]]} ${scores[at].toFixed(2)}`);
    return { codes, names, order: names.map((_, code) => code), shade: colour, tell };
  }
  const codes = integers(found.values?.codes ?? found.topics);
  const names = found.values?.values.map(String) ?? topics.map((topic) => topic.name);
  const order = names.map((_, code) => code);
  const tell = (at) => names[codes[at]];
  if (index.fields[found.values?.field] !== "integer") return { codes, names, order, shade: colour, tell };
  // numbers have an order
  const { values } = found.values;
  order.sort((one, other) => (values[one] < values[other] ? -1 : Number(values[one] > values[other])));
  const share = new Map(order.map((code, place) => [code, place / Math.max(1, order.length - 1)]));
  return { codes, names, order, shade: (code) => (code < 0 ? colour(-1) : ramp(share.get(code))), tell };
}

/** The choice of what the colours show. */
export function chooser(index, chosen, classifiers) {
  const option = (key, title, value) => h("option", { value: `${key}=${value}`, selected: (chosen[key] ?? "") === value }, title);
  const group = (label, key, names) => names.length > 0 && h("optgroup", { label }, names.map((name) => option(key, name, name)));
  return h("label.field", {}, "Colour by ", h("select", { id: "colour", onchange: (event) => {
    const [key, ...rest] = event.target.value.split("=");
    location.assign(address(index.name, "map", { [key === "field" ? "by" : "labels"]: rest.join("=") }));
  } }, h("option", { value: "field=" }, "topic"),
  group("Field", "field", Object.keys(index.fields).filter((name) => KINDS.has(index.fields[name]))),
  group("Labels by a classifier", "classifier", classifiers)));
}

/** The colours with their names and numbers of documents; a click shows the documents of one. */
export function legend({ codes, names, order, shade }, show) {
  const counts = new Map();
  for (const code of codes) counts.set(code, (counts.get(code) ?? 0) + 1);
  const row = (code, name) => h("li", {}, swatch(code, shade),
    h("button.plain", { type: "button", onclick: () => show(code, name) }, name), " ",
    h("span.note", {}, (counts.get(code) ?? 0).toLocaleString("en")));
  return h("ul.legend-values", { "aria-label": "Colours" }, order.slice(0, LISTED).map((code) => row(code, names[code])),
    counts.has(-1) && row(-1, "none"),
    order.length > LISTED && h("li.note", {}, `${order.length - LISTED} more`));
}

/** Why the labels of the wanted classifier are not shown. */
export function refused(classifier, error) {
  return h("section.refused", {}, h("p", {}, "The labels of ", h("b", {}, classifier), " are not shown, so the colours are those of the topics."), problem(error));
}
