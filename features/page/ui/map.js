// The view of the map: every document of an index in two dimensions, and its topics.

import { address } from "./address.js";
import { below, get, later, post, send } from "./api.js";
import { area, simplified } from "./area.js";
import { choose } from "./chosen.js";
import { chooser, colours, legend, refused, wanted } from "./colours.js";
import { count, fill, h, say } from "./dom.js";
import { noDocuments, problem } from "./empty.js";
import { floats, integers } from "./encoded.js";
import { gestures } from "./gestures.js";
import { Points } from "./points.js";
import { topicTable } from "./topics.js";

const HIGHLIGHTED = 100;
// share of new documents from which on the page advises to compute the map again
const STALE = 0.1;
const STEPS = {
  waiting: "Waiting", reading: "Reading the vectors", layout: "Laying out", placing: "Placing the other documents",
  topics: "Finding topics", writing: "Storing the map",
};

/** Show the view. */
export async function map(main, index, given, signal) {
  const here = h("div.map-view", {}, h("p.note.waiting", {}, "Reading…"));
  fill(main, h("h1.quiet-read", {}, `Map of ${index.name}`), here);
  if (!index.documents) return void fill(here, noDocuments(index.name));
  await load(here, index, given, signal);
}

async function load(here, index, given, signal) {
  const asked = wanted(index, given);
  const read = (parameters) => get(`${below(index.name, "map")}?${new URLSearchParams({ sample: true, ...parameters })}`, signal);
  let [chosen, note] = [asked, null];
  try {
    const [found, topics, { classifiers }] = await Promise.all([
      read(asked).catch((error) => {
        // without a map the second request says so
        if (!asked.classifier || !(error.status >= 400 && error.status < 500)) throw error;
        [chosen, note] = [{}, refused(asked.classifier, error)];
        return read({});
      }),
      get(below(index.name, "topics"), signal), get("classifiers", signal)]);
    show(here, index, { found, topics, classifiers, given, chosen, note }, () => load(here, index, given, signal), signal);
  } catch (error) {
    if (error.status !== 404) throw error;
    fill(here, h("section.empty", {}, h("h1", {}, "This collection has no map yet"),
      h("p", {}, "A map shows each document as a point, so that similar documents are near each other, and finds topics. 100,000 documents take some minutes; searches go on meanwhile."),
      compute(index, "Compute the map", () => load(here, index, given, signal), signal)));
  }
}

/** A button that computes the map, and the progress of the job. */
function compute(index, title, done, signal) {
  const report = h("div.job", { "aria-live": "polite" });
  const run = async (asked) => {
    try {
      const job = await asked;
      // the other call may follow it already
      if (!job || start.disabled) return;
      start.disabled = true;
      await follow(report, job, done, signal);
    } catch (error) {
      if (error.name !== "AbortError") fill(report, problem(error));
    }
    start.disabled = false;
  };
  const start = h("button.main", { type: "button", id: "compute", onclick: () => run(post(below(index.name, "map"), undefined, signal)) }, title);
  run(running(index.name, signal));
  return h("div", {}, start, report);
}

/** The job that computes the map already, whoever began it. */
async function running(index, signal) {
  const { jobs } = await get("jobs?limit=1000", signal);
  const found = jobs.find((job) => job.kind === "map" && job.index === index && !job.ended);
  return found && get(`jobs/${found.id}`, signal);
}

async function follow(report, job, done, signal) {
  const bar = h("progress", { "aria-label": "Progress", max: 1 });
  const said = h("p");
  const away = h("p.problem");
  const tell = (wrong) => fill(away, wrong);
  fill(report, said, bar, away, h("button", {
    type: "button",
    onclick: () => send("DELETE", `jobs/${job.id}`).catch((error) => report.append(problem(error))),
  }, "Cancel"));
  while (!job.ended) {
    fill(said, `${STEPS[job.step.name] ?? "Working"}…`);
    bar.value = job.step.done;
    job = await later(`jobs/${job.id}`, tell, signal);
  }
  if (job.state === "succeeded") return void (await done());
  fill(report, h("p.problem", { role: "alert" }, job.error ?? "The job was cancelled."));
}

