/** The reader's own roofline: what memory and arithmetic allow, and a dot for each kernel so far. */
import { element, escaped, rounded } from "../ui/markup.js";
import { COLOURS, label, line, picture } from "../ui/svg.js";
import { speed } from "./units.js";

const [WIDTH, HEIGHT] = [300, 226];
const FRAME = { left: 42, right: 290, top: 16, bottom: 186 };

/**
 * @typedef {import("./measure.js").Result} Result
 * @typedef {{kernel: string, intensity: number, gflops: number, number: number, title: string}} Dot
 */

/**
 * The fastest run of each kernel that computes something, in the order in which they first ran.
 * @param {Result[]} runs
 * @returns {Dot[]}
 */
export function dots(runs) {
  /** @type {Map<string, Result>} */
  const found = new Map();
  for (const run of runs) {
    const before = found.get(run.kernel);
    if (run.gflops > 0 && (!before || run.gflops > before.gflops)) found.set(run.kernel, run);
  }
  return [...found.values()].map(({ kernel, intensity, gflops, title, variant, size }, k) => {
    const name = [title, variant, size].filter(Boolean).join(", ");
    return { kernel, intensity, gflops, number: k + 1, title: name };
  });
}

/**
 * @param {{copy: number, rate: number}} ceilings GB/s and GFLOPS
 * @param {Result[]} runs
 * @param {string[]} [current] names of kernels whose dots stand out; all where there are none
 */
export function roofline(ceilings, runs, current = []) {
  const marked = dots(runs);
  const ridge = ceilings.rate / ceilings.copy;
  const xs = range([1 / 16, 1024, ridge / 4, ridge * 4, ...marked.map((dot) => dot.intensity)]);
  const low = Math.min(ceilings.copy / 16, ...marked.map((dot) => dot.gflops / 2));
  const ys = range([low, ceilings.rate * 2]);
  const x = scale(xs, FRAME.left, FRAME.right);
  const y = scale(ys, FRAME.bottom, FRAME.top);
  const roof = [xs[0], ridge, xs[1]].map((at) => `${x(at)},${y(Math.min(at * ceilings.copy, ceilings.rate))}`);
  const said = `Roofline: ${speed(ceilings.copy, "GB/s")} of copies, ${speed(ceilings.rate, "GFLOPS")} of multiply-adds, ${marked.length} kernels.`;
  return picture(
    WIDTH,
    HEIGHT,
    said,
    axes(xs, ys, x, y),
    element("clipPath", { id: "d2l-roof" }, element("rect", { x: FRAME.left, y: FRAME.top, width: FRAME.right - FRAME.left, height: FRAME.bottom - FRAME.top })),
    element("polyline", { class: "d2l-stroke-blue", points: roof.join(" "), fill: "none", stroke: COLOURS.blue, "stroke-width": 2, "clip-path": "url(#d2l-roof)" }),
    label(FRAME.right, y(ceilings.rate) - 9, speed(ceilings.rate, "GFLOPS"), { anchor: "end", "font-size": 11, fill: "blue" }),
    label(x(xs[0]) + 6, FRAME.top + 4, `slope: ${speed(ceilings.copy, "GB/s")}`, { "font-size": 11, fill: "blue" }),
    ...marked.map((dot) => spot(x(dot.intensity), y(dot.gflops), dot, !current.length || current.includes(dot.kernel))),
  );
}

/**
 * @param {number} x
 * @param {number} y
 * @param {Dot} dot
 * @param {boolean} standsOut
 */
function spot(x, y, { number, title, gflops }, standsOut) {
  const fill = standsOut ? "amber" : "pale";
  const words = element("title", {}, escaped(`${title}: ${speed(gflops, "GFLOPS")}`));
  const circle = element("circle", { class: `d2l-${fill}`, cx: x, cy: y, r: 7.5, fill: COLOURS[fill], stroke: COLOURS.grey, "stroke-width": standsOut ? 1.2 : 0.7 });
  return element("g", {}, words, circle, label(x, y + 0.5, number, { anchor: "middle", "font-size": 10, fill: standsOut ? "black" : "ink" }));
}

/**
 * @param {number[]} xs
 * @param {number[]} ys
 * @param {(value: number) => number} x
 * @param {(value: number) => number} y
 */
function axes(xs, ys, x, y) {
  const parts = [];
  for (const at of powers(xs, 4)) {
    parts.push(line(x(at), FRAME.top, x(at), FRAME.bottom, "line", { "stroke-width": 0.5 }));
    parts.push(label(x(at), FRAME.bottom + 11, at < 1 ? `1/${1 / at}` : at, { anchor: "middle", "font-size": 11 }));
  }
  for (const at of powers(ys, 10)) {
    parts.push(line(FRAME.left, y(at), FRAME.right, y(at), "line", { "stroke-width": 0.5 }));
    parts.push(label(FRAME.left - 4, y(at), at >= 1 ? rounded(at, 1) : at.toPrecision(1), { anchor: "end", "font-size": 11 }));
  }
  parts.push(label((FRAME.left + FRAME.right) / 2, HEIGHT - 10, "operations for each byte", { anchor: "middle" }));
  parts.push(label(10, (FRAME.top + FRAME.bottom) / 2, "GFLOPS", { anchor: "middle", transform: `rotate(-90 10 ${(FRAME.top + FRAME.bottom) / 2})` }));
  return parts.join("");
}

/**
 * From somewhat under the smallest to somewhat over the largest.
 * @param {number[]} values
 */
function range(values) {
  const real = values.filter((value) => value > 0);
  return [Math.min(...real) / 1.3, Math.max(...real) * 1.3];
}

/**
 * A logarithmic scale.
 * @param {number[]} values its ends
 * @param {number} from
 * @param {number} to
 */
function scale([low, high], from, to) {
  const length = Math.log(high / low);
  return (/** @type {number} */ value) => Math.round(10 * (from + ((to - from) * Math.log(value / low)) / length)) / 10;
}

/**
 * The powers of a base between two values.
 * @param {number[]} values
 * @param {number} base
 */
function powers([low, high], base) {
  const found = [];
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  for (let k = first; base ** k <= high; k += 1) found.push(base ** k);
  return found;
}
