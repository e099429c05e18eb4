// The dialog that asks for an API key. Requests that meet it at the same time share one dialog.

import { h } from "./dom.js";

let open = null;

/**
 * Ask for a key and keep it.
 * @param {boolean} refused whether a key was sent and is not valid
 * @param {(key: string) => void} keep
 * @returns {Promise<void>} resolves once a key was given
 */
export function askKey(refused, keep) {
  open ??= new Promise((resolve) => {
    const input = h("input", {
      type: "password", id: "key", name: "key", required: true, autocomplete: "off", spellcheck: "false",
      "aria-describedby": "key-note",
    });
    const dialog = h("dialog.key", { "aria-labelledby": "key-title" },
      h("form", {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          keep(input.value.trim());
          dialog.close();
          dialog.remove();
          open = null;
          resolve();
        },
      },
      h("h2", { id: "key-title" }, "This service needs an API key"),
      refused && h("p.problem", { role: "alert" }, "The service does not accept that key."),
      h("label", { for: "key" }, "API key"),
      input,
      h("p.note", { id: "key-note" }, "The key stays in this tab and is forgotten when you close it."),
      h("div.actions", {}, h("button.main", { type: "submit" }, "Use this key"))));
    // Escape would leave a page that can show nothing
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
  return open;
}
