/** How tiles are dealt out to the multiprocessors of a GPU, and what stands idle at the end. */
import { CHIPS } from "../data/chips.js";
import { deal } from "../models/waves.js";
import { boxes } from "../ui/charts.js";
import { counted, element, rounded, sets } from "../ui/markup.js";
import { box, group, label, line, picture } from "../ui/svg.js";

/** @typedef {import("../ui/figure.js").State} State */

const [WIDE, TALL] = [300, 216]; // of the picture, for the time and for the multiprocessors
const SMALL = { "font-size": 10.5 };
const HATCHED = { fill: "url(#d2l-part-of-tile)", class: "d2l-hatched" };
const STRIPS = 12; // that the rows are cut into for the pointer

/** @type {import("../ui/figure.js").Explorer} */
export const waves = {
  name: "waves",
  title: "Waves and their tail.",
  question: "How can a few tiles too many cost less than a wave?",
  fields: [
    { key: "gpu", label: "GPU", kind: "choice", values: Object.keys(CHIPS) },
    { key: "tiles", label: "Tiles", kind: "range", min: 1, max: 800 },
    { key: "an_sm", label: "Blocks that an SM holds", kind: "range", min: 1, max: 8 },
    { key: "rounds", label: "Rounds of a tile", kind: "steps", values: [8, 16, 32, 64, 128] },
    { key: "way", label: "Dealt out", kind: "choice", values: ["in turns", "on demand", "stream-K"] },
    { key: "split", label: "Pieces of a tile (split-K)", kind: "steps", values: [1, 2, 4, 8], when: ({ way }) => way !== "stream-K" },
    { key: "ends", label: "Beginning and end of a piece, in rounds", kind: "range", min: 0, max: 8 },
    { key: "faster", label: "Every fifth SM is faster by %", kind: "steps", values: [0, 10, 20, 33, 50] },
  ],
  start: { gpu: "H200", tiles: 160, an_sm: 1, rounds: 32, way: "in turns", split: 1, ends: 2, faster: 0 },
  draw: (state) => {
    const at = worked(state);
    return picture(
      360,
      300,
      say(state),
      label(40, 9, "time, in rounds →", SMALL),
      group(40, 20, rows(at)),
      group(40, 20 + TALL, axis(at)),
      group(40, 20 + TALL + 28, share(at)),
    );
  },
  say,
};

/**
 * Everything that follows from a state.
 * @param {State} state
 */
function worked(state) {
  const { gpu, way } = /** @type {{gpu: string, way: string}} */ (state);
  const [tiles, anSm, rounds, ends, faster] = [state.tiles, state.an_sm, state.rounds, state.ends, state.faster].map(Number);
  const { sms } = CHIPS[gpu];
  const split = way === "stream-K" ? 1 : Number(state.split);
  const dealt = deal(tiles, sms, anSm, rounds, split, ends, way, faster);
  const count = sms * anSm;
  // Whole tiles in turns, all SMs alike, and the room for a wave more.
  const shown = Math.max(dealt.time, (Math.ceil(tiles / count) + 1) * (rounds + ends));
  return { ...dealt, sms, anSm, tiles, rounds, ends, split, way, faster, count, shown };
}

/** @param {State} state */
function say(state) {
  const at = worked(state);
  const places = at.anSm === 1 ? `${at.sms} SMs` : `${at.count} places on ${at.sms} SMs`;
  const pieces = at.waves * at.count > at.tiles ? `, ${counted(at.waves * at.count, "piece")}` : "";
  const sums = at.sums ? ` ${counted(at.sums, "partial tile")} more to add up.` : " Every tile is computed in one piece.";
  return (
    `${counted(at.tiles, "tile")}${pieces} for ${places}: ${rounded(at.waves)} ${at.waves === 1 ? "wave" : "waves"}. ` +
    `The last is done after ${rounded(at.time)} rounds, and ${rounded(100 * at.busy)}% of the machine's time is used.${sums}`
  );
}

/**
 * A row for each multiprocessor, with what it computes.
 * @param {ReturnType<typeof worked>} at
 */
