// Moves the points of a map by pointer, wheel and keys, and draws a line around some of them.

const SHIFT = 60;

/**
 * @param {Points} points
 * @param {SVGElement} line gets the line that is drawn
 * @param {{lasso: () => boolean, hover: (at: number, x: number, y: number) => void,
 *   open: (at: number) => void, around: (line: number[][]) => void, clear: () => void}} to
 */
export function gestures(points, line, to) {
  const { canvas } = points;
  const held = new Map();
  let drawn = null;
  let moved = 0;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    points.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), ...place(event));
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    canvas.setPointerCapture(event.pointerId);
    held.set(event.pointerId, place(event));
    moved = 0;
    drawn = held.size === 1 && (to.lasso() || event.shiftKey) ? [place(event)] : null;
  });

  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    const before = held.get(event.pointerId);
    if (!before) return void to.hover(points.near(...now), ...now);
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    held.set(event.pointerId, now);
    if (drawn) {
      drawn.push(now);
      line.setAttribute("d", `M${drawn.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}Z`);
    } else if (held.size === 1) points.pan(now[0] - before[0], now[1] - before[1]);
    else pinch(event.pointerId, before, now);
  });

  // two fingers: the other one stays where it is
  function pinch(id, before, now) {
    const other = [...held].find(([one]) => one !== id)[1];
    const length = ([x, y]) => Math.hypot(x - other[0], y - other[1]) || 1;
    points.zoom(length(now) / length(before), ...other);
  }

  const release = (event) => {
    if (!held.delete(event.pointerId)) return;
    line.removeAttribute("d");
    if (drawn && drawn.length > 3) to.around(drawn.map((place) => points.at(...place)));
    else if (event.type === "pointerup" && moved < 5) {
      const at = points.near(...place(event));
      if (at >= 0) to.open(at);
      else to.clear();
    }
    drawn = null;
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => to.hover(-1, 0, 0));

  const keys = {
    ArrowLeft: () => points.pan(SHIFT, 0),
    ArrowRight: () => points.pan(-SHIFT, 0),
    ArrowUp: () => points.pan(0, SHIFT),
    ArrowDown: () => points.pan(0, -SHIFT),
    "+": () => points.zoom(1.4),
    "=": () => points.zoom(1.4),
    "-": () => points.zoom(1 / 1.4),
    0: () => points.fit(),
    Escape: () => to.clear(),
  };
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
