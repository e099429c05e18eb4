// The documents that a person chose on the map: a list of the first ones, and what to do with all.

import { address } from "./address.js";
import { below, post } from "./api.js";
import { written } from "./area.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { train } from "./topics.js";

const LISTED = 50;

/**
 * Let documents stand out and list the first of them; null ends it.
 * @param {{points: Points, chosen: HTMLElement, index: object, ids: string[], fit: boolean}} on
 * @param {Uint8Array|null} inside 1 for each of these documents
 * @param {string} title what they have in common
 * @param {object} [area] around them; a search can be restricted to it
 */
export async function choose({ points, chosen, index, ids, fit }, inside, title, area, signal) {
  const own = inside ? ids.filter((_, at) => inside[at]) : [];
  points.mark(own.length ? inside : null);
  if (own.length && fit) points.fit(inside);
  if (!inside) return void fill(chosen);
  const list = h("div");
  fill(chosen, h("h2", {}, `${count(own.length, "document")} ${title}`),
    area && own.length > 0 && h("p.actions", {}, h("a", { id: "search-inside", href: address(index.name, "search", { area: written(area) }) }, "Search these documents")),
    list, own.length > 1 && own.length < ids.length && trainForm(index, ids, inside, signal));
  if (!own.length) return;
  try {
    const { documents } = await post(below(index.name, "documents", "get"), { ids: own.slice(0, LISTED), text: false }, signal);
    fill(list, h("ul", {}, documents.map((one) => h("li", {}, h("a", { href: address(index.name, "document", { id: one.id }) }, one.title || one.id),
      h("a.note", { href: address(index.name, "search", { like: one.id, unit: "documents" }) }, "Documents like this")))),
    own.length > LISTED && h("p.note", {}, `${(own.length - LISTED).toLocaleString("en")} more`));
  } catch (error) {
    if (error.name !== "AbortError") fill(list, problem(error));
  }
}

/** A form that gives the chosen documents a label and trains a classifier. */
function trainForm(index, ids, inside, signal) {
  const box = h("input", { id: "own-label", required: true, maxlength: 100 });
  const said = h("div", { "aria-live": "polite" });
  return h("form.own-label", { onsubmit: (event) => {
    event.preventDefault();
    const label = box.value.trim();
    if (label) train(index.name, label, ids, (at) => inside[at] === 1, said, signal);
  } }, h("label", { for: "own-label" }, "Label of these documents"), box, h("button", { type: "submit" }, "Train a classifier"), said);
}
