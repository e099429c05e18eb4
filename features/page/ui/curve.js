// The accuracy of a classifier as its labels grow, with the interval of each measurement.

import { h } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 150;
const [LEFT, RIGHT, TOP, BOTTOM] = [34, 8, 8, 22];
// of the normal distribution, for 95 %
const Z = 1.96;
// a growth below this, between the latest trainings and those before, is none
const GROWTH = 0.01;
// trainings in each of the two groups, and documents between them
const GROUP = 3;
const APART = 15;

/** The measurements of a classifier: all its trainings, the oldest first. */
export function points(classifier) {
  return [...(classifier?.history ?? []), classifier ?? {}]
    .map((one) => ({ n: one.examples, accuracy: one.accuracy ?? one.subset_accuracy }))
    .filter((one) => one.n > 0 && one.accuracy !== undefined)
    .map((one) => ({ ...one, ...interval(one.accuracy, one.n) }));
}

/** The 95 % interval of a share of n (Wilson 1927). */
export function interval(share, n) {
  const middle = (share + (Z * Z) / (2 * n)) / (1 + (Z * Z) / n);
  const half = (Z * Math.sqrt((share * (1 - share)) / n + (Z * Z) / (4 * n * n))) / (1 + (Z * Z) / n);
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

/** The number of documents over which accuracy has not grown; 0 while it grows or too little is known. */
export function stalled(all) {
  if (all.length < 2 * GROUP) return 0;
  const [before, after] = [all.slice(-2 * GROUP, -GROUP), all.slice(-GROUP)];
  const mean = (some) => some.reduce((sum, one) => sum + one.accuracy, 0) / some.length;
  const documents = after[GROUP - 1].n - before[0].n;
  return documents >= APART && mean(after) - mean(before) < GROWTH ? documents : 0;
}

/** The curve as a picture, and its last point in words; with several labels, all of a document must be right. */
export function curve(all, several) {
  const what = several ? "Share of documents with all labels right" : "Accuracy";
  const last = all[all.length - 1];
  if (!last) return h("p.note", {}, `${what}: known after the first training.`);
  const words = `${percent(last.accuracy)} with ${last.n} documents (95 % interval ${percent(last.low)} to ${percent(last.high)})`;
  const most = Math.max(...all.map((one) => one.n));
  const x = (n) => LEFT + (n / most) * (WIDTH - LEFT - RIGHT);
  const y = (share) => TOP + (1 - share) * (HEIGHT - TOP - BOTTOM);
  const line = (some, of) => some.map((one, place) => `${place ? "L" : "M"}${x(one.n).toFixed(1)} ${y(of(one)).toFixed(1)}`).join("");
  const band = `${line(all, (one) => one.high)}${line([...all].reverse(), (one) => one.low).replace("M", "L")}Z`;
  return h("figure.curve", {},
    h("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${what} by the number of labelled documents: ${words}` },
      [0, 0.5, 1].map((share) => [
        h("path.grid", { d: `M${LEFT} ${y(share)}H${WIDTH - RIGHT}` }),
        h("text", { x: LEFT - 5, y: y(share) + 4, "text-anchor": "end" }, percent(share))]),
      h("text", { x: WIDTH - RIGHT, y: HEIGHT - 6, "text-anchor": "end" }, `${most} documents`),
      h("path.band", { d: band }), h("path.line", { d: line(all, (one) => one.accuracy) }),
      all.map((one) => [
        h("path.bar", { d: `M${x(one.n).toFixed(1)} ${y(one.low).toFixed(1)}V${y(one.high).toFixed(1)}` }),
        h("circle", { cx: x(one.n).toFixed(1), cy: y(one.accuracy).toFixed(1), r: 2.6 })])),
    h("figcaption", {}, `${what} `, h("b", {}, percent(last.accuracy)), ` (${percent(last.low)} to ${percent(last.high)})`));
}

function percent(share) {
  return `${Math.round(100 * share)} %`;
}
