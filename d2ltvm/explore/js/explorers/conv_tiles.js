/** A convolution's tiles: of a block, a warp and a thread; what they take, and how fast they can be. */
import { CHIPS } from "../data/chips.js";
import { occupancy } from "../models/occupancy.js";
import { convTiling } from "../models/tiling.js";
import { boxes, corners, handle, roofline, warps } from "../ui/charts.js";
import { counted, sets, thousands } from "../ui/markup.js";
import { box, group, label, line, outline, picture } from "../ui/svg.js";
import { ceiling, impossible, kib, taken } from "./hierarchy.js";

/** @typedef {import("../ui/figure.js").State} State */

const SIDE = 132; // of the picture, for the part of the image
const CHANNELS = [1, 2, 4, 8, 16]; // of a thread
const COLUMNS = [1, 2, 4, 8];
const THREADS = [1, 2, 4, 8];
const [TALL, BROAD] = [7, 3.5]; // of the picture, for a sum of a thread: a channel by a pixel
const TEXT = { "font-size": 11 };
const EDGE = { stroke: "#8a8a8a", "stroke-width": 0.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const convTiles = {
  name: "conv_tiles",
  title: "Tiles of a convolution.",
  question: "Which tiles give each SM a block, and how much of the reuse do they cost?",
  fields: [
    { key: "gpu", label: "GPU", kind: "choice", values: Object.keys(CHIPS) },
    { key: "channels", label: "Channels of X and of Y", kind: "steps", values: [16, 32, 64, 128, 256] },
    { key: "n", label: "Image: rows and columns", kind: "steps", values: [14, 28, 56, 64, 112, 128] },
    { key: "k", label: "Kernel: rows and columns", kind: "choice", values: [1, 3, 5] },
    { key: "ec", label: "Output channels of a thread", kind: "steps", values: CHANNELS },
    { key: "tc", label: "Threads along channels", kind: "steps", values: THREADS },
    { key: "eh", label: "Rows of a thread", kind: "steps", values: [1, 2, 4] },
    { key: "th", label: "Threads below each other", kind: "steps", values: [...THREADS, 16, 32] },
    { key: "ew", label: "Columns of a thread", kind: "steps", values: COLUMNS },
    { key: "tw", label: "Threads side by side", kind: "steps", values: [...THREADS, 16, 32] },
    { key: "depth", label: "Input channels of a round", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "others", label: "Registers for addresses and the rest", kind: "range", min: 0, max: 100 },
  ],
  start: {
    gpu: "H200", channels: 64, n: 64, k: 3, ec: 8, tc: 4, eh: 2, th: 2, ew: 4, tw: 16, depth: 1, others: 26,
  },
  draw: (state) => {
    const at = worked(state);
    return picture(
      360,
      330,
      say(state),
      label(8, 10, `a channel of Y: ${at.high} × ${at.wide}`, TEXT),
      group(8, 22, plane(at)),
      group(148, 22, channels(at)),
      label(192, 10, `a thread: ${at.ec} × ${at.eh} × ${at.ew} sums`, TEXT),
      group(192, 20, thread(at)),
      label(8, 194, "TFLOPS over FLOP a byte", TEXT),
      group(0, 206, roofline(at.gpu, at.busy, at.wrong ? {} : at)),
      label(192, 194, "warps of an SM", TEXT),
      group(192, 204, warps(CHIPS[at.gpu].max_threads / 32, at.held.blocks, Math.ceil(at.threads / 32))),
      group(192, 260, taken(at)),
    );
  },
  say,
};

/**
 * Everything that follows from a state.
 * @param {State} state
 */
function worked(state) {
  const { gpu } = /** @type {{gpu: string}} */ (state);
  const [all, n, k, depth] = [state.channels, state.n, state.k, state.depth].map(Number);
  const [ec, eh, ew, tc, th, tw] = [state.ec, state.eh, state.ew, state.tc, state.th, state.tw].map(Number);
  const shape = [all, all, n, k, (k - 1) / 2, 1];
  const tiles = convTiling(shape, [[1, tc, ec], [1, th, eh], [1, tw, ew]], depth);
  const registers = tiles.sums + tiles.operands + Number(state.others);
  const wrong = impossible(gpu, tiles.threads, registers, tiles.shared);
  const held = wrong ? { blocks: 0, warps: 0, limit: "" } : occupancy(gpu, tiles.threads, registers, tiles.shared);
  const busy = Math.min(tiles.blocks, CHIPS[gpu].sms);
  const [reuse, best] = [tiles.flop / tiles.moved, tiles.flop / tiles.least];
  const [deep, high, wide] = [tc * ec, th * eh, tw * ew];
  return {
    ...tiles, gpu, all, n, k, ec, eh, ew, tc, th, tw, deep, high, wide, registers, wrong, held, busy, reuse, best,
  };
}

/** @param {State} state */
function say(state) {
  const at = worked(state);
  const tile = `A block of ${counted(at.threads, "thread")} computes ${at.deep} channels of ${at.high} × ${at.wide}`;
  if (at.wrong) return `${tile}. That cannot be: ${at.wrong}.`;
  return (
    `${tile}, with ${at.registers} registers a thread and ${kib(at.shared)} of shared memory: ` +
    `${counted(at.held.blocks, "block")} an SM, ${at.held.warps} of ${CHIPS[at.gpu].max_threads / 32} warps, ` +
    `limited by ${at.held.limit}. ${ceiling(at)}`
  );
}

/**
 * How many threads of each direction the first warp has: it goes along columns, rows, channels.
 * @param {ReturnType<typeof worked>} at
 */
function warp({ tc, th, tw }) {
  const across = Math.min(tw, 32);
  const down = Math.min(th, 32 / across);
  return { across, down, deep: Math.min(tc, 32 / across / down) };
}

/**
 * Pixels of a channel of the output: those of the first blocks, a warp and a thread.
 * @param {ReturnType<typeof worked>} at
 */
function plane(at) {
  const { high, wide, n, k, eh, ew, th, tw } = at;
  const region = Math.max(64, n);
  const unit = SIDE / region;
  const { across, down } = warp(at);
  const size = n * unit;
  const parts = [box(0, 0, SIDE, SIDE, "paper")];
  for (let y = high; y < n; y += high) parts.push(line(0, y * unit, size, y * unit, "line"));
  for (let x = wide; x < n; x += wide) parts.push(line(x * unit, 0, x * unit, size, "line"));
  parts.push(outline(0, 0, size, size, "grey", { "stroke-width": 1 }));
  const [tall, broad] = [Math.min(high * unit, SIDE), Math.min(wide * unit, SIDE)];
  const style = { stroke: "#222222", class: "d2l-pale d2l-stroke-ink" };
  parts.push(box(0, 0, broad, tall, "pale", style, "the pixels of a block"));
  /** @type {[number, number, import("../ui/svg.js").Colour, string][]} */
  const owners = [[down * eh, across * ew, "sky", "a warp's"], [eh, ew, "orange", "a thread's"]];
  for (const [y, x, fill, title] of owners) {
    parts.push(box(0, 0, Math.min(x * unit, SIDE), Math.min(y * unit, SIDE), fill, {}, title));
  }
  const halo = ((k - 1) / 2) * unit;
  if (halo) parts.push(outline(-halo, -halo, broad + 2 * halo, tall + 2 * halo, "green", { "stroke-width": 1.2, "stroke-dasharray": "3 2" }));
  const steps = [...THREADS, 16, 32];
  parts.push(corners({ key: "th", values: steps, unit: eh * unit }, { key: "tw", values: steps, unit: ew * unit }, SIDE));
  parts.push(handle(broad, tall, "ink"));
  parts.push(label(0, 153, "dashed: the pixels of X", { "font-size": 10.5 }));
  return parts.join("");
}

/**
 * The output's channels, from top to bottom: a block's, a warp's, a thread's.
 * @param {ReturnType<typeof worked>} at
 */
function channels(at) {
  const unit = SIDE / Math.max(64, at.all);
  const parts = [box(0, 0, 16, at.all * unit, "paper", { stroke: "#8a8a8a" }, `${at.all} channels`)];
  for (let c = at.deep; c < at.all; c += at.deep) parts.push(line(0, c * unit, 16, c * unit, "line"));
  /** @type {[number, import("../ui/svg.js").Colour, string][]} */
  const owners = [[at.deep, "pale", "a block's"], [warp(at).deep * at.ec, "sky", "a warp's"], [at.ec, "orange", "a thread's"]];
  for (const [many, fill, title] of owners) {
    const edge = fill === "pale" ? { stroke: "#222222", class: "d2l-pale d2l-stroke-ink" } : {};
    parts.push(box(0, 0, 16, Math.min(many * unit, SIDE), fill, edge, title));
  }
  let top = 0;
  for (const many of THREADS) {
    const bottom = Math.min(many * at.ec * unit, SIDE);
    const set = { ...sets({ tc: many }), cursor: "ns-resize", "fill-opacity": 0 };
    if (bottom > top) parts.push(box(-4, top, 28, bottom - top, "paper", set));
    top = bottom;
  }
  parts.push(handle(8, Math.min(at.deep * unit, SIDE), "ink"));
  return parts.join("");
}

/**
 * A thread's sums, channels by pixels, and the operands for them: its kernels and its pixels.
 * @param {ReturnType<typeof worked>} at
 */
function thread({ ec, eh, ew, k, operands }) {
  const [left, top] = [40, 32];
  const pixels = cells(eh, ew + k - 1, 7).map(([x, y, ...size]) => [left + x, y, ...size]);
  const kernels = cells(ec, k, TALL).map(([x, y, ...size]) => [x, top + y, ...size]);
  const sums = cells(ec, eh * ew, TALL, BROAD).map(([x, y, ...size]) => [left + x, top + y, ...size]);
  const field = corners({ key: "ec", values: CHANNELS, unit: TALL }, { key: "ew", values: COLUMNS, unit: eh * BROAD }, 32 * BROAD);
  return [
    boxes(pixels, "green", EDGE, "pixels in registers"),
    boxes(kernels, "amber", EDGE, "kernels in registers"),
    box(left, top, 32 * BROAD, 16 * TALL, "paper", EDGE),
    boxes(sums, "orange", EDGE, "sums"),
    group(left, top, field, handle(eh * ew * BROAD, ec * TALL, "ink")),
    label(0, 155, `${operands} operands, ${thousands(ec * eh * ew * k)} products`, { "font-size": 10.5 }),
  ].join("");
}

/**
 * Rectangles in rows and columns.
 * @param {number} rows
 * @param {number} columns
 * @param {number} tall
 * @param {number} [broad]
 */
function cells(rows, columns, tall, broad = tall) {
  return Array.from({ length: rows * columns }, (_, at) => [
    (at % columns) * broad, Math.floor(at / columns) * tall, broad, tall,
  ]);
}
