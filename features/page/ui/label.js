// The view that labels documents for a classifier: chooses or creates one, then shows its queue.

import { address, go } from "./address.js";
import { get } from "./api.js";
import { Desk } from "./desk.js";
import { count, fill, h } from "./dom.js";
import { labelled } from "./given.js";

/**
 * Show the view.
 * @param {URLSearchParams} given `classifier`, and `l`, the labels of a new one, and `several`
 */
export async function label(main, index, given, signal) {
  const name = given.get("classifier");
  const { classifiers, untrained } = await get("classifiers", signal);
  if (!name) return void fill(main, h("h1", {}, "Label documents of ", h("em", {}, index.name)), choice(index.name, classifiers, untrained));
  document.title = `Label ${name} · docsplit`;
  fill(main, h("p.note.waiting", {}, "Reading…"));
  const trained = classifiers.includes(name) ? await get(`classifiers/${encodeURIComponent(name)}`, signal) : null;
  if (trained?.bundled) {
    return void fill(main, h("section.empty", {}, h("h1", {}, name),
      h("p", {}, "This classifier is part of the bundle and takes no labels. ", h("a", { href: address(index.name, "label") }, "Choose another one, or create one"), ".")));
  }
  await new Desk(index, name, trained, await labelled(name, signal), { labels: given.getAll("l"), several: given.has("several") }, signal).open(main);
}

function choice(index, classifiers, untrained) {
  const row = (name, note) => h("li", {}, h("a", { href: address(index, "label", { classifier: name }) }, name), h("span.note", {}, note));
  return [
    h("section", { "aria-labelledby": "classifiers-title" }, h("h2", { id: "classifiers-title" }, "Classifiers"),
      classifiers.length + untrained.length ?
        h("ul.rows", {}, untrained.map((name) => row(name, "not trained yet")), classifiers.map((name) => row(name, ""))) :
        h("p.note", {}, "There is none yet.")),
    create(index),
  ];
}

function create(index) {
  const name = h("input", {
    id: "new-classifier", required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,62}", autocomplete: "off", spellcheck: "false",
    title: "Lower-case letters, digits, - and _; the first is a letter or a digit",
  });
  const labels = h("input", { id: "new-labels", required: true, autocomplete: "off", placeholder: "sport, money, other" });
  const several = h("input", { id: "several", type: "checkbox" });
  return h("form.simple", {
    "aria-labelledby": "create-title",
    onsubmit: (event) => {
      event.preventDefault();
      const given = new Set(labels.value.split(",").map((each) => each.trim()).filter(Boolean));
      go(address(index, "label", { classifier: name.value, l: [...given], several: several.checked }));
    },
  }, h("h2", { id: "create-title" }, "A new classifier"),
  h("label", { for: "new-classifier" }, "Name"), name,
  h("label", { for: "new-labels" }, "Labels, separated by commas"), labels,
  h("label.keys", {}, several, " A document may have several of them, or none"),
  h("p.note", {}, `The page then shows documents to label. It trains the classifier as soon as two labels have ${count(2, "document")} each.`),
  h("p.actions", {}, h("button.main", { type: "submit" }, "Start")));
}
