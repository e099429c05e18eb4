// Filters by the declared fields of an index. In the address each is FIELD:TEST:VALUE.

import { whole } from "./api.js";
import { h } from "./dom.js";

const NUMBERS = { eq: "=", gte: "at least", lte: "at most" };
const TESTS = {
  string: { eq: "is" },
  strings: { contains: "has" },
  integer: NUMBERS,
  number: NUMBERS,
  date: { gte: "from", lt: "before" },
  boolean: { eq: "is" },
};

/** The body's filter, or null. Values of one field that must be equal count as alternatives. */
export function compile(filters, fields) {
  const tests = [];
  const equal = new Map();
  for (const one of filters) {
    const { field, test, value } = parse(one);
    if (!(test in (TESTS[fields[field]] ?? {}))) continue;
    const typed = typedValue(value, fields[field]);
    if (test === "eq") equal.set(field, [...(equal.get(field) ?? []), typed]);
    else tests.push({ field, [test]: typed });
  }
  for (const [field, values] of equal) {
    tests.push(values.length === 1 ? { field, eq: values[0] } :
      { or: values.map((value) => ({ field, eq: value })) });
  }
  return tests.length > 1 ? { and: tests } : tests[0] ?? null;
}

/** The filter of a value of a facet. */
export function equals(field, value, type) {
  return `${field}:${type === "strings" ? "contains" : "eq"}:${value}`;
}

/** The active filters, further restrictions of the search, and a form that adds a filter. */
export function filterBar(fields, filters, change, further) {
  const names = Object.keys(fields);
  if (!names.length) return further && h("div.filters", {}, further);
  const editor = h("form.editor", { hidden: true, "aria-label": "New filter" });
  const opener = h("button.plain", {
    type: "button", id: "add-filter", "aria-expanded": "false",
    onclick: () => {
      editor.hidden = !editor.hidden;
      opener.setAttribute("aria-expanded", String(!editor.hidden));
      if (!editor.hidden) editor.querySelector("select").focus();
    },
  }, "+ Filter");
  build(editor, fields, names[0], (one) => change([...new Set([...filters, one])]));
  return h("div.filters", {}, further, filters.map((one) => chip(one, fields, () => change(filters.filter((each) => each !== one)))),
    opener, editor);
}

function chip(one, fields, remove) {
  const { field, test, value } = parse(one);
  const title = TESTS[fields[field]]?.[test] ?? test;
  return h("span.chip", {}, `${field} ${title} ${value}`,
    h("button.plain", { type: "button", "aria-label": `Remove the filter ${field} ${title} ${value}`, onclick: remove }, "×"));
}

function build(editor, fields, field, add) {
  const type = fields[field];
  const kind = { integer: "number", number: "number", date: "date" }[type] ?? "text";
  const test = h("select", { "aria-label": "Test" }, Object.entries(TESTS[type]).map(([value, title]) => h("option", { value }, title)));
  const value = type === "boolean" ?
    h("select", { "aria-label": "Value" }, ["true", "false"].map((each) => h("option", {}, each))) :
    h("input", { type: kind, step: type === "integer" ? 1 : "any", required: true, "aria-label": "Value" });
  const chosen = h("select", {
    "aria-label": "Field",
    onchange: () => {
      build(editor, fields, chosen.value, add);
      editor.querySelector("select").focus();
    },
  }, Object.keys(fields).map((name) => h("option", { selected: name === field }, name)));
  editor.replaceChildren(chosen, test, value, h("button", { type: "submit" }, "Add"));
  editor.onsubmit = (event) => {
    event.preventDefault();
    add(`${field}:${test.value}:${value.value}`);
  };
}

function parse(one) {
  const [field, test, ...rest] = one.split(":");
  return { field, test, value: rest.join(":") };
}

function typedValue(value, type) {
  if (type === "integer" || type === "number") return whole(value) ?? Number(value);
  return type === "boolean" ? value === "true" : value;
}
