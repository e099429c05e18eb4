// The shell: which index and which view the address names.

import { add, fresh } from "./add.js";
import { address, go, read } from "./address.js";
import { below, get } from "./api.js";
import { compare } from "./compare.js";
import { read as readDocument } from "./document.js";
import { fill, h, say } from "./dom.js";
import { noIndexes, problem } from "./empty.js";
import { label } from "./label.js";
import { map } from "./map.js";
import { neighbourhood } from "./neighbourhood.js";
import { search } from "./search.js";
import { status } from "./status.js";

// title, how to show it, and whether the navigation has it
const VIEWS = {
  search: ["Search", search, true],
  document: ["Document", readDocument, false],
  compare: ["Compare", compare, true],
  map: ["Map", map, true],
  neighbourhood: ["Citations", neighbourhood, false],
  label: ["Label", label, true],
  add: ["Add", add, true],
  status: ["Status", status, true],
};

// what GET /indexes/{name} said, of the index that was shown last
let described = { asked: "" };

const main = document.getElementById("main");
const chooser = document.getElementById("indexes");
let names = null;
let shown = new AbortController();

async function show() {
  const { index, view, given } = read();
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  try {
    names ??= (await get("indexes")).indexes;
    if (signal.aborted) return;
    choose(index);
    if (!names.length) return void fill(main, noIndexes(), fresh());
    if (!index) return void location.replace(address(names[0], "search"));
    if (described.asked !== index) {
      const found = await get(below(index)).catch((error) => {
        throw error.status === 404 ? Object.assign(new Error("There is no collection of that name. Choose one above."), { status: 404 }) : error;
      });
      described = { ...found, asked: index };
    }
    if (signal.aborted) return;
    const [title, render] = VIEWS[view] ?? VIEWS.search;
    document.title = `${title} · ${index} · docsplit`;
    links(index, view);
    main.className = view;
    const focused = document.activeElement?.id;
    const rendered = render(main, described, given, signal);
    if (focused && main.querySelector(`#${focused}`)) document.getElementById(focused).focus();
    await rendered;
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    if (error.status === undefined) console.error(error);
    fill(main, problem(error, show));
  }
}

function choose(index) {
  const options = names.includes(index) || !index ? names : [index, ...names];
  fill(chooser, options.map((name) => h("option", { value: name, selected: name === index }, name)));
  chooser.disabled = !names.length;
  chooser.parentElement.hidden = !names.length;
}

function links(index, view) {
  fill(document.getElementById("nav"), Object.entries(VIEWS).filter(([, [, , listed]]) => listed).map(([name, [title]]) =>
    h("a", { href: address(index, name), "aria-current": name === view ? "page" : null }, title)),
  h("a", { href: "docs" }, "API"));
}

chooser.addEventListener("change", () => {
  go(address(chooser.value, "search"));
  say(`Collection ${chooser.value}`);
});
window.addEventListener("hashchange", show);
window.addEventListener("indexes-changed", () => {
  names = null;
  described = { asked: "" };
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  const box = document.getElementById("query");
  if (event.key === "/" && !typing && box) {
    event.preventDefault();
    box.focus();
  }
});
show();
