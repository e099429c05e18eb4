// The desk of a person who labels: one document, a key for each label, and how the classifier grows.

import { address } from "./address.js";
import { post } from "./api.js";
import { curve, points, stalled } from "./curve.js";
import { count, fill, h, say } from "./dom.js";
import { problem } from "./empty.js";
import { give, save } from "./given.js";
import { explain, markCarried } from "./labels.js";
import { Queue } from "./queue.js";
import { parts, reading } from "./sheet.js";
import { ended } from "./training.js";

// labels that have a key
const KEYS = 9;
// a training follows after so many labels, or after this share of all
const EACH = 5;
const SHARE = 0.1;

/** Where a person labels documents of an index for one classifier. */
export class Desk {
  /**
   * @param {object|null} trained as GET /classifiers/{name} describes it; null before the first training
   * @param {object[]} given documents with labels, in the order of time
   * @param {{labels: string[], several: boolean}} fresh labels of a new classifier, and whether a
   *   document may have several of them
   */
  constructor(index, name, trained, given, fresh, signal) {
    Object.assign(this, { index: index.name, name, trained, signal, shown: null, chosen: new Set(), busy: false, training: false });
    this.kept = new Map(given.map((one) => [`${one.index}/${one.id}`, one.labels]));
    // the keys of labels stay the same: their order is that of the address, else of the alphabet
    const known = [...(trained?.outputs ?? []), ...given.flatMap((one) => one.labels)].sort();
    this.names = [...new Set([...fresh.labels, ...known])];
    this.several = trained?.multi_label ?? (fresh.several || given.some((one) => one.labels.length !== 1));
    this.since = Math.max(0, this.kept.size - (trained?.examples ?? 0));
    // documents that were labelled or skipped, for undo
    this.path = given.filter((one) => one.index === this.index).map((one) => one.id);
    this.queue = new Queue(this.index, name, new Set(this.path), () => this.names, signal);
    this.queue.trained = Boolean(trained?.outputs);
    this.page = parts(name, this.index, this.several);
  }

  /** Show the desk and its first document. */
  async open(main) {
    const { page } = this;
    fill(main, page.head, h("div.desk", {}, h("div", {}, page.bar, page.problem, page.document), page.side));
    page.skip.onclick = () => this.skip();
    page.undo.onclick = () => this.undo();
    page.save.onclick = () => this.keep([...this.chosen]);
    page.train.onclick = () => this.train();
    page.asLines.onclick = () => this.download("jsonl");
    page.asTable.onclick = () => this.download("csv");
    page.add.onsubmit = (event) => this.add(event);
    page.look.onsubmit = (event) => this.look(event);
    document.addEventListener("keydown", (event) => this.press(event), { signal: this.signal });
    this.labels();
    this.progress();
    await this.attempt(() => this.advance());
    if (this.trained?.training?.state === "running" || this.due()) await this.train();
  }

  /** Do one thing at a time, and show what went wrong. */
  async attempt(act) {
    if (this.busy) return;
    this.busy = true;
    try {
      await act();
      fill(this.page.problem);
    } catch (error) {
      this.failed(error);
    } finally {
      this.busy = false;
    }
  }

  failed(error) {
    if (error.name !== "AbortError") fill(this.page.problem, problem(error));
  }

  async advance() {
    this.show(await this.queue.next());
  }

  show(found) {
    this.shown = found;
    this.chosen.clear();
    fill(this.page.document, found ? reading(this.index, found, this.trained, () => this.why()) : h("section.empty", {},
      h("h2", {}, "No document is left"), h("p", {}, "Every document of this collection, or every one that fits your text, has a label or was skipped.")));
    this.buttons();
    scrollTo({ top: 0 });
    if (found) say(`Next: ${found.title || found.id}`);
    this.queue.ahead();
  }

  choose(label) {
    if (!this.several) return void this.keep([label]);
    if (!this.chosen.delete(label)) this.chosen.add(label);
    this.buttons();
  }

  keep(labels) {
    return this.attempt(async () => {
      if (!this.shown) return;
      const { id } = this.shown;
      await give(this.name, this.index, id, labels, this.signal);
      this.kept.set(`${this.index}/${id}`, labels);
      this.queue.done.add(id);
      this.path.push(id);
      this.since += 1;
      this.progress();
      await this.advance();
      if (this.due()) this.train();
    });
  }

  skip() {
    return this.attempt(async () => {
      if (!this.shown) return;
      this.queue.skipped.add(this.shown.id);
      this.path.push(this.shown.id);
      await this.advance();
    });
  }

  undo() {
    return this.attempt(async () => {
      const id = this.path[this.path.length - 1];
      if (id === undefined) return;
      const key = `${this.index}/${id}`;
      if (this.kept.has(key)) {
        await give(this.name, this.index, id, null, this.signal);
        this.kept.delete(key);
        this.since = Math.max(0, this.since - 1);
      }
      this.path.pop();
      const found = await this.queue.back(id, this.shown);
      this.progress();
      this.show(found);
    });
  }

  why() {
    return this.attempt(async () => {
      if (!this.trained?.outputs || !this.shown) return;
      const { labels: [best], windows } = await explain(this.name, this.shown.text, this.signal);
      markCarried(this.page.document, windows);
      this.page.document.querySelector(".carried")?.scrollIntoView({ block: "center" });
      if (best) say(`${count(windows.length, "part")} carried the label ${best.label}.`);
    });
  }

