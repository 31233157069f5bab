/** A product's tiles: of a block, a warp and a thread; what they take, and how fast they can be. */
import { CHIPS } from "../data/chips.js";
import { occupancy } from "../models/occupancy.js";
import { attainable } from "../models/roofline.js";
import { productTiling } from "../models/tiling.js";
import { boxes, corners, handle, roofline, warps } from "../ui/charts.js";
import { counted, rounded, thousands } from "../ui/markup.js";
import { box, group, label, line, outline, picture } from "../ui/svg.js";

/** @typedef {import("../ui/figure.js").State} State */

const SIDE = 144; // of the picture, for the part of C and for the thread's tile
const ELEMENTS = [1, 2, 4, 8, 16];
const DOWN = [1, 2, 4, 8, 16, 32];
const ACROSS = [1, 2, 4, 8];
const CELL = 8; // of the picture, for an element of a thread's tile
const TEXT = { "font-size": 11 };

const SIZES = [256, 512, 1024, 2048, 4096, 8192];
/** @type {import("../ui/fields.js").Field[]} */
const FIELDS = [
  { key: "gpu", label: "GPU", kind: "choice", values: Object.keys(CHIPS) },
  { key: "n", label: "Rows and columns of A, B and C", kind: "steps", values: SIZES },
  { key: "ey", label: "Rows of a thread", kind: "steps", values: ELEMENTS },
  { key: "ex", label: "Columns of a thread", kind: "steps", values: ELEMENTS },
  { key: "ly", label: "Lanes below each other, of 32", kind: "steps", values: DOWN },
  { key: "wy", label: "Warps below each other", kind: "steps", values: DOWN },
  { key: "wx", label: "Warps side by side", kind: "steps", values: ACROSS },
  { key: "depth", label: "Terms of the sum in a tile", kind: "steps", values: [4, 8, 16, 32, 64] },
  { key: "stages", label: "Tiles of each matrix at a time", kind: "range", min: 1, max: 4 },
  { key: "others", label: "Registers for addresses and the rest", kind: "range", min: 0, max: 100 },
];

/** @type {import("../ui/figure.js").Explorer} */
export const hierarchy = {
  name: "hierarchy",
  title: "Tiles of a product.",
  question: "Which tiles bring the product from the slope of the roofline to its roof, and what do they take of an SM?",
  fields: FIELDS,
  fieldsFor: ({ n }) => FIELDS.map((field) => (field.key === "n" ? { ...field, values: sizes(n) } : field)),
  start: { gpu: "H200", n: 4096, ey: 1, ex: 1, ly: 1, wy: 32, wx: 1, depth: 32, stages: 1, others: 28 },
  draw: (state, given) => {
    const at = worked(state, given);
    return picture(
      360,
      330,
      say(state, given),
      label(8, 10, `C: ${at.down} × ${at.across} a block`, TEXT),
      group(8, 20, block(at)),
      label(192, 10, `a thread: ${state.ey} × ${state.ex} sums`, TEXT),
      group(192, 20, thread(at)),
      label(8, 194, "TFLOPS over FLOP a byte", TEXT),
      group(0, 206, roofline(at.gpu, at.busy, at.wrong ? {} : at)),
      label(192, 194, "warps of an SM", TEXT),
      group(192, 204, warps(CHIPS[at.gpu].max_threads / 32, at.held.blocks, at.threads / 32)),
      group(192, 260, taken(at)),
    );
  },
  say,
};

/**
 * The sizes that can be set, with that of a kernel in hand.
 * @param {number} n
 */
function sizes(n) {
  return [...new Set([...SIZES, n])].sort((a, b) => a - b);
}

/**
 * Everything that follows from a state.
 * @param {State} state
 * @param {any} given virtual threads and padding of a kernel in hand
 */
