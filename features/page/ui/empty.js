// What the page shows when there is nothing to show, or when something went wrong.

import { address } from "./address.js";
import { h } from "./dom.js";
import { forgetKey, storedKey } from "./key.js";

/** The service has no index. */
export function noIndexes() {
  return h("section.empty", {},
    h("h1", {}, "No documents yet"),
    h("p", {}, "Create a collection below, then add files: PDF, Word, HTML, text and others."),
    commands("Fill a collection with a command", "docsplit-index FOLDER --index papers", "make demo"),
    storedKey() && h("p", {}, "Collections that your API key may not read are not shown."));
}

/** The index has no document. */
export function noDocuments(name) {
  return h("section.empty", {},
    h("h1", {}, "This collection is empty"),
    h("p", {}, h("a", { href: address(name, "add") }, "Add files or a text"), "."),
    commands("Put a folder into it with a command", `docsplit-index FOLDER --index ${name}`));
}

/** A search found nothing. */
export function noHits(filtered, words) {
  return h("section.empty", {},
    h("h2", {}, "Nothing found"),
    h("p", {}, filtered ? "No document passes the filters and fits the search. Remove a filter." :
      words ? "No document has these words. Search by meaning, or use other words." :
        "The collection has no document that fits."));
}

/** An error, with the service's own hint and a way to try again. */
export function problem(error, again) {
  const title = { 0: "No connection", 403: "Not allowed", 404: "Not found", 429: "Too busy", 503: "Not ready" };
  return h("section.empty", { role: "alert" },
    h("h2", {}, title[error.status] ?? "That did not work"),
    h("p.problem", {}, error.status === undefined ? "The page met an error of its own. Reload it." : error.message),
    again && h("button", { type: "button", onclick: again }, "Try again"),
    error.status === 403 && storedKey() && h("button", { type: "button", onclick: forgetKey }, "Use another key"));
}

/** Commands for those who run the service. */
function commands(title, ...texts) {
  return h("details", {}, h("summary", {}, title), texts.map((text) => h("pre.command", {}, h("code", {}, text))));
}
