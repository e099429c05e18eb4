// An area of a map in addresses and in searches: a line around documents, or what was in view.

import { address } from "./address.js";
import { h } from "./dom.js";

// of a line that a person draws: an address and a request stay short
const CORNERS = 100;
const DIGITS = 5;

/** A line with few corners and short numbers: [x, y] in the space of the map. */
export function simplified(line) {
  const step = Math.max(1, line.length / CORNERS);
  return Array.from({ length: Math.min(CORNERS, line.length) }, (_, at) => line[Math.floor(at * step)])
    .map((corner) => corner.map((one) => Number(one.toPrecision(DIGITS))));
}

/** The area as a parameter of an address: VERSION:x,y,x,y,… */
export function written(area) {
  return `${area.map}:${area.corners.flat().join(",")}`;
}

/** The area of a parameter, as a search takes it; null without one. */
export function area(text) {
  if (!text) return null;
  const [map, numbers = ""] = text.split(":");
  const all = numbers.split(",").map(Number);
  return { map, corners: Array.from({ length: Math.floor(all.length / 2) }, (_, at) => all.slice(2 * at, 2 * at + 2)) };
}

/** Says that a search is restricted to an area, and ends that. */
export function areaChip(index, text, remove) {
  return text && h("span.chip", {}, h("a", { href: address(index, "map", { area: text }) }, "Inside an area of the map"),
    h("button.plain", { type: "button", "aria-label": "Search outside the area, too", onclick: remove }, "×"));
}
