// The citations around one document as a graph: what cites it on the left, what it cites on the
// right. The documents are lists; the lines between them are drawn behind.

import { address } from "./address.js";
import { below, get, post } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { draw } from "./lines.js";

// documents on each side
const MOST = 12;
const PREDICTED = 5;
// requests at a time for the links of the neighbours
const AT_ONCE = 3;

/** Show the view; `given` has `id`. */
export async function neighbourhood(main, index, given, signal) {
  const id = given.get("id") ?? "";
  fill(main, h("p.note.waiting", {}, "Reading…"));
  const { links } = await get(`${below(index.name, "documents", id, "links")}?limit=1000`, signal);
  const of = (direction) => links.filter((one) => one.direction === direction && one.exists);
  const sides = { cited_by: of("cited_by"), cites: of("cites") };
  const shown = { cited_by: sides.cited_by.slice(0, MOST), cites: sides.cites.slice(0, MOST) };
  const ids = [id, ...shown.cited_by.map((one) => one.id), ...shown.cites.map((one) => one.id)];
  const heads = await headsOf(index.name, ids, signal);
  const title = heads.get(id)?.title || id;
  document.title = `Citations of ${title} · docsplit`;

  const lines = h("svg.lines", { "aria-hidden": "true" });
  const centre = card(index.name, { id, title }, heads, "centre");
  const columns = Object.fromEntries(["cited_by", "cites"].map((side) =>
    [side, h("ul", {}, shown[side].map((one) => h("li", {}, card(index.name, one, heads, one.given ? "given" : "found"))))]));
  const graph = h("div.graph", {}, lines,
    column("Cited by", sides.cited_by, columns.cited_by),
    h("section.middle", {}, centre), column("Cites", sides.cites, columns.cites));
  fill(main,
    h("header.lead", {}, h("h1", {}, "Citations of ", h("a", { href: address(index.name, "document", { id }) }, title)),
      h("p.legend", {}, h("span.given", {}, "given with the document"), h("span.found", {}, "only in the text"), h("span.predicted", {}, "predicted"))),
    graph, predictor(index.name, id, columns, heads, signal, () => redraw()));
  const between = [];
  const redraw = () => draw(lines, graph, between);
  new ResizeObserver(() => (signal.aborted ? undefined : redraw())).observe(graph);
  await neighbours(index.name, ids, graph, between, signal, redraw);
}

async function headsOf(index, ids, signal) {
  const answer = await post(below(index, "documents", "get"), { ids: [...new Set(ids)], text: false }, signal);
  return new Map(answer.documents.map((one) => [one.id, one]));
}

function column(title, all, list) {
  return h("section", { "aria-label": title }, h("h2", {}, title, " ", h("small", {}, all.length)), list,
    all.length > MOST && h("p.note", {}, `${all.length - MOST} more are on the document's page.`),
    !all.length && h("p.note", {}, "None in this collection."));
}

function card(index, one, heads, kind, further) {
  const year = heads.get(one.id)?.metadata?.year;
  return h(`a.node.${kind}`, {
    href: address(index, "neighbourhood", { id: one.id }), "data-id": one.id, "aria-current": kind === "centre" ? "true" : null,
  }, h("strong", {}, one.title || one.id), h("span.facts", {}, [year, further].map((each) => each !== undefined && h("span", {}, each)), h("span.counts")));
}

/** The number of citations of each document, and the links between the neighbours. */
async function neighbours(index, ids, graph, between, signal, redraw) {
  const waiting = [...new Set(ids)];
  const known = new Set(waiting);
  const work = async () => {
    for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
      const { links } = await get(`${below(index, "documents", id, "links")}?limit=1000`, signal);
      const cited = links.filter((one) => one.direction === "cited_by").length;
      for (const node of graph.querySelectorAll(".node")) {
        if (node.dataset.id === id) node.querySelector(".counts").textContent = `cited by ${cited}`;
      }
      if (id === ids[0]) continue;
      between.push(...links.filter((one) => one.direction === "cites" && one.id !== ids[0] && known.has(one.id))
        .map((one) => ({ from: id, to: one.id })));
      redraw();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** A button that adds the citations that the index's head predicts. */
function predictor(index, id, columns, heads, signal, redraw) {
  const report = h("div", { "aria-live": "polite" });
  const button = h("button", {
    type: "button", id: "predict",
    onclick: async () => {
      button.disabled = true;
      try {
        const known = new Set([...document.querySelectorAll(".node")].map((node) => node.dataset.id));
        let added = 0;
        const hits = await post("similar", { index, id, mode: "citation", top_k: 100 }, signal);
        for (const [direction, list] of Object.entries(columns)) {
          const likely = hits.filter((one) => one.direction === direction && !known.has(one.id));
          for (const hit of likely.slice(0, PREDICTED)) {
            heads.set(hit.id, hit);
            const probability = `probability ${hit.link_probability.toFixed(2)}`;
            list.append(h("li", {}, card(index, hit, heads, "predicted", probability)));
            added += 1;
          }
        }
        fill(report, h("p.note", {}, `${count(added, "document")} without a link added, dashed.`));
        redraw();
      } catch (error) {
        if (error.name !== "AbortError") fill(report, problem(error));
        button.disabled = false;
      }
    },
  }, "Predict missing citations");
  return h("div.predict", {}, button, report);
}
