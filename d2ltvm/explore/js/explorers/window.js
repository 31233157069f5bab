/** Which pixels a convolution's kernel lies on, and how many of all products are with zeros. */
import { counted, element, rounded, sets, thousands } from "../ui/markup.js";
import { COLOURS, box, group, label, line, outline, picture } from "../ui/svg.js";
import { covered, outSize, paddingProducts, pixelsUnder } from "../models/window.js";

/** @typedef {import("../ui/figure.js").State} State */

const SIDE = 196; // of the picture, for the padded image
const SMALL = 134; // for the output
const TEXT = { "font-size": 11.5 };
const GRID = { stroke: "#8a8a8a", "stroke-width": 0.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const convolutionWindow = {
  name: "window",
  title: "A convolution's window.",
  question: "Which padding keeps the output as large as the image, and how many products are then with zeros?",
  fields: [
    { key: "n", label: "Image: rows and columns", kind: "range", min: 1, max: 9 },
    { key: "k", label: "Kernel: rows and columns", kind: "range", min: 1, max: 5 },
    { key: "p", label: "Padding on each side", kind: "range", min: 0, max: 3 },
    { key: "s", label: "Stride", kind: "range", min: 1, max: 3 },
    { key: "d", label: "Dilation", kind: "range", min: 1, max: 3, when: (state) => state.k !== 1 },
    { key: "row", label: "Row of the output, up to its last", kind: "range", min: 0, max: 14 },
    { key: "column", label: "Column of the output, up to its last", kind: "range", min: 0, max: 14 },
    { key: "tap", label: "Tap of the kernel, row by row", kind: "range", min: 0, max: 24 },
  ],
  start: { n: 5, k: 3, p: 1, s: 1, d: 1, row: 0, column: 1, tap: 0 },
  draw: (state) => {
    const at = placed(state);
    return picture(
      360,
      292,
      say(state),
      group(8, 24, image(at)),
      label(8, 10, "image with its padding", TEXT),
      group(218, 24, output(at)),
      label(218, 10, "Y: zeros of each pixel", TEXT),
      group(218, 186, kernel(at)),
      label(218, 172, "K: zeros of each tap", TEXT),
      group(8, 250, shares(at)),
    );
  },
  say,
};

/**
 * A state in numbers, with the pixel of the output and the tap inside of what there is.
 * @param {State} state
 */
function placed(state) {
  const [n, k, p, s, d] = [state.n, state.k, state.p, state.s, state.d].map(Number);
  const o = outSize(n, k, p, s, d);
  const [row, column] = [state.row, state.column].map((at) => Math.max(0, Math.min(Number(at), o - 1)));
  const tap = Math.min(Number(state.tap), k * k - 1);
  const pixels = pixelsUnder(n, k, p, s, d);
  const under = { rows: pixels[row] || [], columns: pixels[column] || [] };
  return { n, k, p, s, d, o, row, column, tap, under, ...paddingProducts(n, k, p, s, d) };
}

/** @typedef {ReturnType<typeof placed>} Placed */

/** @param {State} state */
function say(state) {
  const { n, k, p, d, o, row, column, tap, under, outputs, zeros, all } = placed(state);
  if (!o) {
    return `The kernel covers ${counted(covered(k, d), "pixel")} along each axis, and the padded image has ${n + 2 * p}: there is no output.`;
  }
  const [y, x] = [under.rows[Math.floor(tap / k)], under.columns[tap % k]];
  const what = inside(y, n) && inside(x, n) ? `pixel (${y}, ${x})` : "padding";
  const share = rounded((100 * zeros) / all);
  return (
    `Y is ${o} × ${o}. Y[${row}, ${column}] adds up ${counted(k * k, "product")}, ${outputs[row][column]} of them with zeros; ` +
    `tap (${Math.floor(tap / k)}, ${tap % k}) lies on ${what}. Of all ${counted(all, "product")} for a pair of channels ` +
    `${thousands(zeros)} are with zeros, ${share}%.`
  );
}

/**
 * @param {number} pixel
 * @param {number} n
 */
function inside(pixel, n) {
  return pixel >= 0 && pixel < n;
}

/**
 * The padded image with the window on it. Pressed, the window moves there.
 * @param {Placed} at
 */
function image(at) {
  const { n, k, p, s, d, o, tap, under } = at;
  const many = n + 2 * p;
  const cell = Math.min(28, Math.floor(SIDE / many));
  const parts = [];
  /** @type {{grey: string[], black: string[]}} */
  const zeros = { grey: [], black: [] };
  const wide = covered(k, d);
  const nearest = (/** @type {number} */ i) => Math.max(0, Math.min(o - 1, Math.round((i + p - (wide - 1) / 2) / s)));
  for (let y = -p; y < n + p; y += 1) {
    for (let x = -p; x < n + p; x += 1) {
      const pixel = inside(y, n) && inside(x, n);
      const tapped = under.rows.includes(y) && under.columns.includes(x);
      const fill = tapped ? (pixel ? "sky" : "amber") : pixel ? "pale" : "paper";
      const title = (pixel ? `pixel (${y}, ${x})` : "padding: 0") + (tapped ? ", under a tap" : "");
      const press = o ? sets({ row: nearest(y), column: nearest(x) }) : {};
      const [left, top] = [(x + p) * cell, (y + p) * cell];
      parts.push(box(left, top, cell, cell, fill, { ...GRID, ...press }, title));
      if (!pixel) zeros[tapped ? "black" : "grey"].push(digit(left + cell / 2, top + cell / 2, 0));
    }
  }
  parts.push(digits("grey", zeros.grey), digits("black", zeros.black));
  parts.push(outline(p * cell, p * cell, n * cell, n * cell, "ink", { "stroke-width": 1 }));
  if (!o) return parts.join("");
  const [top, left] = [under.rows[0] + p, under.columns[0] + p];
  parts.push(outline(left * cell, top * cell, wide * cell, wide * cell, "blue", { "stroke-width": 3 }));
  const [y, x] = [under.rows[Math.floor(tap / k)] + p, under.columns[tap % k] + p];
  return parts.join("") + chosen(x * cell, y * cell, cell, "black");
}

/**
 * What marks the tap that is looked at, in the image and in the kernel.
 * @param {number} x
 * @param {number} y
 * @param {number} cell
 * @param {import("../ui/svg.js").Colour} stroke
 */
function chosen(x, y, cell, stroke) {
  return outline(x + 2, y + 2, cell - 4, cell - 4, stroke, { "stroke-width": 1.5, "stroke-dasharray": "3 2" });
}

/**
 * A square of counts: of zeros at each pixel of the output, or at each tap.
 * @param {number[][]} counts
 * @param {number} most of a cell
 * @param {number} cell its size
 * @param {(y: number, x: number) => {press: Record<string, number>, title: string}} about
 */
function table(counts, most, cell, about) {
  const cells = [];
  const numbers = [];
  for (let y = 0; y < counts.length; y += 1) {
    for (let x = 0; x < counts.length; x += 1) {
      const zeros = counts[y][x];
      const { press, title } = about(y, x);
      const tint = { "fill-opacity": Math.round((50 * zeros) / most) / 100, "pointer-events": "none" };
      cells.push(box(x * cell, y * cell, cell, cell, "paper", { ...GRID, ...sets(press) }, title));
      if (zeros) cells.push(box(x * cell, y * cell, cell, cell, "amber", tint));
      const fits = cell >= 6.6 * String(zeros).length;
      if (fits) numbers.push(digit((x + 0.5) * cell, (y + 0.5) * cell, zeros));
    }
  }
  return cells.join("") + digits("ink", numbers);
}

/**
 * Numbers in cells: what they share is said once, since a frame may have hundreds.
 * @param {import("../ui/svg.js").Colour} fill
 * @param {string[]} numbers
 */
function digits(fill, numbers) {
  const middle = { "text-anchor": "middle", "dominant-baseline": "central", "pointer-events": "none" };
  return element("g", { class: `d2l-${fill}`, fill: COLOURS[fill], "font-size": 10.5, ...middle }, ...numbers);
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} number
 */
function digit(x, y, number) {
  return `<text x="${x}" y="${y}">${number}</text>`;
}

/** @param {Placed} at */
function output({ k, o, row, column, outputs }) {
  if (!o) return label(0, 20, "no output", { fill: "orange" });
  const cell = Math.min(24, Math.floor(SMALL / o));
  const cells = table(outputs, k * k, cell, (y, x) => ({
    press: { row: y, column: x },
    title: `Y[${y}, ${x}]: ${outputs[y][x]} of its ${counted(k * k, "product")} with zeros`,
  }));
  return cells + outline(column * cell, row * cell, cell, cell, "blue", { "stroke-width": 3 });
}

/** @param {Placed} at */
function kernel({ k, o, tap, taps }) {
  if (!o) return "";
  const cell = Math.min(24, 100 / k);
  const cells = table(taps, o * o, cell, (y, x) => ({
    press: { tap: y * k + x },
    title: `tap (${y}, ${x}): on padding for ${taps[y][x]} of ${counted(o * o, "pixel")} of Y`,
  }));
  return cells + chosen((tap % k) * cell, Math.floor(tap / k) * cell, cell, "ink");
}

/**
 * All products, those with zeros first.
 * @param {Placed} at
 */
function shares({ zeros, all }) {
  if (!all) return "";
  const wide = (SIDE * zeros) / all;
  return [
    label(0, -8, "all products of a pair of channels", TEXT),
    box(0, 0, SIDE, 16, "sky", {}, `${thousands(all - zeros)} with pixels`),
    box(0, 0, wide, 16, "amber", {}, `${thousands(zeros)} with zeros`),
    line(wide, -2, wide, 18, "ink"),
    label(0, 27, `${thousands(zeros)} with zeros`, TEXT),
    label(SIDE, 27, `${thousands(all - zeros)} with pixels`, { ...TEXT, anchor: "end" }),
  ].join("");
}
