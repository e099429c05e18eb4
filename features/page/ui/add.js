// The view that adds documents: files, or a pasted text.

import { address, go } from "./address.js";
import { below, post, send, upload } from "./api.js";
import { count, fill, h, say } from "./dom.js";
import { problem } from "./empty.js";
import { filesOf } from "./entries.js";
import { follow } from "./jobs.js";
import { modelChoice } from "./models.js";

// of a request; the service may have a lower limit of bytes, but rarely has
const MOST_FILES = 1000;
const MOST_BYTES = 256 * 1024 * 1024;
// metadata of documents that a filter may ask for
const STATED = { author: "string", date: "date", page: "integer", language: "string" };

/** Show the view. */
export async function add(main, index, given, signal) {
  fill(main, h("h1", {}, "Add documents to ", h("em", {}, index.name)),
    files(index.name, signal), text(index.name, signal), fresh());
}

/** Tell the shell that an index has changed. */
function changed() {
  window.dispatchEvent(new Event("indexes-changed"));
}

/** The files from a place on that one request may hold, at least one. */
function fitting(given, first) {
  let size = given[first].file.size;
  let end = first + 1;
  while (end < given.length && end - first < MOST_FILES && size + given[end].file.size <= MOST_BYTES) {
    size += given[end].file.size;
    end += 1;
  }
  return given.slice(first, end);
}

function files(index, signal) {
  const report = h("div.report", { "aria-live": "polite" });
  const pick = (folder) => {
    const input = h("input", {
      type: "file", multiple: true, webkitdirectory: folder, id: folder ? "folder" : "files", class: "quiet-read",
      onchange: () => {
        start([...input.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })));
        input.value = "";
      },
    });
    return [input, h("label.button", { for: input.id }, folder ? "Choose a folder" : "Choose files")];
  };
  const start = async (given) => {
    fill(report);
    for (let sent = 0; sent < given.length;) {
      const part = fitting(given, sent);
      const place = h("div");
      report.append(place);
      try {
        await one(part, place);
      } catch (error) {
        // another view follows no job, but the other files are still sent
        if (error.name !== "AbortError") {
          const rest = given.slice(sent);
          fill(place, problem(error, () => start(rest)));
          return;
        }
      }
      sent += part.length;
    }
  };
  const one = async (part, place) => {
    const form = new FormData();
    for (const { file, name } of part) form.append("files", file, name);
    const bar = h("progress", { max: 100, value: 0, "aria-label": "Upload" });
    fill(place, h("p", {}, `Sending ${count(part.length, "file")}…`), bar);
    const job = await upload(below(index, "files"), form, (share) => { bar.value = 100 * share; });
    await follow(place, job, signal);
    changed();
  };
  const take = async (found) => {
    fill(report, h("p", {}, "Looking for the files…"));
    try {
      const given = await found;
      if (given.length) await start(given);
      else fill(report, h("p", {}, "There is no file in it."));
    } catch (error) {
      fill(report, problem(error));
    }
  };
  const zone = h("section.drop", {
    "aria-labelledby": "files-title",
    ondragover: (event) => {
      event.preventDefault();
      zone.classList.add("over");
    },
    ondragleave: () => zone.classList.remove("over"),
    ondrop: (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      const found = filesOf(event.dataTransfer);
      if (found) take(found);
    },
  },
  h("h2", { id: "files-title" }, "Files"),
  h("p.note", {}, "Drop PDF, Word, PowerPoint, Excel, OpenDocument, EPUB, HTML, mail, Markdown or text files here, archives or folders of them. The name of a file, with its folders, becomes the name of its document."),
  h("p.actions", {}, pick(false), pick(true)), report);
  return zone;
}

function text(index, signal) {
  const box = (name, title, given = {}) => {
    const tag = name === "text" ? "textarea" : "input";
    return [h("label", { for: `new-${name}` }, title), h(tag, { id: `new-${name}`, name, required: true, ...given })];
  };
  const report = h("div", { "aria-live": "polite" });
  const form = h("form.simple", {
    "aria-labelledby": "text-title",
    onsubmit: async (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(form));
      const one = { id: given.id, text: given.text, ...(given.title ? { title: given.title } : {}) };
      try {
        const answer = await post(below(index, "documents"), { documents: [one], on_duplicate: "mark" }, signal);
        const near = answer.duplicates?.[0]?.duplicates ?? [];
        fill(report, h("p", {}, "Added ", h("a", { href: address(index, "document", { id: one.id }) }, one.title ?? one.id), "."),
          near.length > 0 && h("p.note", {}, "Nearly the same: ", near.map(({ id }, place) =>
            [place ? ", " : "", h("a", { href: address(index, "compare", { id: one.id, other: id }) }, id)])));
        form.reset();
        changed();
      } catch (error) {
        if (error.name !== "AbortError") fill(report, problem(error));
      }
    },
  }, h("h2", { id: "text-title" }, "A text"), box("id", "Name", { maxlength: 512, autocomplete: "off" }),
  box("title", "Title (optional)", { required: false, maxlength: 4096, autocomplete: "off" }), box("text", "Text", { rows: 8 }),
  h("p.actions", {}, h("button.main", { type: "submit" }, "Add the text")), report);
  return h("section", {}, form);
}

/** A form that creates an index; what files may state about themselves can be filtered. */
export function fresh() {
  const report = h("div", { "aria-live": "polite" });
  const input = h("input", {
    id: "new-index", required: true, pattern: "[a-z0-9][a-z0-9_\\-]{0,62}", autocomplete: "off", spellcheck: "false",
    title: "Lower-case letters, digits, - and _; the first is a letter or a digit",
  });
  const model = modelChoice();
  return h("form.simple", {
    "aria-labelledby": "index-title",
    onsubmit: async (event) => {
      event.preventDefault();
      try {
        await send("PUT", below(input.value), { model: model.value(), fields: STATED });
        changed();
        say(`The collection ${input.value} is there.`);
        go(address(input.value, "add"));
      } catch (error) {
        fill(report, problem(error));
      }
    },
  }, h("h2", { id: "index-title" }, "A new collection"), h("label", { for: "new-index" }, "Name"), input, model.place,
  h("p.actions", {}, h("button", { type: "submit" }, "Create")), report);
}
