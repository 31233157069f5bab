/** Which banks of shared memory a warp asks, and how often the busiest has to answer. */
import { counted, sets } from "../ui/markup.js";
import { box, group, label, line, picture } from "../ui/svg.js";
import { BANKS, wavefronts } from "../models/banks.js";
import { addresses } from "../models/bank_addresses.js";

/** @typedef {import("../ui/figure.js").State} State */

const COLUMN = 20; // of the picture, for a bank; 16 of them below each other with the other 16
const PLOT = 96; // height of the stacks of one half

/** @type {import("../ui/figure.js").Explorer} */
export const banks = {
  name: "banks",
  title: "The 32 banks of shared memory.",
  question: "How little padding makes a column of the tile as cheap as a row?",
  fields: [
    { key: "columns", label: "Columns of the tile (float32)", kind: "steps", values: [8, 16, 32, 64, 128] },
    { key: "padding", label: "Padding of each row (float32)", kind: "range", min: 0, max: 8 },
    { key: "across", label: "Lanes side by side in a row", kind: "steps", values: [1, 2, 4, 8, 16, 32] },
    { key: "each", label: "Columns that a thread owns", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "vthreads", label: "Virtual threads", kind: "steps", values: [1, 2, 4, 8, 16] },
    { key: "width", label: "Elements in one load", kind: "choice", values: [1, 2, 4] },
    { key: "swizzle", label: "128-byte swizzle", kind: "check" },
  ],
  start: { columns: 32, padding: 0, across: 1, each: 1, vthreads: 1, width: 1, swizzle: 0 },
  fieldsFor: (given) => [
    {
      key: "request",
      label: "Access of the kernel",
      kind: "choice",
      values: given.requests.map((/** @type {any} */ _, /** @type {number} */ k) => k),
      names: given.requests.map((/** @type {any} */ each) => each.name),
    },
  ],
  draw: (state, given) => {
    const { first, width, kind } = asked(state, given);
    const label = say(state, given);
    if (misaligned(first, width)) return picture(360, 300, label, unaligned(state, given));
    const { groups, passes } = wavefronts(first, width, kind);
    const most = Math.max(...groups.map((each) => each.passes));
    const halves = [0, 16].map((from, k) => group(20, 8 + k * 134, half(groups, from, most, passes > groups.length)));
    return picture(360, 300, label, ...halves, given ? "" : strip(state));
  },
  say,
};

/**
 * The request that is looked at.
 * @param {State} state
 * @param {any} given
 */
function asked(state, given) {
  if (given) return given.requests[Number(state.request) || 0];
  return { first: addresses(state), width: 4 * Number(state.width), kind: "read" };
}

/**
 * @param {State} state
 * @param {any} given
 */
function say(state, given) {
  const { first, width, kind } = asked(state, given);
  if (misaligned(first, width)) {
    return `A load of ${width} bytes needs addresses at multiples of ${width}: with this padding no GPU makes it.`;
  }
  const { passes, groups } = wavefronts(first, width, kind);
  const words = new Set(groups.flatMap((each) => each.banks.flat()));
  const busy = new Set([...words].map((word) => word % BANKS));
  const least = groups.length;
  const conflict = passes === least ? "no conflict" : `${least} without conflicts`;
  return (
    `A warp asks for ${counted(words.size, "different word")} in ${busy.size} of the ${BANKS} banks: ` +
    `${counted(passes, "wavefront")}, ${conflict}.`
  );
}

/**
 * @param {number[]} first
 * @param {number} width
 */
function misaligned(first, width) {
  return first.some((byte) => byte >= 0 && byte % width);
}

/**
 * @param {State} state
 * @param {any} given
 */
function unaligned(state, given) {
  return label(180, 120, "not aligned: no such load", { anchor: "middle", fill: "orange" }) + (given ? "" : strip(state));
}

/**
 * Stacks of the words that 16 banks give: one word a wavefront, group by group.
 * @param {{banks: number[][], passes: number}[]} groups
 * @param {number} from the first bank
 * @param {number} most words of one bank in one group
 * @param {boolean} conflicts
 */
function half(groups, from, most, conflicts) {
  const parts = [line(0, PLOT, 16 * COLUMN, PLOT, "grey")];
  const height = Math.min(12, PLOT / (most * groups.length));
  for (let bank = from; bank < from + 16; bank += 1) {
    const x = (bank - from) * COLUMN;
    let y = PLOT;
    for (const { banks, passes } of groups) {
      for (const word of banks[bank]) {
        y -= height;
        const fill = conflicts && passes === banks[bank].length && passes > 1 ? "orange" : "sky";
        parts.push(box(x + 2, y + 0.5, COLUMN - 4, Math.max(height - 1, 1), fill, {}, `bank ${bank}: word ${word}`));
      }
    }
    const count = groups.reduce((sum, { banks }) => sum + banks[bank].length, 0);
    if (count) parts.push(label(x + COLUMN / 2, y - 7, count, { anchor: "middle", "font-size": 10.5 }));
    parts.push(label(x + COLUMN / 2, PLOT + 9, bank, { anchor: "middle", "font-size": 10.5, fill: "grey" }));
  }
  return parts.join("");
}

/**
 * The end of a row, where padding is added by pressing.
 * @param {State} state
 */
function strip(state) {
  const parts = [label(20, 286, "padding:", { "font-size": 10.5 })];
  for (let k = 0; k <= 8; k += 1) {
    const on = k <= Number(state.padding);
    const title = `padding of ${k}`;
    parts.push(box(76 + k * 24, 276, 22, 20, on ? "amber" : "pale", { ...sets({ padding: k }), stroke: "#8a8a8a" }, title));
    parts.push(label(87 + k * 24, 286, k, { anchor: "middle", "font-size": 10.5, fill: on ? "black" : "ink", "pointer-events": "none" }));
  }
  return parts.join("");
}
