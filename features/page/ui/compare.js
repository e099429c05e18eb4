// The view that compares two documents: their most similar windows, side by side.

import { address, go } from "./address.js";
import { below, post } from "./api.js";
import { count, fill, h } from "./dom.js";
import { flow, marked, shared, slicer, where } from "./texts.js";


/** Show the view; `given` has `id` and `other`. */
export async function compare(main, index, given, signal) {
  const ids = [given.get("id") ?? "", given.get("other") ?? ""];
  if (ids.includes("")) return void fill(main, h("h1.quiet-read", {}, "Compare two documents"), choose(index.name, ids));
  fill(main, h("p.note.waiting", {}, "Comparing…"));
  const [found, documents] = await Promise.all([
    post(below(index.name, "compare"), { id: ids[0], other: ids[1], top_k: 12 }, signal),
    read(index.name, ids, signal),
  ]);
  document.title = `${ids.map((id) => documents.get(id)?.title || id).join(" and ")} · docsplit`;
  fill(main,
    h("h1.quiet-read", {}, "Two documents compared"),
    h("div.pair.heads", {}, ids.map((id) => h("h2", {},
      h("a", { href: address(index.name, "document", { id }) }, documents.get(id)?.title || id)))),
    h("p.found", {}, "Whole documents: cosine ", h("b", {}, found.cosine.toFixed(2)),
      `. Below: ${count(found.pairs.length, "pair")} of windows, the most similar first. Words that both have are marked.`),
    h("ol.pairs.long", {}, found.pairs.map((pair) => {
      const places = [pair.query, pair.document];
      const texts = places.map((place, side) => flow(documents.get(ids[side])?.slice(place.start, place.end) ?? ""));
      const words = shared(...texts);
      return h("li", {},
        h("p.scores", {}, h("span", {}, "cosine ", h("b", {}, pair.cosine.toFixed(2)))),
        h("div.pair", {}, places.map((place, side) => half(index.name, ids[side], place, marked(texts[side], words)))));
    })));
}

async function read(index, ids, signal) {
  const found = new Map();
  let wanted = [...new Set(ids)];
  while (wanted.length) {
    const answer = await post(below(index, "documents", "get"), { ids: wanted }, signal);
    for (const one of answer.documents) found.set(one.id, { title: one.title, slice: slicer(one.text) });
    wanted = answer.remaining;
  }
  return found;
}

function half(index, id, place, text) {
  return h("figure", {},
    h("figcaption.where", {}, h("a", { href: address(index, "document", { id, at: place.start }) },
      where(place) || `from character ${place.start.toLocaleString("en")}`)),
    h("blockquote", {}, text));
}

function choose(index, [id, other]) {
  const fields = [["id", "One document", id], ["other", "The other document", other]].map(([name, title, value]) => {
    const input = h("input", { type: "text", name, id: name, required: true, maxlength: 512, value });
    return [h("label", { for: name }, title), input];
  });
  return h("form.simple", {
    onsubmit: (event) => {
      event.preventDefault();
      const [one, two] = fields.map(([, input]) => input.value);
      go(address(index, "compare", { id: one, other: two }));
    },
  }, h("h2", {}, "Compare two documents"), h("p.note", {}, "Give the ids of two documents of this index, or choose Compare beside a document."),
  fields, h("p.actions", {}, h("button.main", { type: "submit" }, "Compare")));
}
