// The view that searches: the form, and the results below it.

import { address, go } from "./address.js";
import { below, get, post } from "./api.js";
import { area, areaChip } from "./area.js";
import { count, fill, h, say } from "./dom.js";
import { noDocuments, noHits, problem } from "./empty.js";
import { fileChooser, takeFiles } from "./dropped.js";
import { compile, filterBar } from "./filters.js";
import { ORDER } from "./relations.js";
import { documentHits, facetBar, passageHits } from "./results.js";
import { legend } from "./scores.js";
import { wordsOf } from "./texts.js";

const MODES = {
  passages: { hybrid: "words and meaning", cosine: "meaning", words: "words" },
  documents: {
    hybrid: "words and meaning", cosine: "meaning", words: "words",
    cites: "what it should cite", cited_by: "what should cite it",
  },
};
const CITING = new Set(["cites", "cited_by"]);
const FACETS = new Set(["string", "strings", "integer", "boolean"]);
const STEPS = [10, 30, 100];
// a longer text does not fit an address: it is kept until the page is left
const LONGEST = 3000;
const longTexts = [];
// where the page was scrolled to when somebody asked for more results
let more = null;

/**
 * Show the view.
 * @param {HTMLElement} main
 * @param {object} index as GET /indexes/{name} describes it
 * @param {URLSearchParams} given the parameters of the address
 * @param {AbortSignal} signal ends when another view is shown
 */
export async function search(main, index, given, signal) {
  const state = stateOf(given);
  const results = h("section.results", { "aria-label": "Results" });
  const goOn = (changes) => go(address(index.name, "search", parameters({ ...state, ...changes })));
  fill(main, h("h1.quiet-read", {}, `Search ${index.name}`), form(state, goOn),
    filterBar(index.fields, state.filters, (filters) => goOn({ filters, n: STEPS[0] }),
      areaChip(index.name, state.area, () => goOn({ area: "", n: STEPS[0] })), () => known(index, signal)), results);
  if (!index.documents) return void fill(results, noDocuments(index.name));
  if (state.lost) return void fill(results, h("p.note", {}, "That text was too long for a link. Paste it again."));
  if (!state.text.trim() && !state.like) return void (await start(results, index, signal));
  await run(results, index, state, goOn, signal);
}

function stateOf(given) {
  const unit = given.get("unit") === "documents" ? "documents" : "passages";
  const mode = given.get("mode") in MODES[unit] ? given.get("mode") : "hybrid";
  const kept = given.get("text");
  return {
    unit, mode,
    text: kept === null ? given.get("q") ?? "" : longTexts[Number(kept)] ?? "",
    lost: kept !== null && longTexts[Number(kept)] === undefined,
    like: given.get("like") ?? "",
    // with like: a part of that document
    start: given.get("start"),
    end: given.get("end"),
    filters: given.getAll("f"),
    area: given.get("area") ?? "",
    n: STEPS.find((step) => step === Number(given.get("n"))) ?? STEPS[0],
  };
}

function parameters(state) {
  const long = state.text.length > LONGEST && !state.like;
  if (long && !longTexts.includes(state.text)) longTexts.push(state.text);
  return {
    q: state.like || long ? "" : state.text,
    text: long ? longTexts.indexOf(state.text) : "",
    like: state.like,
    start: partial(state) ? state.start : "",
    end: partial(state) ? state.end : "",
    unit: state.unit === "passages" ? "" : state.unit,
    mode: state.mode === "hybrid" ? "" : state.mode,
    n: state.n === STEPS[0] ? "" : state.n,
    f: state.filters,
    area: state.area,
  };
}

/** Whether the search is for passages like a part of a document. */
function partial(state) {
  return state.like !== "" && state.unit === "passages" && Boolean(state.end);
}

