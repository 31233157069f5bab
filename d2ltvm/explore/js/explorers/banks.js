/** Which banks of shared memory a warp asks, and how often the busiest has to answer. */
import { counted, sets } from "../ui/markup.js";
import { requestField, requestOf } from "../ui/requests.js";
import { box, group, label, line, picture } from "../ui/svg.js";
import { BANKS, WORD, wavefronts } from "../models/banks.js";
import { addresses, cut } from "../models/bank_addresses.js";
import { swizzled } from "../models/swizzle.js";

/** @typedef {import("../ui/figure.js").State} State */
/** @typedef {import("../ui/requests.js").Request} Request */

const LEFT = 24;
const BANK = 10.4; // units of the picture across; a row of 32 words is as wide as the banks
const TILE = 136; // height at most of the tile
const PLOT = 96; // of the wavefronts
const SMALL = { "font-size": 10.5 };
const SILENT = { "pointer-events": "none" };

/** @type {import("../ui/figure.js").Field} */
const BANK_FIELD = { key: "bank", label: "Bank that is marked", kind: "range", min: 0, max: BANKS - 1 };

/** @type {import("../ui/figure.js").Explorer} */
export const banks = {
  name: "banks",
  title: "The 32 banks of shared memory.",
  question: "How little padding makes a column of the tile as cheap as a row?",
  questionFor: "Which access of this kernel takes the most wavefronts, and which banks give nothing meanwhile?",
  fields: [
    { key: "columns", label: "Columns of the tile (float32)", kind: "steps", values: [8, 16, 32, 64, 128] },
    { key: "padding", label: "Padding of each row (float32)", kind: "range", min: 0, max: 8 },
    { key: "across", label: "Lanes side by side in a row", kind: "steps", values: [1, 2, 4, 8, 16, 32] },
    { key: "each", label: "Columns that a thread owns", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "vthreads", label: "Virtual threads", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "width", label: "Elements in one load", kind: "choice", values: [1, 2, 4] },
    BANK_FIELD,
    { key: "same_row", label: "All lanes read the same row", kind: "check" },
    { key: "swizzle", label: "128-byte swizzle", kind: "check" },
  ],
  start: { columns: 32, padding: 0, across: 1, each: 1, vthreads: 1, width: 1, bank: 0, same_row: 0, swizzle: 0 },
  fieldsFor: (given) => [requestField(given), BANK_FIELD],
  draw: (state, given) => {
    const request = asked(state, given);
    const above = given ? rows(request, Number(state.bank)) : tile(state, request);
    const below = misaligned(request)
      ? label(180, 240, "not aligned: no such load", { anchor: "middle", fill: "orange" })
      : stacks(request, Number(state.bank));
    return picture(360, 326, say(state, given), group(LEFT, 30, above), group(LEFT, 190, below));
  },
  say,
};

/**
 * The request that is looked at.
 * @param {State} state
 * @param {any} given
 * @returns {Request}
 */
function asked(state, given) {
  if (given) return requestOf(state, given);
  return { first: addresses(state), width: WORD * cut(state).width, kind: "read" };
}

/**
 * @param {State} state
 * @param {any} given
 */
function say(state, given) {
  const request = asked(state, given);
  const { first, width, kind } = request;
  if (misaligned(request)) {
    return `A load of ${width} bytes needs addresses at multiples of ${width}: with this padding no GPU makes it.`;
  }
  const { passes, groups } = wavefronts(first, width, kind);
  const words = new Set(groups.flatMap((each) => each.banks.flat()));
  const of = (/** @type {number} */ bank) => [...words].filter((word) => word % BANKS === bank).length;
  const busy = new Set([...words].map((word) => word % BANKS));
  const least = groups.filter((each) => each.lanes.length).length;
  const conflict = passes === least ? "no conflict" : `${least} without conflicts`;
  const bank = Number(state.bank);
  return (
    `A warp asks for ${counted(words.size, "different word")} in ${busy.size} of the ${BANKS} banks: ` +
    `${counted(passes, "wavefront")}, ${conflict}. Bank ${bank} gives ${of(bank)} of them.`
  );
}

/** @param {Request} request */
function misaligned({ first, width }) {
  return first.some((byte) => byte >= 0 && byte % width);
}

/**
 * The tile, row by row, with what each lane reads, the padding, and the words of a bank.
 * @param {State} state
 * @param {Request} request
 */
