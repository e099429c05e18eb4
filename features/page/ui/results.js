// Results of a search as lists.

import { address } from "./address.js";
import { h } from "./dom.js";
import { equals } from "./filters.js";
import { excerpts } from "./pairs.js";
import { flow, marked, summary, where } from "./texts.js";

const DIRECTIONS = { cites: "The text would cite this document", cited_by: "This document would cite the text" };

/** Documents with their best passages. */
export function passageHits(index, hits, { words, state }) {
  return h("ol.hits", {}, hits.map((hit) => {
    const [best, ...others] = hit.passages;
    return card(index, hit, [["match", hit.score], ["cosine", best.cosine], ["words", best.words]], best.snippet, state.like,
      passage(best, words, "best"),
      others.length > 0 && h("details", {}, h("summary", {}, `${others.length} more from this document`),
        others.map((one) => passage(one, words, "other"))));
  }));
}

/** Documents, each with the windows that made it a hit. */
export function documentHits(index, hits, { words, state, signal }) {
  const places = hits.map(() => h("div.why"));
  excerpts(index, hits, places, state, words, signal);
  return h("ol.hits", {}, hits.map((hit, number) => card(index, hit,
    hit.direction ? [["probability", hit.link_probability], ["cosine", hit.cosine]] : [["cosine", hit.cosine], ["score", hit.score]],
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

function card(index, hit, scores, place, like, ...content) {
  return h("li", {}, h("article", {},
    h("header", {},
      h("h2", {}, h("a", { href: address(index, "document", { id: hit.id, at: place?.start }) }, hit.title || hit.id)),
      h("p.scores", {}, scores.map(([name, value]) => h("span", {}, `${name} `, h("b", {}, value.toFixed(2)))))),
    h("p.meta", {}, [hit.title ? hit.id : null, ...summary(hit.metadata)].filter(Boolean).map((each) => h("span", {}, each))),
    content,
    h("p.actions", {},
      h("a", { href: address(index, "search", { like: hit.id, unit: "documents" }) }, "Documents like this"),
      like && h("a", { href: address(index, "compare", { id: like, other: hit.id }) }, "Compare"))));
}

function passage(one, words, kind) {
  const place = where(one);
  return h(`figure.passage.${kind}`, {}, place && h("figcaption.where", {}, place),
    h("blockquote", {}, marked(flow(one.snippet.text), words)));
}
