// The state of the page in the fragment of its address: #/INDEX/VIEW?PARAMETERS. Browsers send no
// fragment to the service, so texts of searches are in no log.

/** @returns {{index: string, view: string, given: URLSearchParams}} */
export function read() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [index = "", view = ""] = path.split("/").map(decode);
  return { index, view: view || "search", given: new URLSearchParams(query) };
}

/** The address of a view. Empty parameters are left out; a list gives a parameter several times. */
export function address(index, view, given = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(given)) {
    for (const each of [value].flat()) {
      if (each !== "" && each !== null && each !== undefined && each !== false) query.append(key, each);
    }
  }
  const text = query.toString();
  return `#/${encodeURIComponent(index)}/${view}${text ? `?${text}` : ""}`;
}

/** Go to an address. It answers with no reload; the same address again shows the view again. */
export function go(hash) {
  if (location.hash === hash) window.dispatchEvent(new HashChangeEvent("hashchange"));
  else location.hash = hash;
}

/** A text without escapes; one with a broken escape stays as it is. */
export function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
