// The files of a drop, also those in folders.

import { Refused } from "./api.js";

/**
 * The dropped files with their paths. Call it before the handler waits: then the browser forgets them.
 * @returns {Promise<{file: File, name: string}[]>|null} null if no file or folder was dropped
 */
export function filesOf(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  // a file that a script made has no entry
  const given = items.map((item) => item.webkitGetAsEntry() ?? item.getAsFile());
  return given.length ? all(given) : null;
}

async function all(given) {
  const found = [];
  for (const one of given) {
    if (one instanceof File) found.push({ file: one, name: one.name });
    else if (one.isDirectory) found.push(...await all(await listed(one)));
    else found.push({ file: await asked(one, (...told) => one.file(...told)), name: one.fullPath.slice(1) });
  }
  return found;
}

async function listed(folder) {
  const reader = folder.createReader();
  const found = [];
  for (;;) {
    // a browser gives only some at a time, and none at the end
    const some = await asked(folder, (...told) => reader.readEntries(...told));
    if (!some.length) return found;
    found.push(...some);
  }
}

function asked(entry, ask) {
  return new Promise((resolve, reject) => {
    ask(resolve, () => reject(new Refused(null, `The browser cannot read ${entry.fullPath.slice(1)}. Check its rights, and drop it again.`, null)));
  });
}
