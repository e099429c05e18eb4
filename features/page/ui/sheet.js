// What lies on the desk of a person who labels: the document, the buttons, and the progress beside it.

import { address } from "./address.js";
import { count, h } from "./dom.js";
import { joined, slicer, summary, where } from "./texts.js";

/** The parts of the desk by name; `desk.js` fills them and listens to them. */
export function parts(name, index, several) {
  const button = (title, key) => h("button", { type: "button", "aria-keyshortcuts": key }, title, " ", h("kbd", {}, key));
  const made = {
    labels: h("div.labels-bar", { role: "group", "aria-label": "Labels" }),
    save: button("Save", "Enter"), skip: button("Skip", "s"), undo: button("Undo", "u"), problem: h("div"),
    keys: h("input", { type: "checkbox", id: "keys", checked: true }),
    document: h("article.labelling"), counts: h("dl.labels"), curve: h("div"), state: h("p.note", { role: "status" }), failed: h("div"),
    train: h("button", { type: "button" }, "Train now"),
    asLines: h("button", { type: "button", id: "save-jsonl" }, "JSONL with texts"), asTable: h("button", { type: "button", id: "save-csv" }, "CSV"),
    fresh: h("input", { id: "fresh-label", maxlength: 128, autocomplete: "off" }),
    wanted: h("input", { id: "wanted", type: "search", autocomplete: "off" }),
  };
  const small = (id, title, input, act) => h("form.small", {}, h("label", { for: id }, title), h("div", {}, input, h("button", { type: "submit" }, act)));
  made.add = small("fresh-label", "Another label", made.fresh, "Add");
  made.look = small("wanted", "Look for documents to label", made.wanted, "Look");
  made.bar = h("div.labels-dock", {}, made.labels, h("div.actions", {}, several && made.save, made.skip, made.undo, h("label.keys", {}, made.keys, " Keys")));
  if (several) made.bar.append(h("p.note", {}, "Choose every label that fits, then save. A document to which none fits is saved without one."));
  made.head = h("h1", {}, "Label for ", h("em", {}, name), " ", h("a", { href: address(index, "label") }, "Another classifier"));
  made.side = h("aside", { "aria-label": "Progress" },
    made.counts, made.curve, made.state, made.failed, h("p.actions", {}, made.train), made.add, made.look,
    h("section", {}, h("h2", {}, "Download the labels"), h("p.actions", {}, made.asLines, made.asTable)));
  return made;
}

/** A document window by window, and what the classifier thinks of it. */
export function reading(index, found, trained, why) {
  const slice = slicer(joined(found.text));
  const guess = (trained?.outputs && found.probabilities) ?? [];
  return [
    h("header.lead", {}, h("h2", {}, h("a", { href: address(index, "document", { id: found.id }) }, found.title || found.id)),
      h("p.meta", {}, [found.title ? found.id : null, ...summary(found.metadata), count(found.text.length, "character")].filter(Boolean)
        .map((each) => h("span", {}, each))),
      guess.length > 0 && h("p.scores", {}, "The classifier says ", guess.map(({ label, score }) => h("span", {}, `${label} `, h("b", {}, score.toFixed(2)))),
        h("button.plain", { type: "button", id: "why", "aria-keyshortcuts": "w", onclick: why }, "Why? ", h("kbd", {}, "w")))),
    h("div.text", {}, found.windows.map((one, place) => h("section.window", { "data-start": one.start, "data-end": one.end, "aria-label": `Part ${place + 1}` },
      h("p.edge", {}, h("span", {}, where(one) || `Part ${place + 1}`)), h("div.words", {}, slice(one.start, one.end))))),
  ];
}
