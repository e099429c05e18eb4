// Filters by the declared fields of an index. In the address each is FIELD:TEST:VALUE; a field may have a colon, too.

import { decode } from "./address.js";
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
  return written(field, type === "strings" ? "contains" : "eq", value);
}

/**
 * The active filters, further restrictions of the search, and a form that adds a filter.
 * @param {() => Promise<object>} known gives facets: values that the documents have
 */
export function filterBar(fields, filters, change, further, known) {
  const names = Object.keys(fields);
  if (!names.length) return further && h("div.filters", {}, further);
  const editor = h("form.editor", { hidden: true, "aria-label": "New filter" });
  const opener = h("button.plain", {
    type: "button", id: "add-filter", "aria-expanded": "false",
    onclick: async () => {
      const facets = editor.hidden ? await known().catch(() => ({})) : {};
      editor.hidden = !editor.hidden;
      opener.setAttribute("aria-expanded", String(!editor.hidden));
      if (editor.hidden) return;
      const used = names.filter((name) => facets[name]?.values.length !== 0);
      build(editor, used.length ? used : names, used[0] ?? names[0], { fields, facets, add: (one) => change([...new Set([...filters, one])]) });
      editor.querySelector("select").focus();
    },
  }, "+ Filter");
  return h("div.filters", {}, further, filters.map((one) => chip(one, fields, () => change(filters.filter((each) => each !== one)))),
    opener, editor);
}

function chip(one, fields, remove) {
  const { field, test, value } = parse(one);
  const title = TESTS[fields[field]]?.[test] ?? test;
  return h("span.chip", {}, `${field} ${title} ${value}`,
    h("button.plain", { type: "button", "aria-label": `Remove the filter ${field} ${title} ${value}`, onclick: remove }, "×"));
}

function build(editor, names, field, given) {
  const { fields, facets, add } = given;
  const type = fields[field];
  const kind = { integer: "number", number: "number", date: "date" }[type] ?? "text";
  const test = h("select", { "aria-label": "Test" }, Object.entries(TESTS[type]).map(([value, title]) => h("option", { value }, title)));
  const value = type === "boolean" ?
    h("select", { "aria-label": "Value" }, ["true", "false"].map((each) => h("option", {}, each))) :
    h("input", { type: kind, step: type === "integer" ? 1 : "any", required: true, "aria-label": "Value", list: "values", autocomplete: "off" });
  const values = h("datalist", { id: "values" }, (facets[field]?.values ?? []).map((one) => h("option", { value: one.value })));
  const chosen = h("select", {
    "aria-label": "Field",
    onchange: () => {
      build(editor, names, chosen.value, given);
      editor.querySelector("select").focus();
    },
  }, names.map((name) => h("option", { selected: name === field }, name)));
  editor.replaceChildren(chosen, test, value, values, h("button", { type: "submit" }, "Add"));
  editor.onsubmit = (event) => {
    event.preventDefault();
    add(written(field, test.value, value.value));
  };
}

const written = (field, test, value) => `${encodeURIComponent(field)}:${test}:${value}`;

function parse(one) {
  const [field, test, ...rest] = one.split(":");
  return { field: decode(field), test, value: rest.join(":") };
}

function typedValue(value, type) {
  if (type === "integer" || type === "number") return whole(value) ?? Number(value);
  return type === "boolean" ? value === "true" : value;
}