function worked(state, given) {
  const { gpu } = /** @type {{gpu: string}} */ (state);
  const [n, ey, ex, ly, wy, wx] = [state.n, state.ey, state.ex, state.ly, state.wy, state.wx].map(Number);
  const [py, px] = given ? [fitting(given.pieces[0], ey), fitting(given.pieces[1], ex)] : [1, 1];
  const rows = [py, wy, ly, ey / py];
  const columns = [px, wx, 32 / ly, ex / px];
  const tiles = productTiling([n, n, n], rows, columns, Number(state.depth), Number(state.stages));
  const shared = tiles.shared + (given ? given.padding : 0);
  const registers = tiles.sums + tiles.operands + Number(state.others);
  const wrong = impossible(gpu, tiles.threads, registers, shared);
  const held = wrong ? { blocks: 0, warps: 0, limit: "" } : occupancy(gpu, tiles.threads, registers, shared);
  const busy = Math.min(tiles.blocks, CHIPS[gpu].sms);
  const [reuse, best] = [tiles.flop / tiles.moved, tiles.flop / tiles.least];
  const [down, across] = [ey * ly * wy, ex * (32 / ly) * wx];
  return { ...tiles, gpu, n, ey, ex, rows, columns, down, across, shared, registers, wrong, held, busy, reuse, best };
}

/**
 * A kernel's virtual threads where they divide a thread's elements; else none.
 * @param {number} pieces
 * @param {number} elements
 */
function fitting(pieces, elements) {
  return elements % pieces ? 1 : pieces;
}

/**
 * Why no SM can hold a block, or nothing.
 * @param {string} gpu
 * @param {number} threads
 * @param {number} registers
 * @param {number} shared
 */
export function impossible(gpu, threads, registers, shared) {
  const chip = CHIPS[gpu];
  if (threads > 1024) return `a block has at most 1,024 threads, not ${thousands(threads)}`;
  if (registers > 255) return `a thread has at most 255 registers, not ${registers}`;
  const most = chip.shared_block_kib * 1024;
  if (shared > most) return `a block has at most ${chip.shared_block_kib} KiB of shared memory on ${gpu}, not ${kib(shared)}`;
  if (!occupancy(gpu, threads, registers, shared).blocks) return `an SM has too few registers for ${thousands(threads)} × ${registers}`;
  return "";
}

/** @param {number} bytes */
export function kib(bytes) {
  return `${rounded(bytes / 1024)} KiB`;
}

/**
 * @param {State} state
 * @param {any} given
 */
function say(state, given) {
  const at = worked(state, given);
  const tile = `A block computes ${at.down} × ${at.across} elements with ${thousands(at.threads)} threads`;
  if (at.wrong) return `${tile}. That cannot be: ${at.wrong}.`;
  return (
    `${tile}, ${at.registers} registers each, and ${kib(at.shared)} of shared memory: ${counted(at.held.blocks, "block")} ` +
    `an SM, ${at.held.warps} of ${CHIPS[at.gpu].max_threads / 32} warps, limited by ${at.held.limit}. ${ceiling(at)}`
  );
}

/**
 * What the roofline says of a kernel.
 * @param {{gpu: string, busy: number, reuse: number, best: number}} at
 */
export function ceiling({ gpu, busy, reuse, best }) {
  const [least, most] = [attainable(gpu, reuse, busy), attainable(gpu, best, busy)];
  const { sms, bandwidth_tb_s: bandwidth } = CHIPS[gpu];
  const arithmetic = busy < sms ? `the arithmetic of ${counted(busy, "SM")} of ${sms}` : "arithmetic";
  const by = reuse * bandwidth < attainable(gpu, Infinity, busy) ? "memory" : arithmetic;
  const otherwise = most > least ? `; ${rounded(most)} if each byte moves once` : "";
  return (
    `${rounded(reuse)} FLOP for each byte that blocks ask for: on ${gpu} at most ${rounded(least)} TFLOPS, ` +
    `by ${by}, if the L2 cache keeps nothing${otherwise}.`
  );
}

/**
 * The first tiles of C, with one warp of the first block and its first thread.
 * @param {ReturnType<typeof worked>} at
 */
