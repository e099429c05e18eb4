// How well something fits: a word, and behind it the figures.

import { h } from "./dom.js";

// from which figures on a word stands; whole documents resemble each other more than a document resembles a question
const FITS = { text: { strong: 0.5, fair: 0.3 }, document: { strong: 0.7, fair: 0.5 } };

/**
 * A word and its figures.
 * @param {number|null} value decides the word; without it there is none
 * @param {"text"|"document"} kind what was looked for
 * @param {[string, number|string][]} figures numbers with a fraction, and counts as texts
 * @param {...Node} further what follows
 */
export function scores(value, kind, figures, ...further) {
  const word = ["strong", "fair"].find((each) => value >= FITS[kind][each]) ?? "weak";
  return h("p.scores", {}, value !== null && h(`b.${word}`, {}, word), figures.map(([name, figure]) =>
    h("span", {}, `${name} `, typeof figure === "string" ? figure : rounded(figure))), further);
}

// no -0.00
const rounded = (figure) => (Math.round(100 * figure) / 100 + 0).toFixed(2);

/** What the words and the figures mean, for those who want to know it. */
export function legend(kind, order) {
  const { strong, fair } = FITS[kind];
  return h("details.score-legend", {}, h("summary", {}, "What the words and figures mean"),
    h("p.note", {}, `${order} From ${strong.toFixed(2)} on it is strong, from ${fair.toFixed(2)} on fair, below that weak. The words help to read a list; other models have other figures.`));
}
