// The view of the service's state. It asks again every few seconds while it is shown.

import { below, get, Refused } from "./api.js";
import { count, fill, h } from "./dom.js";
import { problem } from "./empty.js";
import { forgetKey, storedKey } from "./key.js";
import { modelPanel } from "./models.js";
import { indexRow, keyPanel, trainings } from "./panels.js";

const PAUSE = 5000;
// indexes that are described
const MOST = 50;

/** Show the view. */
export async function status(main, index, given, signal) {
  const here = h("div.panels", {}, h("p.note.waiting", {}, "Reading…"));
  fill(main, h("h1", {}, "The service"), here);
  const known = new Map();
  const refused = new Set();
  while (!signal.aborted) {
    try {
      const found = document.hidden ? null : await panels(known, refused, signal);
      // new panels would take the focus, or what somebody marked to copy it
      if (found && !used(here)) fill(here, found);
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(here, problem(error));
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function used(place) {
  const marked = getSelection();
  return place.contains(document.activeElement) || (!marked.isCollapsed && place.contains(marked.anchorNode));
}

async function panels(known, refused, signal) {
  const [info, metrics, { indexes }, { jobs }, { classifiers, untrained }, keys] = await Promise.all(
    ["info", "metrics", "indexes", "jobs?limit=10", "classifiers", "keys"].map((path) => get(path, signal)));
  const value = reader(metrics);
  const health = await get("health", signal).catch((error) => {
    // 503 tells the phase
    if (error instanceof Refused && error.body?.status) return error.body;
    throw error;
  });
  // to count documents costs the service more than all else here: once for each time the view is shown
  for (const name of indexes.slice(0, MOST)) if (!known.has(name)) known.set(name, await describe(name, signal));
  const described = [...known.values()];
  const learning = await trainings(classifiers, refused, signal);
  return [
    panel("Health", [
      ["State", health.degraded ? `${health.status}, degraded: ${health.reasons.join(", ")}` : health.status],
      ["Model", `${info.model_id}, ${info.dimensions} dimensions`],
      ["Engine", info.engine ? `${info.engine.name}, ${info.engine.precision}, ${info.engine.device}` : "starting"],
      ["Version", info.version],
    ]),
    panel("Load", [
      ["Rate", number(value("docsplit_tokens_per_second"), "tokens/s")],
      ["Queue", number(value("docsplit_queue_tokens"), "tokens")],
      ["Oldest work waits", number(value("docsplit_queue_age_seconds"), "s")],
      ["Cache", number(value("docsplit_cache_bytes") / 2 ** 20, "MiB")],
      ["Answered requests", number(value("docsplit_requests_total"), "")],
    ]),
    modelPanel(info.models),
    h("section.panel", {}, h("h2", {}, "Collections ", h("small", {}, indexes.length)),
      h("ul.rows", {}, described.map((one) => indexRow(one, info.models.length > 1))),
      indexes.length > described.length && h("p.note", {}, `${indexes.length - described.length} more`)),
    h("section.panel", {}, h("h2", {}, "Jobs ", h("small", {}, jobs.length)),
      jobs.length ? h("ul.rows", {}, jobs.map((job) => h("li", {},
        h("span", {}, `${job.index ?? "File of texts"}: ${job.state}`),
        h("span.note", {}, progress(job)),
        job.error && h("p.problem", {}, job.error)))) : h("p.note", {}, "No files were uploaded in the last day.")),
    classifiers.length + untrained.length > 0 && h("section.panel", {}, h("h2", {}, "Classifiers ", h("small", {}, classifiers.length)),
      h("ul.rows", {}, classifiers.map((name) => h("li", {}, h("span", {}, name), learning.has(name) && h("span.note", {}, learning.get(name)))),
        untrained.map((name) => h("li", {}, h("span", {}, name), h("span.note", {}, "has labels, not trained yet"))))),
    keys.required && keyPanel(keys.keys),
    storedKey() && h("section.panel", {}, h("h2", {}, "API key"), h("p.note", {}, "In this tab, until you close it."),
      h("p.actions", {}, h("button", { type: "button", onclick: forgetKey }, "Forget it now"))),
  ];
}

async function describe(name, signal) {
  try {
    return await get(below(name), signal);
  } catch (error) {
    if (error instanceof Refused) return { name, refused: error.message };
    throw error;
  }
}

function panel(title, rows) {
  return h("section.panel", {}, h("h2", {}, title), h("dl", {}, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function progress(job) {
  if (job.kind === "map") return "its map";
  return `${job.files.done + job.files.failed} of ${count(job.files.total, "file")}, ${count(job.refusals, "refusal")}`;
}

/** A function that adds up the values of a metric over all its labels. */
function reader(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    const found = /^(\w+)(?:\{.*\})? (\S+)$/.exec(line);
    if (found) sums.set(found[1], (sums.get(found[1]) ?? 0) + Number(found[2]));
  }
  return (name) => sums.get(name) ?? NaN;
}

function number(value, unit) {
  if (!Number.isFinite(value)) return "unknown";
  return `${value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 })} ${unit}`.trim();
}