function block({ down, across, rows, columns }) {
  const region = Math.max(256, 2 ** Math.ceil(Math.log2(Math.max(down, across))));
  const unit = SIDE / region;
  const [high, wide] = [down * unit, across * unit];
  const parts = [box(0, 0, SIDE, SIDE, "paper")];
  for (let y = down; y < region; y += down) parts.push(line(0, y * unit, SIDE, y * unit, "line"));
  for (let x = across; x < region; x += across) parts.push(line(x * unit, 0, x * unit, SIDE, "line"));
  parts.push(outline(0, 0, SIDE, SIDE, "grey", { "stroke-width": 1 }));
  parts.push(box(0, 0, wide, high, "pale", { stroke: "#222222", class: "d2l-pale d2l-stroke-ink" }, "the tile of a block"));
  for (const [tile, fill, title] of /** @type {const} */ ([[1, "sky", "a warp's"], [0, "orange", "a thread's"]])) {
    for (const [y, tall] of runs(rows, tile)) {
      for (const [x, broad] of runs(columns, tile)) {
        parts.push(box(x * unit, y * unit, Math.max(broad * unit, 2), Math.max(tall * unit, 2), fill, {}, title));
      }
    }
  }
  const [step, by] = [(down / rows[1]) * unit, (across / columns[1]) * unit];
  parts.push(corners({ key: "wy", values: DOWN, unit: step }, { key: "wx", values: ACROSS, unit: by }, SIDE));
  parts.push(handle(wide, high, "ink"));
  parts.push(label(0, SIDE + 9, "blue: a warp, orange: a thread", { "font-size": 10.5 }));
  return parts.join("");
}

/**
 * Where the elements of the first warp, or of its first thread, begin along one direction, and how
 * many neighbours there are.
 * @param {number[]} levels pieces, warps, lanes and elements
 * @param {number} warp 1 for the warp's, 0 for the thread's
 * @returns {[number, number][]}
 */
function runs([pieces, many, lanes, elements], warp) {
  const long = warp ? lanes * elements : elements;
  return Array.from({ length: pieces }, (_, piece) => [piece * many * lanes * elements, long]);
}

/**
 * A thread's sums, and the operands that it holds for them: a column of A and a row of B.
 * @param {ReturnType<typeof worked>} at
 */
function thread({ ey, ex }) {
  const from = 14; // behind the operands
  const parts = [];
  const grid = { stroke: "#8a8a8a", "stroke-width": 0.5 };
  const all = Array.from({ length: 16 }, (_, k) => k);
  for (const [from_a, fill, title] of /** @type {const} */ ([[true, "amber", "operands of A"], [false, "green", "operands of B"]])) {
    const cells = all.map((k) => (from_a ? [0, from + k * CELL, CELL, CELL] : [from + k * CELL, 0, CELL, CELL]));
    const many = from_a ? ey : ex;
    parts.push(boxes(cells.slice(0, many), fill, grid, title), boxes(cells.slice(many), "paper", grid));
  }
  parts.push(box(from, from, 16 * CELL, 16 * CELL, "paper", grid));
  parts.push(box(from, from, ex * CELL, ey * CELL, "orange", {}, "sums"));
  const strips = all.flatMap((k) => [[from + k * CELL, from, CELL, 16 * CELL], [from, from + k * CELL, 16 * CELL, CELL]]);
  parts.push(boxes(strips, "paper", { "fill-opacity": 0, ...grid }));
  const field = corners({ key: "ey", values: ELEMENTS, unit: CELL }, { key: "ex", values: ELEMENTS, unit: CELL }, 16 * CELL);
  parts.push(group(from, from, field, handle(ex * CELL, ey * CELL, "ink")));
  const count = `${ey} + ${ex} loads, ${counted(ey * ex, "product")}`;
  parts.push(label(0, SIDE + 9, count, { "font-size": 10.5 }));
  return parts.join("");
}

/**
 * What a block and a thread take, in words.
 * @param {{wrong: string, threads: number, shared: number, sums: number, operands: number, registers: number, held: {warps: number, limit: string}, blocks: number}} at
 */
export function taken(at) {
  const more = at.registers - at.sums - at.operands;
  const lines = [
    `${thousands(at.threads)} threads, ${kib(at.shared)} shared`,
    `registers: ${at.sums} + ${at.operands} + ${more} = ${at.registers}`,
    at.wrong ? "no such block" : `limited by ${at.held.limit}`,
    `${counted(at.blocks, "block")} in the grid`,
  ];
  return lines
    .map((text, k) => label(0, k * 16, text, { "font-size": 10.5, fill: at.wrong && k === 2 ? "orange" : "ink" }))
    .join("");
}
