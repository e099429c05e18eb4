// The dialog that asks for an API key. Requests that meet it at the same time share one dialog.

import { h } from "./dom.js";

const STORED = "docsplit.key";
// a browser refuses other characters in a header, without sending the request
const USABLE = /^[ -~]+$/;
let open = null;

/** The key of this tab, or null; a key that cannot be sent counts as none. */
export function storedKey() {
  const key = sessionStorage.getItem(STORED);
  return key !== null && USABLE.test(key) ? key : null;
}

/** Forget the key; the next request that needs one asks again. */
export function forgetKey() {
  sessionStorage.removeItem(STORED);
  location.reload();
}

/**
 * Ask for a key and keep it in this tab: sessionStorage ends with it.
 * @returns {Promise<void>} resolves once a key was given
 */
export function askKey() {
  const refused = storedKey() !== null;
  open ??= new Promise((resolve) => {
    const input = h("input", {
      type: "password", id: "key", name: "key", required: true, autocomplete: "off", spellcheck: "false",
      "aria-describedby": "key-note",
    });
    const report = h("p.problem", { role: "alert", hidden: !refused }, refused && "The service does not accept that key.");
    const dialog = h("dialog.key", { "aria-labelledby": "key-title" },
      h("form", {
        method: "dialog",
        onsubmit: (event) => {
          event.preventDefault();
          const key = input.value.trim();
          if (!USABLE.test(key)) {
            report.textContent = "A key has only plain letters, digits and signs, but this one has another character, perhaps an invisible one. Copy the key again.";
            report.hidden = false;
            return;
          }
          sessionStorage.setItem(STORED, key);
          dialog.close();
          dialog.remove();
          open = null;
          resolve();
        },
      },
      h("h2", { id: "key-title" }, "This service needs an API key"),
      report,
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
