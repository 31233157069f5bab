/** What TMA brings for a box that hangs over the edge of an image, and what it stores of one. */
import { counted, sets, thousands } from "../ui/markup.js";
import { box, group, label, line, outline, picture } from "../ui/svg.js";
import { boxBytes, fetched, stored } from "../models/tma_box.js";

/** @typedef {import("../ui/figure.js").State} State */

const MARGIN = 2; // places around the image that a box may reach
const SIDE = 186; // of the picture, for the image and what is around it
const BAR = 344;
const INSIDE = { "font-size": 10.5, anchor: "middle", "pointer-events": "none" };
const TEXT = { "font-size": 11.5 };
const GRID = { stroke: "#8a8a8a", "stroke-width": 0.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const tmaBox = {
  name: "tma_box",
  title: "A box that TMA copies.",
  question: "What arrives where the box hangs over the edge, and how many bytes must the barrier expect?",
  fields: [
    { key: "rows", label: "Image: rows", kind: "range", min: 1, max: 8 },
    { key: "columns", label: "Image: columns", kind: "range", min: 1, max: 8 },
    { key: "box_rows", label: "Box: rows", kind: "range", min: 1, max: 8 },
    { key: "box_columns", label: "Box: columns", kind: "range", min: 1, max: 8 },
    { key: "row", label: "Corner of the box: row, in reach", kind: "range", min: -MARGIN, max: 9 },
    { key: "column", label: "Corner of the box: column, in reach", kind: "range", min: -MARGIN, max: 9 },
    { key: "channels", label: "Channels of a pixel (float16)", kind: "steps", values: [8, 16, 32, 64] },
    { key: "store", label: "Store to the image, not load from it", kind: "check" },
  ],
  start: { rows: 6, columns: 6, box_rows: 4, box_columns: 4, row: -1, column: -1, channels: 64, store: 0 },
  draw: (state) => {
    const at = placed(state);
    return picture(
      360,
      296,
      say(state),
      label(8, 10, "the image", TEXT),
      group(8, 22, image(at)),
      label(200, 10, "shared memory", TEXT),
      group(200, 22, memory(at)),
      group(8, 254, bytes(at)),
    );
  },
  say,
};

/**
 * A state in numbers, with the box within reach of the image.
 * @param {State} state
 */
function placed(state) {
  const size = [state.rows, state.columns].map(Number);
  const shape = [state.box_rows, state.box_columns].map((n, k) => Math.min(Number(n), size[k] + 2 * MARGIN));
  const corner = [state.row, state.column].map((at, k) => held(Number(at), k, size, shape));
  const each = Number(state.channels) * 2;
  const pixels = fetched(size, corner, shape);
  return { size, shape, corner, each, pixels, store: Number(state.store), bytes: boxBytes(size, corner, shape, each) };
}

/** @typedef {ReturnType<typeof placed>} Placed */

/**
 * A corner within reach.
 * @param {number} at
 * @param {number} axis
 * @param {number[]} size
 * @param {number[]} shape
 */
function held(at, axis, size, shape) {
  return Math.max(-MARGIN, Math.min(at, size[axis] + MARGIN - shape[axis]));
}

/** @param {State} state */
function say(state) {
  const { shape, corner, each, pixels, store, bytes } = placed(state);
  const inside = pixels.filter((pixel) => pixel >= 0).length;
  const where = `corner (${corner.join(", ").replace(/-/g, "−")})`;
  const box = `a box of ${shape[0]} × ${shape[1]} pixels of ${each} bytes`;
  if (store) {
    return (
      `TMA stores ${box} at ${where}: ${counted(inside, "pixel")}, ${counted(bytes.image, "byte")}, ` +
      `${inside === 1 ? "is" : "are"} written, and ${counted(bytes.zeros, "byte")} outside of the image left out.`
    );
  }
  return (
    `TMA fetches ${box} at ${where}: ${counted(bytes.image, "byte")} of the image and ${counted(bytes.zeros, "byte")} of zeros. ` +
    `The barrier waits for ${counted(bytes.barrier, "byte")}, as for every box of this shape.`
  );
}

/**
 * The image, and the box over it. Pressed, the box moves there.
 * @param {Placed} at
 */
function image({ size, shape, corner, store }) {
  const cell = Math.min(22, Math.floor(SIDE / (Math.max(...size) + 2 * MARGIN)));
  const places = stored(size, corner, shape);
  const parts = [];
  for (let y = -MARGIN; y < size[0] + MARGIN; y += 1) {
    for (let x = -MARGIN; x < size[1] + MARGIN; x += 1) {
      const within = y >= 0 && y < size[0] && x >= 0 && x < size[1];
      const [i, j] = [y - corner[0], x - corner[1]];
      const boxed = i >= 0 && i < shape[0] && j >= 0 && j < shape[1];
      const press = sets({ row: held(y - (shape[0] >> 1), 0, size, shape), column: held(x - (shape[1] >> 1), 1, size, shape) });
      const [left, top] = [(x + MARGIN) * cell, (y + MARGIN) * cell];
      const fill = boxed ? (within ? "sky" : "amber") : within ? "pale" : "paper";
      const grid = within || boxed ? GRID : {};
      const pixel = y * size[1] + x; // shown from 1 on: a 0 is TMA's
      const title = within ? `pixel (${y}, ${x})` : "outside of the image";
      parts.push(box(left, top, cell, cell, fill, { ...grid, ...press }, title));
      const shown = within ? (store ? (boxed ? places[pixel] + 1 : "") : pixel + 1) : boxed ? (store ? "×" : 0) : "";
      const ink = boxed ? "black" : "grey";
      if (shown !== "") parts.push(label(left + cell / 2, top + cell / 2, shown, { ...INSIDE, fill: ink }));
    }
  }
  parts.push(outline(MARGIN * cell, MARGIN * cell, size[1] * cell, size[0] * cell, "ink", { "stroke-width": 1.2 }));
  const [y, x] = corner.map((first) => (first + MARGIN) * cell);
  return parts.join("") + outline(x, y, shape[1] * cell, shape[0] * cell, "blue", { "stroke-width": 3 });
}

/**
 * The box in shared memory, row behind row; each row with the byte that it begins at.
 * @param {Placed} at
 */
function memory({ size, shape, each, pixels, store }) {
  const cell = Math.min(20, Math.floor(124 / Math.max(...shape)));
  const parts = [];
  for (let i = 0; i < shape[0]; i += 1) {
    parts.push(label(28, (i + 0.5) * cell, thousands(i * shape[1] * each), { anchor: "end", fill: "grey", "font-size": 10.5 }));
    for (let j = 0; j < shape[1]; j += 1) {
      const k = i * shape[1] + j;
      const within = pixels[k] >= 0;
      const what = within ? `pixel (${Math.floor(pixels[k] / size[1])}, ${pixels[k] % size[1]})` : store ? "not stored" : "zeros";
      const shown = store ? k + 1 : pixels[k] + 1;
      const [left, top] = [32 + j * cell, i * cell];
      parts.push(box(left, top, cell, cell, within ? "sky" : "amber", GRID, `bytes from ${thousands(k * each)}: ${what}`));
      parts.push(label(left + cell / 2, top + cell / 2, shown, { ...INSIDE, fill: "black" }));
    }
  }
  const numbers = store ? ["numbers: in the tile", "left: first byte of a row"] : ["numbers: in the image", "left: first byte of a row"];
  numbers.forEach((text, k) => parts.push(label(0, 146 + 15 * k, text, { ...TEXT, fill: "grey" })));
  return parts.join("");
}

/**
 * The bytes of the box: of the image, and the rest.
 * @param {Placed} at
 */
function bytes({ bytes: { image: own, zeros, barrier }, store }) {
  const wide = (BAR * own) / barrier;
  const rest = store ? "left out" : "of zeros";
  return [
    label(0, -9, store ? `${thousands(barrier)} bytes in shared memory` : `the barrier waits for ${thousands(barrier)} bytes`, TEXT),
    box(0, 0, BAR, 16, "amber", {}, `${thousands(zeros)} bytes ${rest}`),
    box(0, 0, wide, 16, "sky", {}, `${thousands(own)} bytes of the image`),
    line(wide, -2, wide, 18, "ink"),
    label(0, 27, `${thousands(own)} ${store ? "written" : "of the image"}`, TEXT),
    label(BAR, 27, `${thousands(zeros)} ${rest}`, { ...TEXT, anchor: "end" }),
  ].join("");
}