function tile(state, request) {
  const { columns, padding, width, each, across, vthreads, piece } = cut(state);
  const bank = Number(state.bank);
  const lanesDown = Number(state.same_row) ? 1 : 32 / across;
  const shown = Math.max(8, lanesDown);
  const wide = Math.min(15, (BANKS * BANK) / (columns + 8));
  const high = Math.min(17, TILE / shown);
  const parts = [label(0, -20, heading(across, each, vthreads), SMALL)];
  parts.push(box(0, 0, columns * wide, shown * high, "paper", { stroke: "#8a8a8a" }));
  parts.push(box(columns * wide, 0, padding * wide, shown * high, "amber", { "fill-opacity": 0.6 }));
  parts.push(grid(columns + padding, shown, wide, high));
  for (let r = 0; r < shown; r += 1) {
    const from = (r * (columns + padding)) % BANKS;
    for (let c = 0; c < columns + padding; c += 1) {
      if (bankOf(state, r, c, from) === bank) parts.push(mark(c * wide, r * high, wide, high));
    }
  }
  for (let v = 0; v < vthreads && each > width; v += 1) {
    const x = v * across * piece * wide;
    parts.push(box(x, 0, piece * wide, high, "sky", { "fill-opacity": 0.35, ...SILENT }, "columns of lane 0"));
  }
  request.first.forEach((_, lane) => {
    if (lanesDown === 1 && lane >= across) return;
    const row = Math.floor(lane / across);
    const x = (lane % across) * piece * wide;
    const more = sets({ bank: Math.floor(request.first[lane] / WORD) % BANKS });
    const who = lanesDown === 1 && across < 32 ? `${lane}, ${lane + across} …` : `${lane}`;
    const rim = Math.min(1.2, wide / 5); // so that the mark of a bank is seen around it
    parts.push(box(x + rim, row * high + 0.5, width * wide - 2 * rim, high - 1, "blue", more, `lane ${who}`));
    const name = `${lane}`;
    if (high > 11 && width * wide > 6.2 * name.length + 1) {
      parts.push(label(x + (width * wide) / 2, (row + 0.5) * high, name, { anchor: "middle", fill: "paper", ...SILENT, ...SMALL }));
    }
  });
  parts.push(edge(columns, padding, wide, shown * high));
  return parts.join("");
}

/**
 * The bank of a word of the tile; `from` is that of its row's first word.
 * @param {State} state
 * @param {number} r
 * @param {number} c
 * @param {number} from
 */
function bankOf(state, r, c, from) {
  if (!Number(state.swizzle)) return (from + c) % BANKS;
  return (swizzled((r * (Number(state.columns) + Number(state.padding)) + c) * WORD, 128) / WORD) % BANKS;
}

/**
 * How the tile is cut, in words.
 * @param {number} across
 * @param {number} each
 * @param {number} vthreads
 */
function heading(across, each, vthreads) {
  const pieces = vthreads > 1 ? ` in ${vthreads} pieces` : "";
  return `tile: ${counted(across, "lane")} a row, ${counted(each, "column")}${across > 1 ? " each" : ""}${pieces}`;
}

/**
 * A word of the bank that is marked.
 * @param {number} x
 * @param {number} y
 * @param {number} wide
 * @param {number} high
 */
function mark(x, y, wide, high) {
  return box(x, y, wide, high, "pink", { "fill-opacity": 0.75, ...SILENT });
}

/**
 * Lines between the words, in one path.
 * @param {number} columns
 * @param {number} shown rows
 * @param {number} wide
 * @param {number} high
 */
function grid(columns, shown, wide, high) {
  const across = Array.from({ length: shown + 1 }, (_, r) => `M0 ${(r * high).toFixed(1)}h${(columns * wide).toFixed(1)}`);
  const down = Array.from({ length: columns + 1 }, (_, c) => `M${(c * wide).toFixed(1)} 0v${(shown * high).toFixed(1)}`);
  const d = [...(high > 3 ? across : []), ...(wide > 3 ? down : [])].join("");
  return `<path class="d2l-stroke-line" d="${d}" stroke="#c4c4c4" stroke-width="0.5" fill="none" pointer-events="none"/>`;
}

/**
 * The end of the rows, where padding is set by pressing and dragging.
 * @param {number} columns
 * @param {number} padding
 * @param {number} wide
 * @param {number} high
 */
function edge(columns, padding, wide, high) {
  const parts = [];
  for (let k = 0; k <= 8; k += 1) {
    const more = { ...sets({ padding: k }), "fill-opacity": 0 };
    parts.push(box((columns + k - 1) * wide, -12, wide, high + 12, "paper", more, `padding of ${k}`));
  }
  const end = (columns + padding) * wide;
  parts.push(line(end, -4, end, high, "orange", { "stroke-width": 2, ...SILENT }));
  parts.push(label(end + 2, -8, "◂▸", { anchor: "middle", fill: "orange", ...SILENT, ...SMALL }));
  parts.push(label(end - 8, -8, `padding ${padding}`, { anchor: "end", fill: "grey", ...SILENT, ...SMALL }));
  return parts.join("");
}

