// Parts of texts. The service counts Unicode code points, JavaScript counts UTF-16 units.

import { h } from "./dom.js";

const WORD = /[\p{L}\p{N}_]+/gu;
// marking these in a passage says nothing
const COMMON = new Set(("a an and are as at be been but by can could did do does for from had has have how i if in into is " +
  "it its may more most no not of on one or our should so such than that the their them then there these they this to " +
  "was we were what when where which while who why will with would you your").split(" "));
// of a long query nearly every word would be marked
const MOST_WORDS = 40;

/** A function that gives the text between two code points. */
export function slicer(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (start, end) => text.slice(start, end);
  const points = Array.from(text);
  return (start, end) => points.slice(start, end).join("");
}

/** An excerpt without the line breaks of hard-wrapped text; short lines such as headings keep theirs. */
export function flow(text) {
  return text.trim().replace(/([^\n]{50,})\n(?=[^\s=*#-])/g, "$1 ").replace(/\n\s*\n\s*/g, "\n\n");
}

/** The words of a query that a passage should show, in lower case. */
export function wordsOf(query) {
  const all = new Set((query.match(WORD) ?? []).map((word) => word.toLowerCase()));
  const found = new Set([...all].filter((word) => word.length > 1 && !COMMON.has(word)));
  return found.size > MOST_WORDS ? new Set() : found;
}

/** A text as nodes, its words that are in a set as <mark>. */
export function marked(text, words) {
  if (!words.size) return [text];
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(WORD)) {
    if (words.has(match[0].toLowerCase())) {
      parts.push(text.slice(last, match.index), h("mark", {}, match[0]));
      last = match.index + match[0].length;
    }
  }
  return [...parts, text.slice(last)];
}

/** The words that two passages share and that say something. */
export function shared(one, other) {
  const [all, others] = [one, other].map((text) => new Set((text.match(WORD) ?? []).map((word) => word.toLowerCase())));
  return new Set([...all].filter((word) => word.length > 3 && others.has(word) && !COMMON.has(word) && !/^\d+$/.test(word)));
}

/** Where a passage stands: its page and its heading, if the service knows them. */
export function where(place) {
  return [place.heading, place.page && `page ${place.page}`].filter(Boolean).join(" · ");
}

/** Metadata as one short line. */
export function summary(metadata) {
  return Object.entries(metadata)
    .filter(([, value]) => value !== null && value !== "" && String(value).length <= 80)
    .slice(0, 5)
    .map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(", ") : value}`);
}
