// The view that compares two documents: their most similar parts, side by side.

import { address, go } from "./address.js";
import { below, get, post } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { legend, scores } from "./scores.js";
import { flow, marked, shared, slicer, where } from "./texts.js";

// documents that complete a title
const SUGGESTED = 100;

/** Show the view; `given` has `id` and `other`. */
export async function compare(main, index, given, signal) {
  const ids = [given.get("id") ?? "", given.get("other") ?? ""];
  if (ids.includes("")) return void fill(main, h("h1.quiet-read", {}, "Compare two documents"), choose(index.name, ids, signal));
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
    scores(found.cosine, "document", [["meaning of the whole documents", found.cosine]]),
    h("p.found", {}, `Below: ${count(found.pairs.length, "pair")} of parts, the most similar first. Words that both have are marked.`),
    legend("document", "Pairs and whole documents are compared by their meaning."),
    h("ol.pairs.long", {}, found.pairs.map((pair) => {
      const places = [pair.query, pair.document];
      const texts = places.map((place, side) => flow(documents.get(ids[side])?.slice(place.start, place.end) ?? ""));
      const words = shared(...texts);
      return h("li", {},
        scores(pair.cosine, "document", [["meaning", pair.cosine]]),
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
      where(place) || "Show it in the document")),
    h("blockquote", {}, text));
}

/** A form that takes the titles or the names of two documents; the browser completes them. */
function choose(index, [id, other], signal) {
  const known = new Map();
  const list = h("datalist", { id: "titles" });
  const report = h("div", { "aria-live": "polite" });
  const add = (documents) => {
    for (const one of documents) {
      // several documents may have one title
      const title = one.title && known.has(one.title) && known.get(one.title) !== one.id ? `${one.title} (${one.id})` : one.title || one.id;
      if (![...known.values()].includes(one.id)) known.set(title, one.id);
    }
    fill(list, [...known.keys()].map((title) => h("option", { value: title })));
  };
  const idOf = async (text) => {
    if (known.has(text)) return known.get(text);
    const { documents: [found] } = await post(below(index, "documents", "get"), { ids: [text], text: false }, signal);
    return found?.id;
  };
  // a large collection has more documents than the first ones
  const suggest = async (text) => {
    if (text.trim() && !known.has(text)) add(await post("similar", { index, text, mode: "words", top_k: SUGGESTED }, signal));
  };
  const fields = [["id", "One document", id], ["other", "The other document", other]].map(([name, title, value]) => {
    const input = h("input", {
      type: "text", name, id: name, required: true, maxlength: 4096, value, list: "titles", autocomplete: "off",
      oninput: () => suggest(input.value).catch(() => undefined),
    });
    return [h("label", { for: name }, title), input];
  });
  get(`${below(index, "documents")}?limit=${SUGGESTED}`, signal).then(({ documents }) => add(documents), () => undefined);
  return h("form.simple", {
    onsubmit: async (event) => {
      event.preventDefault();
      const texts = fields.map(([, input]) => input.value.trim());
      try {
        const [one, two] = await Promise.all(texts.map(idOf));
        const wrong = texts[[one, two].indexOf(undefined)];
        fill(report, wrong && h("p.problem", {}, `No document has the title “${wrong}”. Choose one of those that appear while you type.`));
        if (!wrong) go(address(index, "compare", { id: one, other: two }));
      } catch (error) {
        if (error.name !== "AbortError") fill(report, problem(error));
      }
    },
  }, h("h2", {}, "Compare two documents"), h("p.note", {}, "Begin to type a title, or choose Compare beside a document."),
  fields, list, report, h("p.actions", {}, h("button.main", { type: "submit" }, "Compare")));
}
