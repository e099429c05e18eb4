// The view that reads a document: its text window by window, and beside it its relations.

import { address } from "./address.js";
import { below, get, post } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { labels } from "./labels.js";
import { citedPlaces, relations } from "./relations.js";
import { slicer, summary, where } from "./texts.js";


/**
 * Show the view.
 * @param {URLSearchParams} given `id`, and `at`, a code point to scroll to
 */
export async function read(main, index, given, signal) {
  const id = given.get("id") ?? "";
  fill(main, h("p.note.waiting", {}, "Reading…"));
  const [{ documents: [found] }, { windows }] = await Promise.all([
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
      h("p.meta", {}, [found.title ? id : null, ...summary(found.metadata), count(windows.length, "window"),
        count(found.text.length, "character")].filter(Boolean).map((each) => h("span", {}, each))),
      h("p.actions", {}, h("a", { href: address(index.name, "search", { like: id, unit: "documents" }) }, "Documents like this"),
        h("a", { href: address(index.name, "neighbourhood", { id }) }, "Citations as a graph"))),
    beside, text));
  const slice = slicer(found.text);
  fill(text, windows.map((one, number) => section(index.name, id, one, windows[number - 1], number, slice)));
  reach(text, given.get("at"));
  const open = matchMedia("(min-width: 60rem)").matches;
  // relations come one after the other, so that the page never sends many requests at once
  await relations(beside, index.name, id, open, signal, (links) => {
    const places = citedPlaces(links);
    windows.forEach((one, number) => {
      const own = places.filter((place) => one.start <= place.start && place.end <= one.end);
      if (own.length) fill(text.children[number].lastChild, linked(index.name, slice, one, own));
    });
  });
  await labels(beside, text, found.text, open, (at) => reach(text, at), signal).catch((error) => {
    if (error.name !== "AbortError") beside.append(problem(error));
  });
}

function section(index, id, one, former, number, slice) {
  const place = where(one);
  const fresh = place && (!former || place !== where(former));
  return h("section.window", { id: `at-${one.start}`, "data-start": one.start, "data-end": one.end, "aria-label": `Window ${number + 1}` },
    h("p.edge", {}, h("span", {}, fresh ? place : `Window ${number + 1}`),
      h("a", { href: address(index, "search", { like: id, start: one.start, end: one.end }) }, "Passages like this")),
    h("div.words", {}, slice(one.start, one.end)));
}

/** The text of a window, with a link at each place that names another document. */
function linked(index, slice, window, places) {
  const parts = [];
  let last = window.start;
  for (const place of places) {
    if (place.start < last) continue;
    parts.push(slice(last, place.start), h("a.cited", {
      href: address(index, "document", { id: place.id }), title: place.title ?? place.id,
    }, slice(place.start, place.end)));
    last = place.end;
  }
  return [...parts, slice(last, window.end)];
}

/** Scroll to the window that has a character, and show which one it is. */
function reach(text, at) {
  if (at === null) return void window.scrollTo(0, 0);
  const place = Number(at);
  const found = [...text.children].find((one) => Number(one.id.slice(3)) <= place && place < Number(one.dataset.end));
  if (!found) return;
  found.classList.add("shown");
  found.scrollIntoView({ block: "center" });
}
