// Which document to label next.

import { below, get, post } from "./api.js";

// suggestions that are asked for at a time, and hits for each label before the first training
const FEW = 20;
const HITS = 5;
const MOST_EXCLUDED = 1000;

/** The documents of an index that wait for a label of one classifier. */
export class Queue {
  /**
   * @param {Set<string>} done ids that have a label
   * @param {() => string[]} labels names of the labels
   */
  constructor(index, name, done, labels, signal) {
    Object.assign(this, { index, name, labels, signal, done, skipped: new Set(), trained: false, wanted: "" });
    this.reset();
    this.texts = new Map();
  }

  /** The next document with its text and windows, or null when all have been seen. */
  async next() {
    for (;;) {
      if (!this.unseen()) {
        this.waiting = (await this.coming) ?? [];
        this.coming = null;
      }
      if (!this.unseen()) this.waiting = await this.more();
      const found = this.waiting.shift();
      if (!found) return null;
      const document = await this.read(found.id);
      if (document) return { ...found, ...document };
      // deleted since
      this.skipped.add(found.id);
    }
  }

  /** Read the following document while a person reads this one. */
  ahead() {
    if (this.unseen()) this.read(this.waiting[0].id).catch(() => undefined);
    else this.coming ??= this.more().catch(() => null);
  }

  /** A document again, or the next one if it was deleted; the one that is shown waits. */
  async back(id, shown) {
    if (shown) this.waiting.unshift(shown);
    this.done.delete(id);
    this.skipped.delete(id);
    const document = await this.read(id);
    return document ? { id, ...document } : this.next();
  }

  /** Forget what waits: the classifier, or the wanted text, is another one. */
  reset() {
    Object.assign(this, { waiting: [], coming: null, page: "" });
  }

  /** Drop what has a label by now; whether a document waits. */
  unseen() {
    this.waiting = this.waiting.filter((one) => this.open(one.id));
    return this.waiting.length > 0;
  }

  open(id) {
    return !this.done.has(id) && !this.skipped.has(id);
  }

  read(id) {
    if (!this.texts.has(id)) {
      if (this.texts.size > 50) this.texts.clear();
      const reading = Promise.all([
        post(below(this.index, "documents", "get"), { ids: [id] }, this.signal),
        get(below(this.index, "documents", id, "windows"), this.signal),
      ]).then(([{ documents: [found] }, { windows }]) => {
        return found && { title: found.title, text: found.text, metadata: found.metadata, windows };
      });
      reading.catch(() => this.texts.delete(id));
      this.texts.set(id, reading);
    }
    return this.texts.get(id);
  }

  async more() {
    if (this.wanted) return this.hits(this.wanted, 10 * HITS);
    if (this.trained) {
      const count = Math.min(200, FEW + this.skipped.size);
      const found = await post(`classifiers/${encodeURIComponent(this.name)}/suggest`, { index: this.index, count }, this.signal);
      return found.filter((one) => this.open(one.id));
    }
    // before the first training: what resembles the labels' names, then everything
    const lists = [];
    for (const label of this.labels()) lists.push(await this.hits(label, HITS));
    const mixed = Array.from({ length: HITS }, (_, place) => lists.map((list) => list[place])).flat().filter(Boolean);
    const found = [...new Map(mixed.map((one) => [one.id, one])).values()];
    return found.length ? found : this.rest();
  }

  async hits(text, most) {
    const exclude = [...this.done, ...this.skipped].slice(-MOST_EXCLUDED);
    const body = { index: this.index, text, mode: "hybrid", top_k: most, exclude };
    return (await post("similar", body, this.signal)).filter((one) => this.open(one.id)).map(({ id, title }) => ({ id, title }));
  }

  async rest() {
    while (this.page !== null) {
      const { documents, next } = await get(`${below(this.index, "documents")}?limit=100&after=${encodeURIComponent(this.page)}`, this.signal);
      this.page = next;
      const found = documents.filter((one) => this.open(one.id));
      if (found.length) return found;
    }
    return [];
  }
}
