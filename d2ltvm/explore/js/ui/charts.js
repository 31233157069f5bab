/** Small charts that several figures have: a roofline, the warps of an SM, a corner to drag. */
import { counted, element, escaped, rounded, sets } from "./markup.js";
import { box, COLOURS, label, line } from "./svg.js";
import { CHIPS } from "../data/chips.js";
import { attainable } from "../models/roofline.js";

const SMALL = { "font-size": 10.5 };
const [LEAST_X, MOST_X, LEAST_Y, MOST_Y] = [0.25, 4096, 0.08, 200]; // FLOP a byte, and TFLOPS

/**
 * A roofline of float32 with a filled and a hollow mark on it, in 176 by 122 units.
 * @param {string} gpu
 * @param {number} sms multiprocessors that have work
 * @param {{reuse?: number, best?: number}} at FLOP per byte that blocks ask for, and with one move of each byte
 */
export function roofline(gpu, sms, { reuse = 0, best = 0 }) {
  const [left, wide, high] = [24, 150, 100];
  /** @param {number} value */
  const x = (value) => left + (wide * Math.log(value / LEAST_X)) / Math.log(MOST_X / LEAST_X);
  /** @param {number} value */
  const y = (value) => high * (1 - Math.log(value / LEAST_Y) / Math.log(MOST_Y / LEAST_Y));
  const peak = attainable(gpu, Infinity, sms);
  const few = sms < CHIPS[gpu].sms ? `, ${counted(sms, "SM")}` : "";
  const corner = peak / CHIPS[gpu].bandwidth_tb_s;
  const parts = [line(left, high, left + wide, high, "line"), line(left, 0, left, high, "line")];
  for (const tick of [1, 10, 100, 1000]) {
    parts.push(line(x(tick), high, x(tick), high + 3, "grey"));
    parts.push(label(x(tick), high + 10, tick, { ...SMALL, anchor: "middle", fill: "grey" }));
  }
  for (const tick of [0.1, 1, 10, 100]) {
    parts.push(label(left - 3, y(tick), tick, { ...SMALL, anchor: "end", fill: "grey" }));
  }
  const first = attainable(gpu, LEAST_X, sms);
  parts.push(
    line(x(LEAST_X), y(first), x(corner), y(peak), "ink", { "stroke-width": 1.5 }),
    line(x(corner), y(peak), x(MOST_X), y(peak), "ink", { "stroke-width": 1.5 }),
    label(left + wide, y(peak) - 11, `${rounded(peak)} TFLOPS${few}`, { ...SMALL, anchor: "end" }),
  );
  for (const [value, fill, what] of /** @type {const} */ ([
    [best, "paper", "each byte moves once"],
    [reuse, "orange", "L2 keeps nothing"],
  ])) {
    if (!value) continue;
    const [cx, cy] = [x(Math.min(value, MOST_X)), y(attainable(gpu, value, sms))];
    const title = `${what}: ${rounded(value)} FLOP a byte, at most ${rounded(attainable(gpu, value, sms))} TFLOPS`;
    parts.push(box(cx - 4, cy - 4, 8, 8, fill, { rx: 4, stroke: "#D55E00", "stroke-width": 2 }, title));
  }
  return parts.join("");
}

/**
 * The warps that an SM can hold, and those that it does hold, block by block.
 * @param {number} most
 * @param {number} blocks
 * @param {number} each warps of a block
 */
export function warps(most, blocks, each) {
  const [columns, side] = [16, 10];
  /** @type {number[][][]} */
  const places = Array.from({ length: blocks + 1 }, () => []); // by block; the last has the empty ones
  for (let k = 0; k < most; k += 1) {
    const block = Math.min(Math.floor(k / each), blocks);
    places[block].push([(k % columns) * side + 0.5, Math.floor(k / columns) * side + 0.5, side - 1, side - 1]);
  }
  const edge = { stroke: "#8a8a8a", "stroke-width": 0.5 };
  return places
    .map((cells, k) =>
      k === blocks
        ? boxes(cells, "pale", edge, "room for warps, empty")
        : boxes(cells, k % 2 ? "blue" : "sky", edge, `the warps of block ${k}`),
    )
    .join("");
}

/**
 * Many rectangles that look and mean the same, as one shape: x, y, width and height of each.
 * @param {number[][]} places
 * @param {import("./svg.js").Colour} fill
 * @param {import("./markup.js").Attributes} [more]
 * @param {string} [title]
 */
export function boxes(places, fill, more = {}, title = "") {
  if (!places.length) return "";
  const d = places.map(([x, y, wide, high]) => `M${short(x)} ${short(y)}h${short(wide)}v${short(high)}h${short(-wide)}z`);
  const inside = title ? [element("title", {}, escaped(title))] : [];
  return element("path", { class: `d2l-${fill}`, d: d.join(""), fill: COLOURS[fill], ...more }, ...inside);
}

/** @param {number} value */
function short(value) {
  return String(Math.round(value * 100) / 100);
}

/**
 * A field of corners: pressed or dragged over, each sets how far a tile reaches down and across.
 * @param {{key: string, values: number[], unit: number}} down steps, and how many units of the picture one is
 * @param {{key: string, values: number[], unit: number}} across
 * @param {number} most of the picture, in both directions
 */
export function corners(down, across, most) {
  const parts = [];
  let top = 0;
  for (const high of down.values) {
    const bottom = high === down.values[down.values.length - 1] ? most : Math.min(high * down.unit, most);
    let left = 0;
    for (const wide of across.values) {
      const right = wide === across.values[across.values.length - 1] ? most : Math.min(wide * across.unit, most);
      if (bottom > top && right > left) {
        const set = { ...sets({ [down.key]: high, [across.key]: wide }), cursor: "nwse-resize" };
        parts.push(box(left, top, right - left, bottom - top, "paper", { ...set, "fill-opacity": 0 }));
      }
      left = Math.max(left, right);
    }
    top = Math.max(top, bottom);
  }
  return parts.join("");
}

/**
 * What shows that a corner can be dragged.
 * @param {number} x
 * @param {number} y
 * @param {import("./svg.js").Colour} stroke
 */
export function handle(x, y, stroke) {
  const style = { "pointer-events": "none", "stroke-width": 2, class: `d2l-paper d2l-stroke-${stroke}`, stroke: COLOURS[stroke] };
  return box(x - 3, y - 3, 6, 6, "paper", style);
}
