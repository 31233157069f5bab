/** Which sectors of global memory a warp makes move, and how much of them it uses. */
import { counted, rounded, sets, thousands } from "../ui/markup.js";
import { requestField, requestOf } from "../ui/requests.js";
import { box, group, label, line, picture } from "../ui/svg.js";
import { LARGEST_ACCESS, LINE, SECTOR, SIZES, requested, strided, touched, usedOf } from "../models/coalescing.js";

/** @typedef {import("../ui/figure.js").State} State */

const LEFT = 38;
const BYTE = 4.96; // units of the picture; 64 bytes, two sectors, are a row of it
const ROW = 12.5;
const LINES = 8; // that are drawn
const SMALL = { "font-size": 10.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const coalescing = {
  name: "coalescing",
  title: "What a warp asks for, and what moves.",
  question: "From which stride on does every lane have a sector to itself?",
  questionFor: "Which access of this kernel moves bytes that its warp does not use?",
  fields: [
    { key: "stride", label: "Stride: accesses from lane to lane", kind: "range", min: 0, max: 40 },
    { key: "offset", label: "Elements in front of lane 0's", kind: "range", min: 0, max: 32 },
    { key: "width", label: "Elements in one access", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "dtype", label: "Type of an element", kind: "choice", values: Object.keys(SIZES) },
  ],
  start: { stride: 2, offset: 0, width: 1, dtype: "float32" },
  fieldsFor: (given) => [requestField(given)],
  draw: (state, given) => {
    const { first, width } = asked(state, given);
    const wrong = refused(first, width);
    const parts = wrong
      ? [label(180, 130, wrong, { anchor: "middle", fill: "orange" })]
      : [...memory(first, width, given ? null : state), filled(first, width)];
    return picture(360, 318, say(state, given), given ? "" : offsets(state), ...parts);
  },
  say,
};

/**
 * The request that is looked at.
 * @param {State} state
 * @param {any} given
 * @returns {{first: number[], width: number}}
 */
function asked(state, given) {
  if (given) return requestOf(state, given);
  return { first: strided(state), width: SIZES[state.dtype] * Number(state.width) };
}

/**
 * Why no GPU makes such an access, or nothing.
 * @param {number[]} first
 * @param {number} width
 */
function refused(first, width) {
  if (width > LARGEST_ACCESS) return `${width} bytes at once: ${LARGEST_ACCESS} are the most`;
  const power = width & -width;
  return first.some((byte) => byte >= 0 && byte % power) ? `not a multiple of ${power} bytes` : "";
}

/**
 * @param {State} state
 * @param {any} given
 */
function say(state, given) {
  const { first, width } = asked(state, given);
  if (width > LARGEST_ACCESS) return `A lane asks for ${LARGEST_ACCESS} bytes at most; ${width} are more than one access.`;
  if (refused(first, width)) {
    return `An access of ${width} bytes begins at a multiple of ${width}. With this offset no GPU makes it.`;
  }
  const { sectors, lines, used } = requested(first, width);
  const lanes = first.filter((byte) => byte >= 0).length;
  return (
    `${counted(lanes, "lane")} ${lanes === 1 ? "asks" : "ask"} for ${counted(used, "different byte")}. ` +
    `They are in ${counted(sectors, "sector")} of ${counted(lines, "line")}, ` +
    `so ${thousands(sectors * SECTOR)} bytes move, of which ${share(used, sectors)} are used.`
  );
}

/**
 * @param {number} used
 * @param {number} sectors
 */
function share(used, sectors) {
  return `${rounded((100 * used) / (sectors * SECTOR)).replace(/\.0+$/, "")}%`;
}

/**
 * Lines of memory that are touched, two rows each, with the lanes that ask.
 * @param {number[]} first
 * @param {number} width
 * @param {State | null} state where it can be set in the picture
 */
function memory(first, width, state) {
  const all = touched(first, width, LINE);
  const shown = all.slice(0, LINES);
  for (let next = all[all.length - 1] + 1; shown.length < LINES; next += 1) shown.push(next);
  const sectors = new Set(touched(first, width, SECTOR));
  const parts = [];
  const more = all.length > LINES ? `; the first ${LINES} of ${all.length} lines` : "";
  parts.push(label(LEFT, 26, `memory, 64 bytes a row${more}`, SMALL));
  shown.forEach((number, k) => {
    for (let s = 0; s < LINE / SECTOR; s += 1) {
      const sector = number * (LINE / SECTOR) + s;
      parts.push(outline(sector, place(k, s * SECTOR), sectors.has(sector)));
    }
    parts.push(label(LEFT - 4, place(k, 0).y + ROW / 2, number * LINE, { anchor: "end", fill: "grey", ...SMALL }));
  });
  parts.push(...lanes(first, width, shown));
  if (state) parts.push(...targets(state, width, shown));
  return parts;
}

/**
 * Where a byte of the k-th line that is shown stands.
 * @param {number} k
 * @param {number} byte from the line's beginning
 */
function place(k, byte) {
  return { x: LEFT + (byte % 64) * BYTE, y: 35 + k * (2 * ROW + 3) + Math.floor(byte / 64) * ROW };
}

/**
 * @param {number} sector
 * @param {{x: number, y: number}} at
 * @param {boolean} moves
 */
function outline(sector, { x, y }, moves) {
  const dashes = moves ? {} : { "stroke-dasharray": "2 3" };
  const title = `sector ${sector}: ${moves ? "moves" : "nobody asks for it"}`;
  return box(x, y, SECTOR * BYTE, ROW, moves ? "line" : "paper", { stroke: "#8a8a8a", "stroke-width": 0.8, ...dashes }, title);
}

/**
 * @param {number[]} first
 * @param {number} width
 * @param {number[]} shown numbers of lines
 */
function lanes(first, width, shown) {
  /** @type {Map<number, number[]>} */
  const by = new Map();
  first.forEach((byte, lane) => {
    if (byte >= 0) by.set(byte, [...(by.get(byte) || []), lane]);
  });
  const parts = [];
  for (const [byte, who] of by) {
    const k = shown.indexOf(Math.floor(byte / LINE));
    if (k < 0) continue;
    const { x, y } = place(k, byte % LINE);
    const wide = width * BYTE;
    const name = who.length === 1 ? `${who[0]}` : `${who[0]}–${who[who.length - 1]}`;
    const gap = wide > 8 ? 1 : 0.4;
    parts.push(box(x + gap / 2, y + 1, wide - gap, ROW - 2, "blue", {}, `${who.length === 1 ? "lane" : "lanes"} ${name}: byte ${byte}`));
    if (wide >= 6.2 * name.length + 2) {
      parts.push(label(x + wide / 2, y + ROW / 2 + 0.3, name, { anchor: "middle", fill: "paper", "pointer-events": "none", ...SMALL }));
    } else if (by.size === 1) {
      parts.push(label(x + wide + 3, y + ROW / 2 + 0.3, `lanes ${name}`, { "pointer-events": "none", ...SMALL }));
    }
  }
  return parts;
}

/**
 * Where lane 1 can be put by pressing, which sets the stride.
 * @param {State} state
 * @param {number} width
 * @param {number[]} shown
 */
function targets(state, width, shown) {
  const size = SIZES[state.dtype];
  const parts = [];
  for (let stride = 0; stride <= 40; stride += 1) {
    const byte = Number(state.offset) * size + stride * width;
    const k = shown.indexOf(Math.floor(byte / LINE));
    if (k < 0) continue;
    const { x, y } = place(k, byte % LINE);
    const more = { ...sets({ stride }), "fill-opacity": 0 };
    parts.push(box(x, y, width * BYTE, ROW, "paper", more, `put lane 1 here: stride ${stride}`));
  }
  return parts;
}

/**
 * The offset, set by pressing: elements in front of lane 0's, on the scale of the first row.
 * @param {State} state
 */
function offsets(state) {
  const size = SIZES[state.dtype];
  const parts = [label(LEFT - 4, 11, "offset", { anchor: "end", ...SMALL })];
  const many = Math.min(32, 64 / size - 1);
  const wide = Math.max(size * BYTE, (64 * BYTE) / 33);
  for (let k = 0; k <= many; k += 1) {
    const on = k === Number(state.offset);
    const more = { ...sets({ offset: k }), stroke: "#8a8a8a", "stroke-width": 0.6 };
    parts.push(box(LEFT + k * wide, 4, wide, 13, k < Number(state.offset) ? "amber" : "paper", more, `offset ${k}`));
    if (on) parts.push(label(LEFT + (k + 0.5) * wide, 10.8, "▾", { anchor: "middle", "pointer-events": "none", ...SMALL }));
  }
  return parts.join("");
}

/**
 * Every sector that moves as a box, as full as it is used.
 * @param {number[]} first
 * @param {number} width
 */
function filled(first, width) {
  const all = touched(first, width, SECTOR);
  const many = Math.max(32, all.length);
  const wide = (64 * BYTE) / many;
  const parts = [
    line(0, 26, 64 * BYTE, 26, "grey"),
    label(0, -8, `${counted(all.length, "sector")}, ${share(requested(first, width).used, all.length)} of the bytes used`, SMALL),
  ];
  all.forEach((sector, k) => {
    const used = usedOf(first, width, sector);
    const high = (24 * used) / SECTOR;
    parts.push(box(k * wide + 0.5, 2, wide - 1, 24, "line", { stroke: "#8a8a8a", "stroke-width": 0.8 }, `sector ${sector}: ${used} of ${SECTOR} bytes used`));
    parts.push(box(k * wide + 0.5, 26 - high, wide - 1, high, "blue", { "pointer-events": "none" }));
  });
  return group(LEFT, 282, ...parts);
}
