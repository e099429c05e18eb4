// Beside a document: what it cites, what cites it, what resembles it, and its near-duplicates.

import { address } from "./address.js";
import { below, get, post } from "./api.js";
import { h } from "./dom.js";
import { problem } from "./empty.js";
import { legend, scores } from "./scores.js";

const FIRST = 10;
// of hits by words and meaning
export const ORDER = "The highest “order” comes first: it weighs shared words and meaning, for this search only. The word is about the meaning.";

/**
 * Fill in the relations.
 * @param {(links: object[]) => void} know takes the links once they are there
 */
export async function relations(beside, index, id, open, signal, know) {
  const parts = [
    async () => {
      const { links } = await get(`${below(index, "documents", id, "links")}?limit=1000`, signal);
      know(links);
      const of = (direction) => links.filter((one) => one.direction === direction);
      return [
        part("Cites", of("cites").map((one) => linkEntry(index, id, one)), open, "This document cites no other document of the collection."),
        part("Cited by", of("cited_by").map((one) => linkEntry(index, id, one)), open, "No document of the collection cites this one."),
      ];
    },
    async () => {
      const hits = await post("similar", { index, id, mode: "hybrid", top_k: FIRST }, signal);
      const made = part("Resembles", hits.map((hit) => entry(index, id, hit, [["order", hit.score], ["meaning", hit.cosine]], hit.cosine)), open, "The collection has no other document.");
      if (hits.length) made.append(legend("document", ORDER));
      return made;
    },
    async () => {
      const hits = await post("similar", { index, id, mode: "coupled", top_k: FIRST }, signal);
      return hits.length > 0 && part("Shares citations with", hits.map((hit) =>
        entry(index, id, hit, [["cite the same", String(hit.shared_references)], ["cited together", String(hit.co_citations)]])), open);
    },
    async () => {
      const found = await post(below(index, "duplicates"), { id }, signal);
      return found.length > 0 && part("Near-duplicates", found.map((one) =>
        entry(index, id, one, [["shared words", one.resemblance], ["meaning", one.cosine]], one.resemblance)), open);
    },
    async () => predictions(index, id, open, signal),
  ];
  for (const make of parts) {
    try {
      beside.append(...[await make()].flat().filter(Boolean));
    } catch (error) {
      if (error.name === "AbortError") throw error;
      beside.append(problem(error));
    }
  }
}

/** Places in the text of a document at which it names others, in their order. */
export function citedPlaces(links) {
  return links.filter((one) => one.direction === "cites" && one.exists)
    .flatMap((one) => one.first_places.map((place) => ({ ...place, id: one.id, title: one.title })))
    .sort((one, other) => one.start - other.start);
}

function part(title, entries, open, none) {
  return h("details.part", { open }, h("summary", {}, h("h2", {}, title), h("span", {}, entries.length)),
    entries.length ? h("ul", {}, entries.slice(0, FIRST)) : h("p.note", {}, none),
    entries.length > FIRST && h("details", {}, h("summary", {}, `${entries.length - FIRST} more`), h("ul", {}, entries.slice(FIRST))));
}

function entry(index, id, one, figures, value = null) {
  return h("li", {},
    h("a", { href: address(index, "document", { id: one.id }) }, one.title || one.id),
    scores(value, "document", figures, h("a", { href: address(index, "compare", { id, other: one.id }) }, "Compare")));
}

function linkEntry(index, id, one) {
  if (!one.exists) return h("li", {}, one.id, h("p.scores", {}, h("span", {}, "not in this collection")));
  const [first] = one.first_places;
  // the places stand in the text of the citing document
  const reader = one.direction === "cites" ? id : one.id;
  return h("li", {},
    h("a", { href: address(index, "document", { id: one.id }) }, one.title || one.id),
    h("p.scores", {},
      one.given && h("span", {}, "given"),
      one.found && h("a", { href: address(index, "document", { id: reader, at: first?.start }) },
        one.places === 1 ? "in the text" : `in the text, ${one.places} times`),
      h("a", { href: address(index, "compare", { id, other: one.id }) }, "Compare")));
}

/** Citations that the index's head predicts, once they are asked for. */
function predictions(index, id, open, signal) {
  const made = h("details.part", { open }, h("summary", {}, h("h2", {}, "Might also cite")),
    h("p.note", {}, "Documents that this one does not cite, by the probability that it should."),
    h("button", {
      type: "button",
      onclick: async (event) => {
        event.target.disabled = true;
        try {
          const body = { index, id, mode: "citation", direction: "cites", unlinked: true, top_k: FIRST };
          const hits = await post("similar", body, signal);
          event.target.replaceWith(h("ul", {}, hits.map((hit) => entry(index, id, hit, [["probability", hit.link_probability]], hit.link_probability))));
        } catch (error) {
          if (error.name !== "AbortError") event.target.replaceWith(problem(error));
        }
      },
    }, "Predict"));
  return made;
}
