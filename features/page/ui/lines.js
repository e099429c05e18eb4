// Lines between the documents of the graph, from where the layout has put them.

import { fill, h } from "./dom.js";

/**
 * Draw all lines again.
 * @param {SVGElement} lines takes them; it lies behind the graph
 * @param {HTMLElement} graph has the documents as `.node`, the middle one as `.centre`
 * @param {{from: string, to: string}[]} between links among the other documents
 */
export function draw(lines, graph, between) {
  const frame = graph.getBoundingClientRect();
  const place = (node) => {
    const box = node.getBoundingClientRect();
    return { left: box.left - frame.left, right: box.right - frame.left, y: box.top + box.height / 2 - frame.top };
  };
  const nodes = [...graph.querySelectorAll(".node:not(.centre)")];
  const centre = place(graph.querySelector(".centre"));
  const places = new Map(nodes.map((node) => [node.dataset.id, place(node)]));
  lines.setAttribute("width", frame.width);
  lines.setAttribute("height", frame.height);
  fill(lines, h("defs", {}, ["given", "found", "predicted"].map(arrow)),
    between.filter(({ from, to }) => places.has(from) && places.has(to))
      .map(({ from, to }) => h("path.between", { d: across(places.get(from), places.get(to), frame.width) })),
    nodes.map((node) => {
      const kind = ["found", "predicted"].find((one) => node.classList.contains(one)) ?? "given";
      const own = places.get(node.dataset.id);
      const left = own.right <= centre.left;
      // an arrow leads from the citing document to the cited one
      const [from, to] = left ? [[own.right, own.y], [centre.left, centre.y]] : [[centre.right, centre.y], [own.left, own.y]];
      return h(`path.${kind}`, { d: curve(from, to), "marker-end": `url(#arrow-${kind})` });
    }));
}

function arrow(kind) {
  return h(`marker.${kind}`, {
    id: `arrow-${kind}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto",
  }, h("path", { d: "M0 0 8 4 0 8z" }));
}

function curve([x, y], [toX, toY]) {
  const middle = (x + toX) / 2;
  return `M${x} ${y}C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`;
}

/** A line between neighbours: across the graph, or on the outer side of their column. */
function across(one, other, width) {
  if (Math.abs(one.left - other.left) > 1) {
    return one.left < other.left ? curve([one.right, one.y], [other.left, other.y]) : curve([one.left, one.y], [other.right, other.y]);
  }
  const left = one.left < width / 2;
  const edge = left ? one.left : one.right;
  const out = edge + (left ? -1 : 1) * Math.min(14 + Math.abs(one.y - other.y) / 12, 36);
  return `M${edge} ${one.y}C${out} ${one.y} ${out} ${other.y} ${edge} ${other.y}`;
}