function form(state, goOn) {
  const box = h("textarea", {
    id: "query", rows: 2, name: "query", "aria-keyshortcuts": "/", spellcheck: "false",
    placeholder: "A question, a sentence, or a whole document",
  });
  box.value = state.text;
  const submit = (changes = {}) => goOn({ text: box.value, like: box.value.trim() ? "" : state.like, n: STEPS[0], ...changes });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      submit();
    }
  });
  const report = h("div.dropped", { "aria-live": "polite" });
  return takeFiles(box, report, h("form.search", { role: "search", onsubmit: (event) => { event.preventDefault(); submit(); } },
    state.like && h("p.like", {}, partial(state) ? "Like a part of the document " : "Like the document ", h("strong", {}, state.like),
      h("button.plain", { type: "button", "aria-label": "Search for a text instead", onclick: () => goOn({ like: "" }) }, "×")),
    h("label.quiet-read", { for: "query" }, "Text to search for"),
    box,
    h("div.options", {},
      h("fieldset.switch", {}, h("legend.quiet-read", {}, "What to find"), Object.keys(MODES).map((unit) =>
        h("label", {}, h("input", {
          type: "radio", name: "unit", id: `unit-${unit}`, value: unit, checked: unit === state.unit,
          onchange: () => submit({ unit, mode: state.mode in MODES[unit] ? state.mode : "hybrid" }),
        }), h("span", {}, unit === "passages" ? "Passages" : "Documents")))),
      h("label.field", {}, "by ", h("select", { id: "mode", onchange: (event) => submit({ mode: event.target.value }) },
        Object.entries(MODES[state.unit]).map(([value, title]) =>
          h("option", { value, selected: value === state.mode }, title)))),
      fileChooser(box, report),
      h("button.main", { type: "submit", id: "go" }, "Search")),
    report));
}

async function start(results, index, signal) {
  const page = await get(`${below(index.name, "documents")}?limit=8`, signal);
  fill(results, h("div.start", {},
    h("h2", {}, `${count(index.documents, "document")} to search`),
    h("p.note", {}, "Write above what you look for. A whole document works too: paste it, or drop a file. Or start from a document:"),
    h("ul.seeds", {}, page.documents.map((one) => h("li", {},
      h("a", { href: address(index.name, "search", { like: one.id, unit: "documents" }) }, one.title || one.id))))));
}

/** Declared fields whose values the service counts. */
function countable(index) {
  return Object.keys(index.fields).filter((name) => FACETS.has(index.fields[name])).slice(0, 8);
}

/** The values that documents of the index have in these fields. */
async function known(index, signal) {
  const facets = countable(index);
  return facets.length ? (await post("similar", { index: index.name, text: "a", mode: "words", top_k: 1, facets }, signal)).facets : {};
}

async function run(results, index, state, goOn, signal) {
  fill(results, h("p.note.waiting", {}, "Searching…"));
  results.setAttribute("aria-busy", "true");
  try {
    const began = performance.now();
    const { hits, facets } = await ask(index, state, signal);
    const took = Math.round(performance.now() - began);
    const words = state.like ? new Set() : wordsOf(state.text);
    const show = state.unit === "passages" ? passageHits : documentHits;
    const next = STEPS[STEPS.indexOf(state.n) + 1];
    fill(results,
      h("p.found", { id: "found" }, hits.length ? `${count(hits.length, "document")} in ${count(took, "ms", "ms")}` : null),
      hits.length > 0 && legend(state.unit === "documents" && state.like ? "document" : "text", explained(state)),
      facets && facetBar(facets, index.fields, state.filters, (filters) => goOn({ filters, n: STEPS[0] })),
      hits.length ? show(index.name, hits, { words, state, signal }) : noHits(state.filters.length > 0 || Boolean(state.area), state.mode === "words"),
      hits.length === state.n && next && h("button.more", { type: "button", id: "more", onclick: () => {
        more = { top: scrollY, hits: hits.length };
        goOn({ n: next });
      } }, "Show more"));
    if (more !== null) {
      scrollTo(0, more.top);
      results.querySelector(`.hits > li:nth-child(${more.hits + 1}) h2 a`)?.focus({ preventScroll: true });
    }
    say(`${count(hits.length, "document")} found.`);
  } catch (error) {
    if (error.name !== "AbortError") fill(results, problem(error, () => goOn({})));
  } finally {
    results.removeAttribute("aria-busy");
    more = null;
  }
}

/** By what the hits are ordered. */
function explained({ unit, mode }) {
  if (unit === "documents") return CITING.has(mode) ? "The most probable citation comes first; the word is about the probability." : ORDER;
  return "The best “match” comes first: meaning and words, or the one that you chose, from 0 to 1. The word is about the match.";
}

async function ask(index, state, signal) {
  const body = { index: index.name, top_k: state.n, mode: state.mode };
  if (state.like) body.id = state.like;
  else body.text = state.text;
  if (partial(state)) Object.assign(body, { start: Number(state.start), end: Number(state.end) });
  const filter = compile(state.filters, index.fields);
  if (filter) body.filter = filter;
  if (state.area) body.area = area(state.area);
  if (state.unit === "passages") {
    return { hits: await post("passages", { ...body, passages: 3, snippet_characters: 420 }, signal) };
  }
  if (CITING.has(state.mode)) {
    body.mode = "citation";
    body.direction = state.mode;
  }
  const facets = countable(index);
  const answer = await post("similar", { ...body, facets, explain: true }, signal);
  return facets.length ? answer : { hits: answer };
}
