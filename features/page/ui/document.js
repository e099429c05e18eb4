// The view that reads a document: its text window by window, and beside it its relations.

import { address } from "./address.js";
import { below, get, post } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { labels } from "./labels.js";
import { citedPlaces, relations } from "./relations.js";
import { joined, slicer, summary, where } from "./texts.js";

/**
 * Show the view.
 * @param {URLSearchParams} given `id`, and `at` and `to`, the code points of the passage to show
 */
export async function read(main, index, given, signal) {
  const id = given.get("id") ?? "";
  const passage = given.has("at") ? [Number(given.get("at")), Number(given.get("to") ?? 0)] : null;
  fill(main, h("p.note.waiting", {}, "Reading…"));
  const [{ documents: [found] }, { windows, pages }] = await Promise.all([
    post(below(index.name, "documents", "get"), { ids: [id] }, signal),
    get(below(index.name, "documents", id, "windows"), signal),
  ]);
  // the service says why it does not return a document
  if (!found) return void (await get(below(index.name, "documents", id), signal));
  document.title = `${found.title || id} · docsplit`;
  const text = h("div.text");
  const beside = h("aside", { "aria-label": "Relations of the document" });
  fill(main, h("article.reading", {},
    h("header.lead", {},
      h("h1", {}, found.title || id),
      h("p.meta", {}, [found.title ? id : null, ...summary(found.metadata), pages.length > 0 && count(pages.length, "page"),
        count(found.text.length, "character")].filter(Boolean).map((each) => h("span", {}, each))),
      h("p.actions", {}, h("a", { href: address(index.name, "search", { like: id, unit: "documents" }) }, "Documents like this"),
        h("a", { href: address(index.name, "neighbourhood", { id }) }, "Citations as a graph"))),
    beside, text));
  const slice = slicer(joined(found.text));
  const words = (one, links = []) => content(index.name, slice, one, { links, pages, passage });
  fill(text, windows.map((one, number) => section(index.name, id, one, number, words(one))));
  reach(text, passage);
  const open = matchMedia("(min-width: 60rem)").matches;
  // relations come one after the other, so that the page never sends many requests at once
  await relations(beside, index.name, id, open, signal, (links) => {
    const places = citedPlaces(links);
    windows.forEach((one, number) => {
      const own = places.filter((place) => one.start <= place.start && place.end <= one.end);
      if (own.length) fill(text.children[number].lastChild, words(one, own));
    });
  });
  await labels(beside, text, found.text, open, (at) => reach(text, [at]), signal).catch((error) => {
    if (error.name !== "AbortError") beside.append(problem(error));
  });
}

function section(index, id, one, number, words) {
  return h("section.window", { id: `at-${one.start}`, "data-start": one.start, "data-end": one.end, "aria-label": `Part ${number + 1}` },
    h("p.edge", {}, h("span", {}, where(one) || `Part ${number + 1}`),
      h("a", { href: address(index, "search", { like: id, start: one.start, end: one.end }) }, "Passages like this")),
    h("div.words", {}, words));
}

/**
 * The text of a window with what stands in it: a link at each place that names another document, the
 * passage that somebody looks for, and where pages begin.
 */
function content(index, slice, { start, end }, { links, pages, passage }) {
  const [first, last] = passage ?? [0, 0];
  const inside = [...links.flatMap((one) => [one.start, one.end]), ...pages, first, last].filter((at) => start < at && at < end);
  const cuts = [...new Set([start, ...inside, end])].sort((one, other) => one - other);
  return cuts.slice(0, -1).map((from, place) => {
    const link = links.find((one) => one.start <= from && from < one.end);
    const text = slice(from, cuts[place + 1]);
    const shown = link ? h("a.cited", { href: address(index, "document", { id: link.id }), title: link.title ?? link.id }, text) : text;
    return [
      from > start && pages.includes(from) && h("span.page-start", {}, `page ${pages.lastIndexOf(from) + 1}`),
      first <= from && from < last ? h("mark", {}, shown) : shown,
    ];
  });
}

/** Scroll to a passage, or to the window that has its first character, and show which one it is. */
function reach(text, passage) {
  if (passage === null) return void window.scrollTo(0, 0);
  const [place] = passage;
  const found = [...text.children].find((one) => Number(one.id.slice(3)) <= place && place < Number(one.dataset.end));
  if (!found) return;
  found.classList.add("shown");
  (found.querySelector("mark") ?? found).scrollIntoView({ block: "center" });
}
