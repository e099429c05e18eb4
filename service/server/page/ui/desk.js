// The desk of a person who labels: one document, a key for each label, and how the classifier grows.

import { address } from "./address.js";
import { get, post } from "./api.js";
import { curve, points, stalled } from "./curve.js";
import { count, fill, h, say } from "./dom.js";
import { problem } from "./empty.js";
import { give, save } from "./given.js";
import { explain, markCarried } from "./labels.js";
import { Queue } from "./queue.js";
import { parts, reading } from "./sheet.js";

// labels that have a key
const KEYS = 9;
// a training follows after so many labels, or after this share of all
const EACH = 5;
const SHARE = 0.1;
const PAUSE = 1000;

/**
 * Show the desk.
 * @param {object|null} trained as GET /classifiers/{name} describes it; null before the first training
 * @param {object[]} given documents with labels, in the order of time
 * @param {string[]} fresh labels of a new classifier
 */
export async function desk(main, index, name, trained, given, fresh, signal) {
  const kept = new Map(given.map((one) => [`${one.index}/${one.id}`, one.labels]));
  // the keys of labels stay the same: their order is that of the address, else of the alphabet
  const names = [...new Set([...fresh, ...[...(trained?.outputs ?? []), ...given.flatMap((one) => one.labels)].sort()])];
  const several = trained?.multi_label ?? false;
  const own = given.filter((one) => one.index === index.name).map((one) => one.id);
  const queue = new Queue(index.name, name, new Set(own), () => names, signal);
  queue.trained = Boolean(trained?.outputs);
  const path = own.map((id) => ({ id }));
  let [shown, chosen, busy, since, training] = [null, new Set(), false, Math.max(0, kept.size - (trained?.examples ?? 0)), false];

  const page = { ...parts(name, index.name), problem: h("div") };
  fill(main, page.head, h("div.desk", {}, h("div", {}, page.bar, page.problem, page.document), page.side));

  const failed = (error) => error.name !== "AbortError" && fill(page.problem, problem(error));
  const attempt = async (act) => {
    if (busy) return;
    busy = true;
    try {
      await act();
      fill(page.problem);
    } catch (error) {
      failed(error);
    } finally {
      busy = false;
    }
  };
  const show = (found) => {
    shown = found;
    chosen = new Set();
    fill(page.document, found ? reading(index.name, found, trained, why) : h("section.empty", {},
      h("h2", {}, "No document is left"), h("p", {}, "Every document of this index, or every one that fits your text, has a label or was skipped.")));
    buttons();
    scrollTo({ top: 0 });
    if (found) say(`Next: ${found.title || found.id}`);
    queue.ahead();
  };
  const advance = async () => show(await queue.next());
  const keep = (labels) => attempt(async () => {
    if (!shown) return;
    await give(name, index.name, shown.id, labels, signal);
    kept.set(`${index.name}/${shown.id}`, labels);
    queue.done.add(shown.id);
    path.push({ id: shown.id });
    since += 1;
    progress();
    await advance();
    if (due()) train();
  });
  const choose = (label) => {
    if (!several) return void keep([label]);
    if (!chosen.delete(label)) chosen.add(label);
    buttons();
  };
  const skip = () => attempt(async () => {
    if (!shown) return;
    queue.skipped.add(shown.id);
    path.push({ id: shown.id });
    await advance();
  });
  const undo = () => attempt(async () => {
    const last = path[path.length - 1];
    if (!last) return;
    const key = `${index.name}/${last.id}`;
    if (kept.has(key)) {
      await give(name, index.name, last.id, null, signal);
      kept.delete(key);
      since = Math.max(0, since - 1);
    }
    path.pop();
    const found = await queue.back(last.id, shown && { id: shown.id, title: shown.title, probabilities: shown.probabilities });
    progress();
    show(found);
  });

  const why = () => attempt(async () => {
    if (!trained?.outputs || !shown) return;
    const { labels: [best], windows } = await explain(name, shown.text, signal);
    markCarried(page.document, windows);
    page.document.querySelector(".carried")?.scrollIntoView({ block: "center" });
    if (best) say(`${count(windows.length, "window")} carried the label ${best.label}.`);
  });

  const buttons = () => {
    fill(page.labels, names.map((label, place) => h("button.label", {
      type: "button", disabled: !shown, "aria-pressed": several ? String(chosen.has(label)) : null,
      "aria-keyshortcuts": place < KEYS ? String(place + 1) : null, onclick: () => choose(label),
    }, place < KEYS && [h("kbd", {}, place + 1), " "], label)),
    several && h("button.main", { type: "button", disabled: !shown, onclick: () => keep([...chosen]) }, "Save ", h("kbd", {}, "Enter")));
    page.skip.disabled = !shown;
    page.undo.disabled = !path.length;
  };
  const counted = () => {
    const found = new Map(names.map((label) => [label, 0]));
    for (const labels of kept.values()) for (const label of labels) found.set(label, (found.get(label) ?? 0) + 1);
    return found;
  };
  const enough = () => {
    const counts = [...counted()].map(([label, own]) => own + (trained?.labels?.[label] ?? 0)).filter((number) => number > 0);
    return counts.length > 1 && Math.min(...counts) > 1;
  };
  const step = () => Math.max(EACH, Math.round(SHARE * kept.size));
  const due = () => !training && since >= (trained?.outputs ? step() : 1) && enough();
  const progress = () => {
    fill(page.counts, [...counted()].map(([label, number]) => [h("dt", {}, label), h("dd", {}, number)]));
    const all = points(trained);
    const flat = stalled(all);
    fill(page.curve, curve(all), flat > 0 && h("p.stalled", { role: "status" },
      `Accuracy has not grown over the last ${flat} documents. More labels will hardly help: look at the labels again, or stop here.`));
    const left = Math.max(0, step() - since);
    fill(page.state, training ? "Training…" : !enough() ? "A training needs two labels or more, and two documents of each." :
      left ? `The next training follows after ${count(left, "more label")}.` : "");
    page.train.disabled = training || !enough();
  };

  const train = async () => {
    if (training) return;
    training = true;
    const former = since;
    let learnt = false;
    progress();
    try {
      await post(`classifiers/${encodeURIComponent(name)}/retrain`, undefined, signal).catch((error) => {
        // another person's training runs
        if (error.status !== 409) throw error;
      });
      trained = await ended(name, signal);
      since = Math.max(0, since - former);
      learnt = queue.trained = true;
      queue.reset();
      fill(page.failed);
      say("The classifier is trained.");
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(page.failed, problem(error, train));
    } finally {
      training = false;
      progress();
    }
    if (learnt && due()) train();
  };

  page.skip.onclick = skip;
  page.undo.onclick = undo;
  page.train.onclick = train;
  page.add.onsubmit = (event) => {
    event.preventDefault();
    const label = page.fresh.value.trim();
    if (label && !names.includes(label)) names.push(label);
    page.fresh.value = "";
    remember();
    buttons();
    progress();
  };
  page.look.onsubmit = (event) => {
    event.preventDefault();
    queue.wanted = page.wanted.value.trim();
    queue.reset();
    attempt(advance);
  };
  const download = (kind) => save(name, kind, several, signal).then((number) => say(`${count(number, "document")} saved.`), failed);
  page.asLines.onclick = () => download("jsonl");
  page.asTable.onclick = () => download("csv");
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !page.keys.checked) return;
    const act = { s: skip, u: undo, w: why }[event.key] ?? (names[Number(event.key) - 1] !== undefined ? () => choose(names[Number(event.key) - 1]) : null);
    const save = several && event.key === "Enter" && event.target === document.body;
    if (!act && !save) return;
    event.preventDefault();
    if (save) keep([...chosen]);
    else act();
  }, { signal });

  const remember = () => history.replaceState(null, "", address(index.name, "label", { classifier: name, l: names }));
  remember();
  buttons();
  progress();
  await attempt(advance);
  if (trained?.training?.state === "running" || due()) await train();
}

/** The classifier once no training of it runs. */
async function ended(name, signal) {
  for (;;) {
    const found = await get(`classifiers/${encodeURIComponent(name)}`, signal);
    if (!found.training) return found;
    if (found.training.state === "failed") throw Object.assign(new Error(found.training.error), { status: 409 });
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}
