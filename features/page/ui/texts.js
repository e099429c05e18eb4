// Parts of texts. The service counts Unicode code points, JavaScript counts UTF-16 units.

import { h } from "./dom.js";

// As docsplit/ranking/words.py has them: words of scripts without blanks are runs of three letters or of two syllables.
const LETTERS = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u30a0-\\u30ff";
const SYLLABLES = "\\u3005-\\u3007\\u3040-\\u309f\\u3400-\\u9fff\\uac00-\\ud7a3\\uf900-\\ufaff";
const RUN = new RegExp(`([${LETTERS}]+)|([${SYLLABLES}]+)|(?:(?![${LETTERS}${SYLLABLES}])[\\p{L}\\p{M}\\p{N}_\\p{Cf}])+`, "gu");
const UNSPACED = new RegExp(`^[${LETTERS}${SYLLABLES}]`, "u");
// accents, vowels of Arabic and Hebrew, and characters without a width
const DROPPED = /[\u0300-\u0305\u0307-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0640\p{Cf}]/gu;
const LATIN = { ø: "o", ł: "l", đ: "d", ð: "d", ħ: "h", ŧ: "t", ı: "i", æ: "ae", œ: "oe", þ: "th", ß: "ss" };
// marking these in a passage says nothing
const COMMON = new Set(("a an and are as at be been but by can could did do does for from had has have how i if in into is " +
  "it its may more most no not of on one or our should so such than that the their them then there these they this to " +
  "was we were what when where which while who why will with would you your").split(" "));
// of a long query nearly every word would be marked
const MOST_WORDS = 40;
// characters: a shorter line ends where its author wanted it to end, one between both does if a sentence may
// begin after it, and a longer one is a paragraph
const [SHORT_LINE, LONG_LINE, LONGEST_LINE] = [30, 50, 160];
const SENTENCE_END = /[.!?:;]["'”’»)\]]*\s*$/;

/** A function that gives the text between two code points. */
export function slicer(text) {
  if (!/[\ud800-\udbff]/.test(text)) return (start, end) => text.slice(start, end);
  const points = Array.from(text);
  return (start, end) => points.slice(start, end).join("");
}

/**
 * A text with a blank in place of each line break inside a paragraph of hard-wrapped text, as PDFs have it;
 * each character keeps its place. Short lines, such as headings, keep their breaks.
 * @param {boolean} excerpt whether it may begin inside a line, and is shown without further blanks of indented lines
 */
export function joined(text, excerpt = false) {
  const lines = text.split("\n");
  let made = lines[0];
  let widest = 0;
  for (let at = 1; at < lines.length; at += 1) {
    const [line, next] = [lines[at - 1], lines[at]];
    widest = Math.max(widest, line.length);
    const on = (excerpt || !indent(line)) && goesOn(line, next, Math.max(widest, next.length), excerpt && at === 1);
    if (!on) widest = 0;
    made += `${on ? " " : "\n"}${next}`;
  }
  return made;
}

/** Whether a line of hard-wrapped text goes on in the next one; it may be the end of one. */
function goesOn(line, next, widest, end) {
  if (line.length > LONGEST_LINE || indent(line) !== indent(next) || !/^[^\s=*#-]/.test(next.trim())) return false;
  const length = line.trim().length;
  if (length < LONG_LINE && !(/^\s*\p{Ll}/u.test(next) && (end || length >= SHORT_LINE))) return false;
  // the last line of a paragraph has room for the next word, or stands before a heading
  return !SENTENCE_END.test(line) ||
    (line.length + next.trim().split(" ")[0].length >= widest && (next.trim().length >= LONG_LINE || SENTENCE_END.test(next)));
}

const indent = (line) => /^\s*/.exec(line)[0];

/** An excerpt without the line breaks of hard-wrapped text. */
export function flow(text) {
  return joined(text, true).trim().replace(/\n\s*\n\s*/g, "\n\n");
}

/** The beginning of a text up to the end of a word. */
export function cut(text, most) {
  return text.length <= most ? text : `${text.slice(0, most).replace(/\s+\S*$/, "")} …`;
}

/** The words of a text with their places; with `shorter` also the shorter runs that a query may have. */
function* pieces(text, shorter = false) {
  for (const run of text.matchAll(RUN)) {
    const longest = Math.min(run[1] ? 3 : run[2] ? 2 : Infinity, run[0].length);
    const least = shorter && (run[1] || run[2]) ? Math.max(1, longest - 1) : longest;
    for (let at = run.index; at + least <= run.index + run[0].length; at += 1) {
      for (let end = at + least; end <= Math.min(at + longest, run.index + run[0].length); end += 1) {
        yield [at, end, folded(text.slice(at, end))];
      }
    }
  }
}

function folded(word) {
  if (UNSPACED.test(word)) return word;
  const plain = word.normalize("NFKD").toLowerCase().replace(DROPPED, "");
  return plain.replace(/[^\0-\x7f]/g, (letter) => LATIN[letter] ?? letter).normalize("NFC");
}

const wordIn = (text, shorter) => new Set([...pieces(text, shorter)].map(([, , word]) => word));
const says = (word, least) => (word.length >= least || UNSPACED.test(word)) && !COMMON.has(word);

/** The words of a query that a passage should show. */
export function wordsOf(query) {
  const found = new Set([...wordIn(query)].filter((word) => says(word, 2)));
  return found.size > MOST_WORDS ? new Set() : found;
}

/** A text as nodes, its words that are in a set as <mark>. */
export function marked(text, words) {
  const parts = [];
  let last = 0;
  for (const [start, end] of spans(text, words)) {
    parts.push(text.slice(last, start), h("mark", {}, text.slice(start, end)));
    last = end;
  }
  return [...parts, text.slice(last)];
}

/** Where a text has some words, without overlaps. */
export function spans(text, words) {
  const found = [];
  for (const [start, end, word] of words.size ? pieces(text, true) : []) {
    if (!words.has(word)) continue;
    const before = found.at(-1);
    if (before && start < before[1]) before[1] = Math.max(end, before[1]);
    else found.push([start, end]);
  }
  return found;
}

/** The words that two passages share and that say something. */
export function shared(one, other) {
  const others = wordIn(other);
  return new Set([...wordIn(one)].filter((word) => others.has(word) && says(word, 4) && !/^\d+$/.test(word)));
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
    .map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(", ") : String(value).replace(/^(\d{4}-\d\d-\d\d)T[\d:.]+(Z|[+-]\d\d:\d\d)?$/, "$1")}`);
}
