// Panels of the service's state: indexes with their generations, trainings, and API keys.

import { address } from "./address.js";
import { get, Refused } from "./api.js";
import { count, h } from "./dom.js";

// classifiers that are asked for their trainings each time
const MOST = 20;
const RIGHTS = { read_indexes: "reads", write_indexes: "writes", use_classifiers: "classifies with", train_classifiers: "trains" };

/** An index, its documents and its generations; with several bundles also its own. */
export function indexRow(one, several) {
  if (one.refused) return h("li", {}, h("span", {}, one.name), h("span.note", {}, one.refused));
  const state = one.progress ? `re-embedding, ${one.progress.done} of ${one.progress.total}` :
    [count(one.documents, "document"), one.adaptation?.used && "adapted to its documents", several && (one.served_by ?? `${one.model}, which is not served`)].filter(Boolean).join(", ");
  return h("li", {}, h("a", { href: address(one.name, "search") }, one.name), h("span.note", {}, state),
    one.generations.length > 1 && h("ul.generations", { "aria-label": `Generations of ${one.name}` }, one.generations.map((each) => h("li", {},
      `${each.revision.slice(0, 12)}: ${count(each.documents, "document")}, ${each.state}${each.current ? ", served" : ""}`))));
}

/** What the classifiers learn now, or why they could not, by name. */
export async function trainings(names, refused, signal) {
  const found = new Map();
  for (const name of names.filter((one) => !refused.has(one)).slice(0, MOST)) {
    try {
      const { training } = await get(`classifiers/${encodeURIComponent(name)}`, signal);
      if (training) found.set(name, training.error ?? `${training.stage}, ${training.done} of ${count(training.total, "document")}`);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // the key may train it, but not look at it; or it is gone
      refused.add(name);
    }
  }
  return found;
}

/** The keys that this key may see, with their use. */
export function keyPanel(keys) {
  return h("section.panel.wide", { "aria-labelledby": "keys-title" }, h("h2", { id: "keys-title" }, "Keys ", h("small", {}, keys.length)),
    h("ul.rows", {}, keys.map((one) => h("li", {},
      h("span", {}, one.name, one.own && " (this tab)", state(one) && h("span.problem", {}, ` ${state(one)}`)),
      h("span.note", {}, `${count(one.requests, "request")}, ${count(one.tokens, "token")}`),
      h("p.rights", {}, [rights(one), rates(one)].filter(Boolean).join("; "))))),
    h("p.note", {}, "Requests and tokens since the start of the process that answered."));
}

function state(key) {
  if (key.revoked) return "revoked";
  if (key.expires === null) return "";
  const when = new Date(key.expires);
  return when < new Date() ? "expired" : `until ${when.toLocaleDateString("en-CA")}`;
}

function rights(key) {
  if (key.everything) return "may do everything";
  const found = Object.entries(RIGHTS).filter(([right]) => key[right].length).map(([right, verb]) => `${verb} ${key[right].join(", ")}`);
  return found.join("; ") || "embeds only";
}

function rates(key) {
  return [[key.requests_per_second, "requests/s"], [key.tokens_per_second, "tokens/s"]]
    .filter(([rate]) => rate !== null).map(([rate, unit]) => `at most ${rate.toLocaleString("en")} ${unit}`).join(", ");
}
