/** Little's law: how much has to be under way for a bandwidth. */
import { CHIPS } from "../data/chips.js";
import { inFlight } from "../models/roofline.js";
import { boxes } from "../ui/charts.js";
import { counted, rounded, sets, thousands } from "../ui/markup.js";
import { box, group, label, line, outline, picture } from "../ui/svg.js";

/** @typedef {import("../ui/figure.js").State} State */

const THREADS = [32, 64, 128, 256, 512, 1024, 2048];
/** @type {Record<string, number>} the share of the bandwidth that reads can have */
const READS = { all: 1, "two thirds": 2 / 3, half: 1 / 2 };
const [WIDE, TALL] = [300, 104]; // of the picture, for time and for bytes a nanosecond
const [LEAST, MOST] = [128, 2 ** 18]; // bytes under way, of the curve
const SMALL = { "font-size": 10.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const latency = {
  name: "latency",
  title: "Latency and what is under way.",
  question: "How few threads on each SM can use the whole bandwidth, and what do wide loads change?",
  fields: [
    { key: "gpu", label: "GPU", kind: "choice", values: Object.keys(CHIPS) },
    { key: "threads", label: "Threads on each SM", kind: "steps", values: THREADS },
    {
      key: "width", label: "One load", kind: "choice", values: [2, 4, 8, 16],
      names: ["2 bytes: float16", "4 bytes: float32", "8 bytes: two float32", "16 bytes: four float32"],
    },
    { key: "loads", label: "Loads before a thread waits", kind: "steps", values: [1, 2, 4, 8] },
    {
      key: "reads", label: "Reads, of all bytes that move", kind: "choice", values: Object.keys(READS),
      names: ["all", "two thirds: a vector add", "half: a copy"],
    },
    { key: "latency", label: "Latency (ns)", kind: "range", min: 100, max: 1000 },
  ],
  start: { gpu: "H200", threads: 1024, width: 4, loads: 1, reads: "all", latency: 400 },
  draw: (state) => {
    const at = worked(state);
    return picture(
      360,
      322,
      say(state),
      label(44, 9, "bytes a ns, of one SM", SMALL),
      group(44, 22, pipe(at)),
      label(44, 178, "TB/s, by the bytes under way on each SM", SMALL),
      group(44, 192, curve(at)),
    );
  },
  say,
};

/**
 * Everything that follows from a state; an SM holds only so many threads.
 * @param {State} state
 */
function worked(state) {
  const { gpu } = /** @type {{gpu: string}} */ (state);
  const [width, loads, ns] = [state.width, state.loads, state.latency].map(Number);
  const chip = CHIPS[gpu];
  const threads = Math.min(Number(state.threads), chip.max_threads);
  const most = chip.bandwidth_tb_s * READS[String(state.reads)];
  const rate = (most * 1000) / chip.sms;
  return { ...inFlight(gpu, threads, ns, width, loads, most), chip, threads, width, loads, ns, most, rate };
}

/** @param {number} bytes */
function kib(bytes) {
  return bytes < 1024 ? `${rounded(bytes)} bytes` : `${rounded(bytes / 1024)} KiB`;
}

/** @param {State} state */
function say(state) {
  const at = worked(state);
  const less = at.threads < Number(state.threads) ? ` (${at.chip.name} holds no more)` : "";
  const queue = at.wait - at.ns;
  const result =
    queue > 0.5
      ? `all of it is used, and a load takes ${rounded(at.wait)} ns, ${rounded(queue)} of them in a queue`
      : `at most ${rounded(at.tb_s)} TB/s, ${rounded((100 * at.tb_s) / at.most)}%`;
  return (
    `${thousands(at.threads)} threads${less} with ${counted(at.loads, "load")} of ${at.width} bytes have ${kib(at.bytes)} under way ` +
    `on each SM. ${rounded(at.most)} TB/s for ${at.ns} ns are ${kib(at.needed)} on each: ${result}.`
  );
}

/**
 * The way from memory to an SM: as long as the latency, as high as the bandwidth. What is under way
 * fills it, and what does not fit waits in front of it.
 * @param {ReturnType<typeof worked>} at
 */
function pipe(at) {
  const unit = WIDE / Math.max(1000, at.wait);
  const tall = TALL / at.rate;
  const [long, filled] = [at.ns * unit, (at.bytes / at.wait) * tall];
  const parts = [
    line(0, TALL, WIDE, TALL, "grey"),
    line(0, 0, 0, TALL, "grey"),
    box(0, 0, long, TALL, "pale", {}, `room for ${kib(at.needed)}`),
    box(0, TALL - filled, long, filled, "sky", {}, "on its way"),
    lines(at, unit, filled),
  ];
  const queue = (at.wait - at.ns) * unit;
  if (queue > 1) parts.push(box(long, 0, queue, TALL, "amber", {}, "in the queue"));
  parts.push(outline(0, 0, long, TALL, "ink", { "stroke-width": 1.5 }));
  parts.push(label(-4, 4, rounded(at.rate), { ...SMALL, anchor: "end" }), label(-4, TALL, 0, { ...SMALL, anchor: "end" }));
  const inside = filled > 16 ? TALL - filled / 2 : TALL - filled - 9;
  if (long > 110) parts.push(label(6, inside, `under way: ${kib(Math.min(at.bytes, at.needed))}`, { ...SMALL, fill: filled > 16 ? "black" : "ink" }));
  if (queue > 84) parts.push(label(long + 6, TALL / 2, `queue: ${kib(at.bytes - at.needed)}`, { ...SMALL, fill: "black" }));
  if (long > 110 && filled < TALL - 34) parts.push(label(6, 11, `room for ${kib(at.needed)}`, SMALL));
  for (const [ns, anchor] of /** @type {[number, string][]} */ ([[at.ns, "middle"], ...(queue > 60 ? [[at.wait, "end"]] : [])])) {
    parts.push(line(ns * unit, TALL, ns * unit, TALL + 4, "grey"));
    parts.push(label(ns * unit, TALL + 11, `${thousands(ns)} ns`, { ...SMALL, anchor }));
  }
  if (long > 64) parts.push(label(0, TALL + 11, "asked", SMALL));
  return parts.join("");
}

/**
 * The loads of each warp, where they are thick enough to be seen.
 * @param {ReturnType<typeof worked>} at
 * @param {number} unit
 * @param {number} filled height of all
 */
function lines(at, unit, filled) {
  const many = (at.threads / 32) * at.loads;
  if (filled / many < 1.5 || at.wait > at.ns + 0.5) return "";
  const each = Array.from({ length: many }, (_, k) => [0, TALL - (filled * (k + 1)) / many, at.ns * unit, filled / many]);
  return boxes(each, "sky", { "fill-opacity": 0, stroke: "#222222", "stroke-width": 0.4 }, "the loads of a warp");
}

/**
 * Bandwidth over bytes under way; each part of it sets as many threads.
 * @param {ReturnType<typeof worked>} at
 */
function curve(at) {
  const high = 96;
  const { most } = at;
  /** @param {number} bytes */
  const x = (bytes) => (WIDE * Math.log(bytes / LEAST)) / Math.log(MOST / LEAST);
  /** @param {number} speed */
  const y = (speed) => high - (high - 8) * (speed / most);
  const points = Array.from({ length: 89 }, (_, k) => LEAST * 2 ** (k / 8));
  const path = points.map((bytes) => `${x(bytes).toFixed(1)} ${y(most * Math.min(1, bytes / at.needed)).toFixed(1)}`);
  const parts = [line(0, high, WIDE, high, "grey"), line(0, 0, 0, high, "grey")];
  for (const bytes of [128, 1024, 8192, 65536]) {
    parts.push(line(x(bytes), high, x(bytes), high + 4, "grey"));
    parts.push(label(x(bytes), high + 12, kib(bytes), { ...SMALL, anchor: bytes === 128 ? "start" : "middle", fill: "grey" }));
  }
  parts.push(label(-4, 8, rounded(most), { ...SMALL, anchor: "end" }), label(-4, high, 0, { ...SMALL, anchor: "end" }));
  parts.push(line(x(at.needed), 8, x(at.needed), high, "green", { "stroke-dasharray": "4 3", "stroke-width": 1.5 }));
  parts.push(label(x(at.needed) - 4, 14, `needed: ${kib(at.needed)}`, { ...SMALL, anchor: "end" }));
  parts.push(`<polyline points="${path.join(" ")}" fill="none" stroke="#222222" stroke-width="1.5" class="d2l-stroke-ink"></polyline>`);
  const [cx, cy] = [x(at.bytes), y(at.tb_s)];
  parts.push(box(cx - 5, cy - 5, 10, 10, "orange", { rx: 5, stroke: "#222222" }, `${rounded(at.tb_s)} TB/s`));
  const speed = `${rounded(at.tb_s)} TB/s`;
  parts.push(cx > WIDE - 70 ? label(cx - 6, cy + 16, speed, { ...SMALL, anchor: "end" }) : label(cx + 9, cy + 10, speed, SMALL));
  return parts.join("") + field(at, x, high);
}

/**
 * @param {ReturnType<typeof worked>} at
 * @param {(bytes: number) => number} x
 * @param {number} high
 */
function field(at, x, high) {
  const each = at.width * at.loads;
  return THREADS.map((threads) => {
    const [from, to] = [Math.max(0, x((threads * each) / Math.SQRT2)), Math.min(WIDE, x(threads * each * Math.SQRT2))];
    const set = { ...sets({ threads }), cursor: "ew-resize", "fill-opacity": 0 };
    return to > from ? box(from, 0, to - from, high, "paper", set) : "";
  }).join("");
}