  press(event) {
    const typing = event.target.closest("input:not([type=checkbox]), textarea, select, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || !this.page.keys.checked) return;
    // on some keyboards the digits need Shift
    const digit = /^(?:Digit|Numpad)([1-9])$/.exec(event.code)?.[1] ?? event.key;
    const label = this.names[Number(digit) - 1];
    const acts = { s: () => this.skip(), u: () => this.undo(), w: () => this.why() };
    if (this.several && !event.target.closest("a, button, summary")) acts.Enter = () => this.keep([...this.chosen]);
    const act = label === undefined ? acts[event.key] : () => this.choose(label);
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Make the buttons of all labels, and keep the labels in the address. */
  labels() {
    fill(this.page.labels, this.names.map((label, place) => h("button.label", {
      type: "button", "aria-keyshortcuts": place < KEYS ? String(place + 1) : null, onclick: () => this.choose(label),
    }, place < KEYS && [h("kbd", {}, place + 1), " "], label)));
    history.replaceState(null, "", address(this.index, "label", { classifier: this.name, l: this.names, several: this.several }));
    this.buttons();
  }

  /** Say which buttons can be used and which are chosen; they keep the focus. */
  buttons() {
    [...this.page.labels.children].forEach((button, place) => {
      button.disabled = !this.shown;
      if (this.several) button.setAttribute("aria-pressed", this.chosen.has(this.names[place]));
    });
    this.page.skip.disabled = this.page.save.disabled = !this.shown;
    this.page.undo.disabled = !this.path.length;
  }

  add(event) {
    event.preventDefault();
    const label = this.page.fresh.value.trim();
    if (label && !this.names.includes(label)) this.names.push(label);
    this.page.fresh.value = "";
    this.labels();
    this.progress();
  }

  look(event) {
    event.preventDefault();
    this.queue.wanted = this.page.wanted.value.trim();
    this.queue.reset();
    this.attempt(() => this.advance());
  }

  async download(kind) {
    try {
      say(`${count(await save(this.name, kind, this.several, this.signal), "document")} saved.`);
    } catch (error) {
      this.failed(error);
    }
  }

  /** The number of documents with each label. */
  counts() {
    const found = new Map(this.names.map((label) => [label, 0]));
    for (const label of [...this.kept.values()].flat()) found.set(label, (found.get(label) ?? 0) + 1);
    return found;
  }

  /** Whether a training has two labels or more, and two documents of each; with several labels also two without it. */
  enough() {
    const all = [...this.counts()].map(([label, number]) => number + (this.trained?.labels?.[label] ?? 0)).filter((number) => number > 0);
    const documents = this.kept.size + (this.trained?.examples ?? 0);
    return all.length > 1 && Math.min(...all) > 1 && (!this.several || Math.max(...all) <= documents - 2);
  }

  /** Labels until the next training; none are missing for the first one. */
  left() {
    const step = this.trained?.outputs ? Math.max(EACH, Math.round(SHARE * this.kept.size)) : 1;
    return Math.max(0, step - this.since);
  }

  due() {
    return !this.training && this.left() === 0 && this.enough();
  }

  progress() {
    const { page } = this;
    const all = points(this.trained);
    const flat = stalled(all);
    const without = [...this.kept.values()].filter((labels) => !labels.length).length;
    fill(page.counts, [...this.counts(), ...(without ? [[h("i", {}, "no label"), without]] : [])].map(([label, number]) => [h("dt", {}, label), h("dd", {}, number)]));
    fill(page.curve, curve(all, this.several), flat > 0 && h("p.stalled", { role: "status" },
      `Accuracy has not grown over the last ${flat} documents. More labels will hardly help: look at the labels again, or stop here.`));
    page.state.textContent = this.training ? "Training…" : !this.enough() ? `A training needs two labels or more, and two documents of each${this.several ? ", and two without it" : ""}.` :
      this.left() ? `The next training follows after ${count(this.left(), "more label")}.` : "";
    page.train.disabled = this.training || !this.enough();
  }

  async train() {
    if (this.training) return;
    this.training = true;
    let before = this.since;
    this.progress();
    try {
      const kind = !this.trained?.outputs && this.several ? "?multi_label=true" : "";
      await post(`classifiers/${encodeURIComponent(this.name)}/retrain${kind}`, undefined, this.signal).catch((error) => {
        // another training runs, which may not know the newest labels
        if (error.status !== 409) throw error;
        before = 0;
      });
      this.trained = await ended(this.name, (wrong) => fill(this.page.failed, wrong && h("p.problem", {}, wrong)), this.signal);
      this.queue.trained = true;
      this.queue.reset();
      fill(this.page.failed);
      say("The classifier is trained.");
    } catch (error) {
      if (error.name === "AbortError") return;
      fill(this.page.failed, problem(error, () => this.train()));
    } finally {
      this.training = false;
    }
    this.since = Math.max(0, this.since - before);
    this.progress();
    if (!this.shown) await this.attempt(() => this.advance());
    if (this.due() && this.trained?.outputs) await this.train();
  }
}
