// Labels that people gave for a classifier: read from the service, kept there, and exported.

import { below, get, post } from "./api.js";

const PAGE = 1000;
// a spreadsheet takes a cell that begins like this for a formula, also with full-width signs
const FORMULA = /^[=+\-@＝＋－＠\t\r\n]/;

const labelsOf = (name) => `classifiers/${encodeURIComponent(name)}/labels`;

/** All documents with labels, in the order of time. */
export async function labelled(name, signal) {
  const found = [];
  let after = "";
  do {
    const page = await get(`${labelsOf(name)}?limit=${PAGE}&after=${encodeURIComponent(after)}`, signal);
    found.push(...page.documents);
    after = page.next;
  } while (after !== null);
  return found;
}

/** Keep the labels of a document; null removes them. */
export function give(name, index, id, labels, signal) {
  return post(labelsOf(name), { index, documents: [{ id, labels }] }, signal);
}

/** Save the labels as a file: JSON lines with the texts, or a table for spreadsheets without them. */
export async function save(name, kind, several, signal) {
  const all = await labelled(name, signal);
  const documents = await documentsOf(all, kind === "jsonl", signal);
  const rows = all.filter((one) => documents.has(key(one.index, one.id))).map((one) => {
    const { title, text } = documents.get(key(one.index, one.id));
    const labels = several ? { labels: one.labels } : { label: one.labels[0] };
    return { index: one.index, id: one.id, title, ...labels, ...(kind === "jsonl" ? { text } : {}) };
  });
  const lines = kind === "jsonl" ? rows.map((row) => JSON.stringify(row)) :
    [["index", "id", "title", several ? "labels" : "label"], ...rows.map((row) => Object.values(row))].map((row) => row.map(cell).join(","));
  download(`${name}.${kind}`, kind === "jsonl" ? "application/x-ndjson" : "text/csv", `${lines.join("\n")}\n`);
  return rows.length;
}

async function documentsOf(all, texts, signal) {
  const found = new Map();
  for (const index of new Set(all.map((one) => one.index))) {
    let wanted = all.filter((one) => one.index === index).map((one) => one.id);
    while (wanted.length) {
      const answer = await post(below(index, "documents", "get"), { ids: wanted.slice(0, PAGE), text: texts }, signal);
      for (const one of answer.documents) found.set(key(index, one.id), one);
      wanted = [...answer.remaining, ...wanted.slice(PAGE)];
    }
  }
  return found;
}

const key = (index, id) => `${index}/${id}`;

function cell(value) {
  const text = Array.isArray(value) ? value.join("; ") : value ?? "";
  return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
