// Elements from data. Texts enter the page only as text nodes and attributes, never as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SHAPES = new Set(["svg", "g", "circle", "path", "line", "text", "title", "marker", "defs"]);

/**
 * Make an element.
 * @param {string} name tag, with classes after dots: "p.meta"
 * @param {object} [given] attributes; a key such as "onclick" with a function is a listener
 * @param {...(Node|string|number|null|undefined|false|Array)} children
 */
export function h(name, given = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = SHAPES.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  if (classes.length) made.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(given)) {
    if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...nodes(children));
  return made;
}

/** Replace everything inside an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

function nodes(children) {
  return children.flat(4).filter((one) => one !== null && one !== undefined && one !== false)
    .map((one) => (one instanceof Node ? one : String(one)));
}

/** Let a screen reader say something. */
export function say(text) {
  document.getElementById("said").textContent = text;
}

/** A number with groups of three digits. */
export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}
