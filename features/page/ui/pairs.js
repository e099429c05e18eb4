// The parts that made two documents resemble, side by side.

import { below, post } from "./api.js";
import { fill, h } from "./dom.js";
import { scores } from "./scores.js";
import { cut, flow, marked, slicer, where } from "./texts.js";

const SHORT = 420;

/**
 * Fill in for each hit the parts that resemble the query most.
 * @param {HTMLElement[]} places one element for each hit
 */
export async function excerpts(index, hits, places, state, words, signal) {
  try {
    const ids = hits.filter((hit) => hit.pairs?.length).map((hit) => hit.id);
    const texts = await textsOf(index, state.like ? [...ids, state.like] : ids, signal);
    const query = state.like ? texts.get(state.like) : slicer(state.text);
    hits.forEach((hit, number) => {
      const text = texts.get(hit.id);
      if (hit.pairs?.length && text && query) fill(places[number], why(hit.pairs, query, text, words, Boolean(state.like)));
    });
  } catch (error) {
    // the results stand without excerpts
    if (error.name !== "AbortError") places.forEach((place) => fill(place, h("p.note", {}, "The texts could not be read.")));
  }
}

/** The texts of documents by id, each as a function from code points to text. */
export async function textsOf(index, ids, signal) {
  const found = new Map();
  let wanted = [...new Set(ids)];
  while (wanted.length) {
    const answer = await post(below(index, "documents", "get"), { ids: wanted }, signal);
    for (const one of answer.documents) found.set(one.id, slicer(one.text));
    wanted = answer.remaining;
  }
  return found;
}

function why(pairs, query, text, words, stored) {
  const best = flow(text(pairs[0].document.start, pairs[0].document.end));
  const place = where(pairs[0].document);
  return [
    h("figure.passage.best", {}, place && h("figcaption.where", {}, place),
      h("blockquote", {}, marked(cut(best, SHORT), words))),
    h("details", {}, h("summary", {}, "Why: the parts that resemble each other"), h("ol.pairs", {}, pairs.map((pair) =>
      h("li", {},
        scores(pair.cosine, stored ? "document" : "text", [["meaning", pair.cosine]]),
        h("div.pair", {},
          side(stored ? "That document" : "Your text", query(pair.query.start, pair.query.end), words),
          side(["This document", where(pair.document)].filter(Boolean).join(" · "),
            text(pair.document.start, pair.document.end), words)))))),
  ];
}

function side(title, text, words) {
  return h("figure", {}, h("figcaption.where", {}, title), h("blockquote", {}, marked(flow(text), words)));
}
