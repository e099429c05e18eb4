// Draws points of two dimensions on a canvas: written pixel by pixel, which needs neither a graphics
// processor nor a library, and moves 100,000 points in a few milliseconds.

const GREY = [150, 155, 150];
const NEAREST = 9;
const LABELS = 24;

/** The colour of a number as red, green and blue; -1 is grey. */
export function colour(number) {
  if (number < 0) return GREY;
  // the golden angle keeps neighbouring numbers apart
  const hue = (number * 137.508 + 12) % 360;
  const light = [0.5, 0.38, 0.62][Math.floor(number / 9) % 3];
  const chroma = (1 - Math.abs(2 * light - 1)) * 0.62;
  return [0, 8, 4].map((shift) => {
    const at = (shift + hue / 30) % 12;
    return Math.round(255 * (light - chroma / 2 * Math.max(-1, Math.min(at - 3, 9 - at, 1))));
  });
}

/** The colour of a share from 0 (blue) to 1 (orange), for values that have an order. */
export function ramp(share) {
  const [from, to] = [[44, 103, 176], [222, 132, 20]];
  return from.map((one, at) => Math.round(one + (to[at] - one) * share));
}

export class Points {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Float32Array} positions x and y of each point in turn
   */
  constructor(canvas, positions) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.positions = positions;
    this.count = positions.length / 2;
    this.colours = new Uint32Array(this.count).fill(packed(GREY));
    /** which points stand out, 1 or 0; null if all are alike */
    this.marked = null;
    /** {x, y, text} in the space of the positions */
    this.labels = [];
    this.waiting = false;
    this.frames = 0;
  }

  /** Colour each point by a number. */
  paint(numbers, shade = colour) {
    const known = new Map();
    this.colours = Uint32Array.from(numbers, (number) => {
      if (!known.has(number)) known.set(number, packed(shade(number)));
      return known.get(number);
    });
    this.draw();
  }

  /** Let some points stand out: a Uint8Array with 1 for these, or null for all. */
  mark(marked) {
    this.marked = marked;
    this.draw();
  }

  /** Match the size of the canvas in the page. */
  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    const [wide, high] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    if (this.ratio === ratio && this.canvas.width === wide && this.canvas.height === high) return;
    const first = this.ratio === undefined;
    this.ratio = ratio;
    this.canvas.width = wide;
    this.canvas.height = high;
    this.pixels = this.context.createImageData(wide, high);
    this.words = new Uint32Array(this.pixels.data.buffer);
    if (first) this.fit();
    this.draw();
  }

  /** Show some points, or all. */
  fit(marked = null) {
    const low = [Infinity, Infinity];
    const high = [-Infinity, -Infinity];
    for (let at = 0; at < this.count; at++) {
      if (marked && !marked[at]) continue;
      for (let axis = 0; axis < 2; axis++) {
        const value = this.positions[2 * at + axis];
        if (value < low[axis]) low[axis] = value;
        if (value > high[axis]) high[axis] = value;
      }
    }
    // without a point, any place will do
    if (low[0] > high[0]) for (const corner of [low, high]) corner.fill(0);
    this.centre = [(low[0] + high[0]) / 2, (low[1] + high[1]) / 2];
    const spans = [high[0] - low[0] || 1, high[1] - low[1] || 1];
    this.scale = 0.92 * Math.min(this.canvas.width / spans[0], this.canvas.height / spans[1]);
    this.whole ??= this.scale;
    this.draw();
  }

  /** Move by pixels of the page. */
  pan(x, y) {
    this.centre[0] -= x * this.ratio / this.scale;
    this.centre[1] -= y * this.ratio / this.scale;
    this.draw();
  }

  /** Zoom by a factor; a place of the canvas, in pixels of the page, stays where it is. */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const [before, scale] = [this.at(x, y), this.scale];
    this.scale = Math.min(Math.max(scale * factor, this.whole / 4), this.whole * 4000);
    const after = this.at(x, y);
    this.centre[0] += before[0] - after[0];
    this.centre[1] += before[1] - after[1];
    this.draw();
  }

  /** The position at a place of the canvas. */
  at(x, y) {
    return [
      (x * this.ratio - this.canvas.width / 2) / this.scale + this.centre[0],
      (y * this.ratio - this.canvas.height / 2) / this.scale + this.centre[1],
    ];
  }

  /** The number of the point nearest to a place of the canvas; -1 if none is near. */
  near(x, y) {
    const [left, top] = this.at(x, y);
    let best = (NEAREST * this.ratio / this.scale) ** 2;
    let found = -1;
    for (let at = 0; at < this.count; at++) {
      const far = (this.positions[2 * at] - left) ** 2 + (this.positions[2 * at + 1] - top) ** 2;
      if (far < best) [best, found] = [far, at];
    }
    return found;
  }

  /** The corners of the visible part. */
  view() {
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    return [[0, 0], [wide, 0], [wide, high], [0, high]].map((place) => this.at(...place));
  }

  /** The points inside a polygon of positions: a Uint8Array with 1 for these. */
  inside(corners) {
    const found = new Uint8Array(this.count);
    for (let at = 0; at < this.count; at++) {
      const [x, y] = [this.positions[2 * at], this.positions[2 * at + 1]];
      for (let one = 0, other = corners.length - 1; one < corners.length; other = one++) {
        const [[x1, y1], [x2, y2]] = [corners[one], corners[other]];
        if (y1 > y !== y2 > y && x < (x2 - x1) * (y - y1) / (y2 - y1) + x1) found[at] ^= 1;
      }
    }
    return found;
  }

  /** Draw with the next frame. */
  draw() {
    if (this.waiting || !this.pixels) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.now();
    });
  }

  now() {
    const style = getComputedStyle(this.canvas);
    const paper = rgb(style.backgroundColor);
    const ink = style.color;
    this.words.fill(packed(paper));
    const zoomed = Math.log2(Math.max(1, this.scale / this.whole));
    const few = this.count < 3000 ? 2 : this.count < 20000 ? 1 : 0;
    const side = Math.round(Math.min(9, 2 + few + zoomed / 2) * this.ratio);
    if (this.marked) {
      // the others are almost the paper
      this.dots(side, 0, (one) => blend(one, paper));
      this.dots(side + Math.round(this.ratio), 1, (one) => one);
    } else this.dots(side, null, (one) => one);
    this.context.putImageData(this.pixels, 0, 0);
    this.write(ink, style.backgroundColor);
    this.frames += 1;
  }

  dots(side, wanted, shade) {
    const { width, height } = this.canvas;
    const shift = [width / 2 - this.centre[0] * this.scale - side / 2, height / 2 - this.centre[1] * this.scale - side / 2];
    const { positions, words, colours, marked, scale, count } = this;
    const shades = new Map();
    for (let at = 0; at < count; at++) {
      if (wanted !== null && marked[at] !== wanted) continue;
      const left = Math.round(positions[2 * at] * scale + shift[0]);
      const top = Math.round(positions[2 * at + 1] * scale + shift[1]);
      if (left < 0 || top < 0 || left + side > width || top + side > height) continue;
      let shown = shades.get(colours[at]);
      if (shown === undefined) shades.set(colours[at], (shown = shade(colours[at])));
      for (let row = top; row < top + side; row++) words.fill(shown, row * width + left, row * width + left + side);
    }
  }

  /** Write the labels that have room, the first ones first. */
  write(ink, paper) {
    const { context, ratio } = this;
    context.font = `600 ${13 * ratio}px ui-sans-serif, system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.lineWidth = 4 * ratio;
    context.lineJoin = "round";
    const taken = [];
    for (const { x, y, text } of this.labels) {
      if (taken.length === LABELS) break;
      const left = (x - this.centre[0]) * this.scale + this.canvas.width / 2;
      const top = (y - this.centre[1]) * this.scale + this.canvas.height / 2;
      const [wide, high] = [context.measureText(text).width / 2 + 8 * ratio, 12 * ratio];
      if (left < wide || top < high || left > this.canvas.width - wide || top > this.canvas.height - high) continue;
      if (taken.some((one) => Math.abs(one[0] - left) < one[2] + wide && Math.abs(one[1] - top) < 2 * high)) continue;
      taken.push([left, top, wide]);
      context.strokeStyle = paper;
      context.strokeText(text, left, top);
      context.fillStyle = ink;
      context.fillText(text, left, top);
    }
  }
}

// ImageData has red first; every machine that runs browsers today is little-endian
function packed([red, green, blue]) {
  return (255 << 24 | blue << 16 | green << 8 | red) >>> 0;
}

function blend(word, paper) {
  const part = (shift, base) => Math.round((word >>> shift & 255) * 0.16 + base * 0.84);
  return packed([part(0, paper[0]), part(8, paper[1]), part(16, paper[2])]);
}

function rgb(text) {
  const found = text.match(/[\d.]+/g)?.map(Number);
  return found?.length >= 3 ? found.slice(0, 3) : [255, 255, 255];
}
