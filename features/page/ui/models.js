// The bundles of a service that serves several.

import { get } from "./api.js";
import { fill, h } from "./dom.js";

const MIB = 2 ** 20;

/**
 * A choice of the bundle that embeds the documents of a new index; nothing if there is only one.
 * @returns {{place: HTMLElement, value: () => string|undefined}} where it is shown, and what was chosen
 */
export function modelChoice() {
  const place = h("div.model-choice");
  const chosen = h("select", { id: "new-model" });
  get("info").then(({ models }) => {
    if (models.length < 2) return;
    fill(chosen, models.map(({ name, dimensions, window_tokens: tokens }) => h("option", { value: name }, `${name} (${dimensions} dimensions, reads ${tokens} tokens at a time)`)));
    fill(place, h("label", { for: "new-model" }, "Model; a collection keeps the one that it was created with"), chosen);
  }, () => fill(place, h("p.note", {}, "The models are unknown: the collection gets the first one.")));
  return { place, value: () => chosen.value || undefined };
}

/** The models with what they take; null if there is only one. */
export function modelPanel(models) {
  return models.length > 1 && h("section.panel", {}, h("h2", {}, "Models ", h("small", {}, models.length)),
    h("ul.rows", {}, models.map((one, place) => h("li", {}, h("span", {}, one.name, place === 0 && " (the default)"),
      h("span.note", {}, `${one.dimensions} dimensions, ${one.state}, about ${Math.round(one.memory_bytes / MIB).toLocaleString("en")} MiB`)))));
}