function show(here, index, { found, topics, classifiers, given, chosen: by, note }, again, signal) {
  const { ids } = found;
  const numbers = integers(found.topics);
  const canvas = h("canvas", {
    id: "map", tabindex: 0, role: "application", "aria-describedby": "map-keys",
    "aria-label": `Map of ${count(ids.length, "document")}`,
  });
  const points = new Points(canvas, floats(found.positions));
  const line = h("path", {});
  const tip = h("p.tip", { hidden: true });
  const chosen = h("section.chosen", { "aria-label": "Chosen documents", "aria-live": "polite" });
  const around = h("button", { type: "button", id: "around", "aria-pressed": "false", onclick: () =>
    around.setAttribute("aria-pressed", String(around.getAttribute("aria-pressed") !== "true")) }, "Draw around documents");
  const mark = (inside, title) => choose({ points, chosen, index, ids, fit: true }, inside, title, null, signal);
  const ring = (corners, title, fit = false) => choose({ points, chosen, index, ids, fit }, points.inside(corners), title, { map: found.version, corners }, signal);
  const ofTopic = (number) => {
    mark(Uint8Array.from(numbers, (one) => Number(one === number)), `· ${topics.topics[number].name}`);
    canvas.scrollIntoView({ block: "nearest" });
  };
  const shown = colours(index, found, topics.topics);
  const topical = !found.values && !found.labels;
  const ofColour = (code, name) => mark(Uint8Array.from(shown.codes, (one) => Number(one === code)), `· ${name}`);
  fill(here,
    h("div.tools", {}, searchForm((text) => highlight(index, text, ids, mark, chosen, signal)),
      chooser(index, by, classifiers),
      around,
      h("button", { type: "button", id: "visible", onclick: () => ring(simplified(points.view()), "in view") }, "Choose all in view"),
      h("button", { type: "button", "aria-label": "Zoom in", onclick: () => points.zoom(1.6) }, "+"),
      h("button", { type: "button", "aria-label": "Zoom out", onclick: () => points.zoom(1 / 1.6) }, "−"),
      h("button", { type: "button", id: "whole", onclick: () => { mark(null); points.fit(); } }, "Whole map")),
    h("div.plane", {}, canvas, h("svg.line", { "aria-hidden": "true" }, line), tip),
    h("p.note.keys", { id: "map-keys" }, "Drag or use the arrow keys to move, the wheel or + and − to zoom, 0 for the whole map. A click opens a document. Hold Shift and drag to draw around documents."),
    note,
    !topical && legend(shown, ofColour),
    chosen,
    h("h2", {}, "Topics"),
    topicTable(index.name, topics, { ids, numbers }, ofTopic, signal),
    h("p.note", {}, state(found, ids.length)),
    compute(index, "Compute the map again", again, signal));
  points.labels = !topical ? [] : topics.topics.filter((topic) => topic.centre).map(({ words, centre: [x, y] }) => ({ x, y, text: words.slice(0, 2).join(", ") }));
  points.paint(shown.codes, shown.shade);
  gestures(points, line, {
    lasso: () => around.getAttribute("aria-pressed") === "true",
    hover: (at, x, y) => hover(tip, canvas, at, x, y, () => [ids[at], shown.tell(at)].filter((one) => one !== undefined).join(" · ")),
    open: (at) => location.assign(address(index.name, "document", { id: ids[at] })),
    around: (drawn) => ring(simplified(drawn), "inside the line"),
    clear: () => mark(null),
  });
  const sizes = new ResizeObserver(() => points.resize());
  sizes.observe(canvas);
  // a key may come before the observer's first call
  points.resize();
  const before = area(given.get("area"));
  if (before?.map === found.version) ring(before.corners, "inside the line", true);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => points.draw(), { signal });
  signal.addEventListener("abort", () => sizes.disconnect());
  say(`Map of ${count(ids.length, "document")} with ${count(topics.topics.length, "topic")}`);
}

function searchForm(run) {
  const box = h("input", { id: "find", type: "search", placeholder: "A question or a sentence" });
  return h("form", { role: "search", onsubmit: (event) => { event.preventDefault(); run(box.value.trim()); } },
    h("label.quiet-read", { for: "find" }, "Highlight what resembles"), box, h("button.main", { type: "submit" }, "Highlight"));
}

async function highlight(index, text, ids, mark, chosen, signal) {
  if (!text) return mark(null);
  try {
    const hits = await post("similar", { index: index.name, text, mode: "hybrid", top_k: HIGHLIGHTED }, signal);
    const found = new Set((hits.hits ?? hits).map((hit) => hit.id));
    return mark(Uint8Array.from(ids, (id) => Number(found.has(id))), "found");
  } catch (error) {
    return error.name !== "AbortError" && fill(chosen, problem(error));
  }
}

function hover(tip, canvas, at, x, y, text) {
  canvas.classList.toggle("on-point", at >= 0);
  tip.hidden = at < 0;
  if (at < 0) return;
  fill(tip, text());
  const left = Math.min(x + 14, canvas.clientWidth - tip.offsetWidth - 4);
  // the policy of the page allows no style attributes, but the style of an element
  tip.style.transform = `translate(${Math.max(0, left)}px, ${y + 14}px)`;
}

function state(found, shown) {
  const parts = [`Computed ${new Date(found.made).toLocaleString("en")}.`];
  if (shown < found.total) parts.push(`A sample of ${shown.toLocaleString("en")} of ${count(found.total, "document")} is shown.`);
  if (found.placed) parts.push(`${count(found.placed, "newer document")} stand${found.placed === 1 ? "s" : ""} among their neighbours.`);
  if (found.unplaced) parts.push(`${count(found.unplaced, "newer document")} will follow.`);
  if (found.labels?.pending) parts.push(`${count(found.labels.pending, "document")} will get a label when you open the map again.`);
  if (found.stale > STALE) parts.push("Much has changed since: compute the map again.");
  return parts.join(" ");
}
