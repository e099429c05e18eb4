// Results of a search as lists.

import { address } from "./address.js";
import { h } from "./dom.js";
import { equals } from "./filters.js";
import { excerpts } from "./pairs.js";
import { scores } from "./scores.js";
import { flow, marked, summary, where } from "./texts.js";

const DIRECTIONS = { cites: "The text would cite this document", cited_by: "This document would cite the text" };

/** Documents with their best passages. */
export function passageHits(index, hits, { words, state }) {
  return h("ol.hits", {}, hits.map((hit) => {
    const [best, ...others] = hit.passages;
    const fit = scores(hit.score, "text", [["match", hit.score], ["meaning", best.cosine], ["words", best.words]]);
    return card(index, hit, fit, best.snippet, state.like,
      passage(index, hit.id, best, words, "best"),
      others.length > 0 && h("details", {}, h("summary", {}, `${others.length} more from this document`),
        others.map((one) => passage(index, hit.id, one, words, "other"))));
  }));
}

/** Documents, each with the parts that made it a hit. */
export function documentHits(index, hits, { words, state, signal }) {
  const places = hits.map(() => h("div.why"));
  excerpts(index, hits, places, state, words, signal);
  return h("ol.hits", {}, hits.map((hit, number) => card(index, hit,
    hit.direction ? scores(hit.link_probability, "text", [["probability", hit.link_probability], ["meaning", hit.cosine]]) :
      scores(hit.cosine, state.like ? "document" : "text", [["order", hit.score], ["meaning", hit.cosine]]),
    hit.pairs?.[0]?.document, state.like,
    hit.direction && h("p.where", {}, DIRECTIONS[hit.direction]),
    places[number])));
}

/** Values of declared fields with the number of documents; each adds a filter. */
export function facetBar(facets, fields, filters, change) {
  const shown = Object.entries(facets).filter(([, facet]) => facet.values.length > 1);
  if (!shown.length) return null;
  return h("details.facets", {}, h("summary", {}, "Narrow by field"), h("dl", {}, shown.map(([field, facet]) => [
    h("dt", {}, field),
    h("dd", {}, facet.values.slice(0, 12).map(({ value, count }) => h("button.chip", {
      type: "button", onclick: () => change([...new Set([...filters, equals(field, value, fields[field])])]),
    }, `${value} `, h("small", {}, count)))),
  ])));
}

function card(index, hit, fit, place, like, ...content) {
  return h("li", {}, h("article", {},
    h("header", {},
      h("h2", {}, h("a", { href: address(index, "document", { id: hit.id, at: place?.start, to: place?.end }) }, hit.title || hit.id)),
      fit),
    h("p.meta", {}, [hit.title ? hit.id : null, ...summary(hit.metadata)].filter(Boolean).map((each) => h("span", {}, each))),
    content,
    h("p.actions", {},
      h("a", { href: address(index, "search", { like: hit.id, unit: "documents" }) }, "Documents like this"),
      like && h("a", { href: address(index, "compare", { id: like, other: hit.id }) }, "Compare"))));
}

function passage(index, id, one, words, kind) {
  const { start, end, text } = one.snippet;
  return h(`figure.passage.${kind}`, {},
    h("figcaption.where", {}, h("a", { href: address(index, "document", { id, at: start, to: end }) }, where(one) || "Show it in the document")),
    h("blockquote", {}, marked(flow(text), words), end < one.end && " …"));
}