function rows(at) {
  const unit = WIDE / at.shown;
  const high = TALL / at.count;
  const gap = Math.min(0.5, high / 5);
  /** @type {Record<string, number[][]>} */
  const found = { even: [], odd: [], part: [], ends: [] };
  at.places.forEach((pieces, place) => {
    pieces.forEach(({ first, last, start, stop }, k) => {
      const whole = last - first === at.rounds;
      const wide = Math.max((stop - start) * unit - 0.7, 0.5);
      const shape = [start * unit, place * high, wide, high - gap];
      found[whole ? (k % 2 ? "odd" : "even") : "part"].push(shape);
      const end = (wide * at.ends) / (last - first + at.ends);
      if (end) found.ends.push([start * unit + wide - end, place * high, end, high - gap]);
    });
  });
  const parts = [
    box(0, 0, at.time * unit, TALL, "pale", {}, "idle"),
    boxes(found.even, "sky", {}, "whole tiles"),
    boxes(found.odd, "blue", {}, "whole tiles, every second of a place"),
    hatch(),
    boxes(found.part, "amber", HATCHED, "parts of tiles"),
    boxes(found.ends, "black", { "fill-opacity": 0.45 }, "beginnings and ends"),
    label(-4, 5, "SM 0", { ...SMALL, anchor: "end" }),
    label(-4, TALL - 5, at.sms - 1, { ...SMALL, anchor: "end" }),
    idle(at, unit),
    field(at, unit),
  ];
  return parts.join("");
}

/** The pattern of a part of a tile, for who does not see its colour. */
function hatch() {
  const lines = element("path", { d: "M-1 1L1 -1M0 4L4 0M3 5L5 3", stroke: "#222222", "stroke-width": 0.6 });
  const style = { id: "d2l-part-of-tile", width: 4, height: 4, patternUnits: "userSpaceOnUse" };
  return element("defs", {}, element("pattern", style, box(0, 0, 4, 4, "amber"), lines));
}

/**
 * The word where there is room for it.
 * @param {ReturnType<typeof worked>} at
 * @param {number} unit
 */
function idle(at, unit) {
  const { stop } = at.places[at.count - 1].slice(-1)[0] || { stop: 0 };
  const wide = (at.time - stop) * unit;
  return wide > 30 ? label(stop * unit + wide / 2, TALL - 10, "idle", { ...SMALL, anchor: "middle" }) : "";
}

/**
 * Where the pointer says how far the tiles reach: which wave, and how many places of it.
 * @param {ReturnType<typeof worked>} at
 * @param {number} unit
 */
function field(at, unit) {
  const wide = (at.rounds + at.ends) * unit;
  const most = Math.min(Math.ceil(800 / at.count), Math.ceil(WIDE / wide), 20);
  const parts = [];
  for (let wave = 0; wave < most; wave += 1) {
    for (let strip = 0; strip < STRIPS; strip += 1) {
      const tiles = Math.round(at.count * (wave + (strip + 1) / STRIPS));
      if (tiles > 800 || tiles < 1) continue;
      const place = [wave * wide, (strip * TALL) / STRIPS, Math.min(wide, WIDE - wave * wide), TALL / STRIPS];
      parts.push(box(place[0], place[1], place[2], place[3], "paper", { ...sets({ tiles }), "fill-opacity": 0 }));
    }
  }
  return parts.join("");
}

/**
 * The time, and the waves of whole tiles in it.
 * @param {ReturnType<typeof worked>} at
 */
function axis(at) {
  const most = at.shown;
  const unit = WIDE / most;
  const parts = [line(0, 3, WIDE, 3, "grey")];
  const step = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].find((each) => most / each <= 8) || 16384;
  for (let tick = 0; tick <= most; tick += step) {
    parts.push(line(tick * unit, 3, tick * unit, 7, "grey"));
    if (Math.abs(tick - at.time) * unit > 20) parts.push(label(tick * unit, 14, tick, { ...SMALL, anchor: "middle", fill: "grey" }));
  }
  parts.push(line(at.time * unit, -TALL, at.time * unit, 8, "ink", { "stroke-width": 1.5 }));
  parts.push(label(at.time * unit, 14, rounded(at.time), { ...SMALL, anchor: at.time === most ? "end" : "middle" }));
  return parts.join("");
}

/**
 * The used share of the machine's time, as a bar, and what the colours are.
 * @param {ReturnType<typeof worked>} at
 */
function share(at) {
  const used = WIDE * at.busy;
  return [
    box(0, 0, WIDE, 14, "pale", { stroke: "#8a8a8a" }, "idle"),
    box(0, 0, used, 14, "green", {}, "used"),
    label(-4, 7, "used", { ...SMALL, anchor: "end" }),
    label(used > 60 ? used - 5 : used + 5, 7, `${rounded(100 * at.busy)}%`, { ...SMALL, anchor: used > 60 ? "end" : "start", fill: used > 60 ? "black" : "ink" }),
    box(0, 22, 9, 9, "sky"),
    label(13, 27, "whole tile", SMALL),
    box(76, 22, 9, 9, "amber", HATCHED),
    label(89, 27, "part of one", SMALL),
    box(160, 22, 9, 9, "black", { "fill-opacity": 0.45 }),
    label(173, 27, "its beginning and end", SMALL),
  ].join("");
}
