// A whole file as the text of a search: dropped on the form, or chosen.

import { upload } from "./api.js";
import { count, fill, h, say } from "./dom.js";
import { problem } from "./empty.js";

const PLAIN = /\.(txt|md|rst|csv|json|jsonl)$/i;

/** Let files be dropped on a form; returns the form. */
export function takeFiles(box, report, form) {
  const over = (event) => {
    if (!event.dataTransfer.types.includes("Files")) return;
    event.preventDefault();
    form.classList.add("over");
  };
  form.addEventListener("dragover", over);
  form.addEventListener("dragleave", () => form.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    form.classList.remove("over");
    const { files: [file], items } = event.dataTransfer;
    if (!file) return;
    event.preventDefault();
    if ([...items].some((item) => item.webkitGetAsEntry()?.isDirectory)) {
      fill(report, h("p.problem", { role: "alert" }, "That is a folder. Drop one file here, or the folder on the page Add."));
    } else take(file, box, report);
  });
  return form;
}

/** A button that chooses a file, for those who cannot drop one. */
export function fileChooser(box, report) {
  const input = h("input", {
    type: "file", id: "query-file", class: "quiet-read",
    onchange: () => {
      const [file] = input.files;
      input.value = "";
      if (file) take(file, box, report);
    },
  });
  return h("span.chooser-file", {}, input, h("label.button", { for: "query-file" }, "File"));
}

async function take(file, box, report) {
  try {
    fill(report, h("p.note", {}, `Reading ${file.name}…`));
    const { text, pages } = (await plain(file)) ?? (await read(file));
    box.value = text;
    box.focus();
    fill(report, h("p.note", {}, `${file.name}: ${pages.length ? `${count(pages.length, "page")}, ` : ""}${count(text.length, "character")}`));
    say(`${file.name} is in the search box.`);
  } catch (error) {
    fill(report, problem(error));
  }
}

/** The text of a file in UTF-8, which the browser itself can read; null for another file. */
async function plain(file) {
  if (!file.type.startsWith("text/plain") && !PLAIN.test(file.name)) return null;
  const text = await file.text();
  // not UTF-8: the service knows further encodings
  return /[\0\ufffd]/.test(text) && !/\.(csv|jsonl?)$/i.test(file.name) ? null : { text, pages: [] };
}

function read(file) {
  const form = new FormData();
  form.append("file", file, file.name);
  return upload("read", form, () => undefined);
}