/**
 * Memory as a kernel asks for it: rows of 32 words, above their banks; those without any are left out.
 * @param {Request} request
 * @param {number} bank
 */
function rows({ first, width }, bank) {
  /** @type {Map<number, number[]>} */
  const by = new Map();
  first.forEach((byte, lane) => {
    if (byte >= 0) by.set(byte, [...(by.get(byte) || []), lane]);
  });
  const numbers = [...new Set([...by.keys()].map((byte) => Math.floor(byte / 128)))].sort((a, b) => a - b);
  const shown = Math.max(8, numbers.length);
  const high = Math.min(17, TILE / shown);
  const parts = [
    label(0, -20, "shared memory, a row of 32 words above their banks", SMALL),
    box(0, 0, BANKS * BANK, numbers.length * high, "paper", { stroke: "#8a8a8a" }),
    grid(BANKS, numbers.length, BANK, high),
    box(bank * BANK, 0, BANK, numbers.length * high, "pink", { "fill-opacity": 0.75, ...SILENT }),
  ];
  for (const [byte, lanes] of by) {
    const x = ((byte % 128) / WORD) * BANK;
    const y = numbers.indexOf(Math.floor(byte / 128)) * high;
    const wide = Math.max(1, width / WORD) * BANK;
    const name = lanes.length > 1 ? `${lanes[0]}…` : `${lanes[0]}`;
    const more = sets({ bank: Math.floor(byte / WORD) % BANKS });
    parts.push(box(x + 1.2, y + 0.5, wide - 2.4, high - 1, "blue", more, `${lanes.length > 1 ? "lanes" : "lane"} ${lanes.join(", ")}`));
    if (high > 11 && wide > 6.2 * name.length + 1) {
      parts.push(label(x + wide / 2, y + high / 2, name, { anchor: "middle", fill: "paper", ...SILENT, ...SMALL }));
    }
  }
  return parts.join("");
}

/**
 * Wavefront by wavefront, upwards, the words that the banks give: where a square is missing the bank is idle.
 * @param {Request} request
 * @param {number} bank that is marked
 */
function stacks({ first, width, kind }, bank) {
  const { groups, passes } = wavefronts(first, width, kind);
  const conflicts = groups.some((each) => each.passes > 1);
  const high = Math.min(24, PLOT / passes);
  const parts = [box(bank * BANK, PLOT - passes * high, BANK, passes * high, "pink", { "fill-opacity": 0.5, ...SILENT })];
  let base = PLOT;
  for (const each of groups) {
    for (let b = 0; b < BANKS; b += 1) {
      each.banks[b].forEach((word, k) => {
        const fill = conflicts && each.banks[b].length === each.passes && each.passes > 1 ? "orange" : "sky";
        const y = base - (k + 1) * high;
        parts.push(box(b * BANK + 1, y + 0.4, BANK - 2, Math.max(high - 0.8, 1), fill, {}, `bank ${b}: word ${word}`));
      });
    }
    base -= each.passes * high;
    if (each.passes && base > PLOT - passes * high + 0.1) parts.push(line(0, base, BANKS * BANK, base, "grey", { "stroke-dasharray": "3 2" }));
  }
  parts.push(line(0, PLOT, BANKS * BANK, PLOT, "grey"));
  parts.push(label(0, base - 8, counted(passes, "wavefront"), { ...SMALL, "font-weight": "bold" }));
  for (let b = 0; b < BANKS; b += 1) {
    const title = `bank ${b}: press to mark it`;
    parts.push(box(b * BANK, PLOT + 1, BANK, 16, b === bank ? "pink" : "paper", sets({ bank: b }), title));
  }
  for (let b = 0; b < BANKS; b += 1) {
    const near = Math.abs(b - bank) === 1; // two numbers side by side have no room
    if (b === bank || (!near && (b % 4 === 0 || b === BANKS - 1))) parts.push(label((b + 0.5) * BANK, PLOT + 9, b, { anchor: "middle", fill: b === bank ? "black" : "grey", ...SILENT, ...SMALL }));
  }
  parts.push(label((BANKS * BANK) / 2, PLOT + 25, "bank", { anchor: "middle", ...SMALL }));
  return parts.join("");
}
