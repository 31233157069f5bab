/** Where rows of a tile stand among the banks: as they come, padded, or swizzled. */
import { counted, sets, thousands } from "../ui/markup.js";
import { box, group, label, line, picture } from "../ui/svg.js";
import { wavefronts } from "../models/banks.js";
import { between, ofRows, read, ROWS, rowPlaces, UNIT } from "../models/swizzle.js";

/** @typedef {import("../ui/figure.js").State} State */

const GROUPS = 8; // of four banks, 16 bytes
const GROUP = 24; // units of the picture across
const HIGH = 17;
const SMALL = { "font-size": 10.5 };

/** @type {import("../ui/figure.js").Explorer} */
export const swizzle = {
  name: "swizzle",
  title: "A tile's rows, and their banks.",
  question: "Which swizzle does a row of 64 bytes need, so that eight of them are read at once?",
  fields: [
    { key: "row", label: "Bytes in a row of the tile", kind: "steps", values: [32, 64, 128] },
    {
      key: "order",
      label: "Rows in shared memory",
      kind: "choice",
      values: ["none", "padding", "32", "64", "128"],
      names: ["as they come", "16 bytes free behind each", "32-byte swizzle", "64-byte swizzle", "128-byte swizzle"],
    },
    {
      key: "along",
      label: "Eight lanes read",
      kind: "choice",
      values: ["column", "row"],
      names: ["one place of eight rows (ldmatrix, wgmma)", "128 bytes along rows (a copy)"],
    },
    { key: "which", label: "Which place, or from which row on", kind: "range", min: 0, max: 7 },
  ],
  start: { row: 128, order: "none", along: "column", which: 2 },
  draw: (state) => {
    const { row, order, lanes, places, passes } = asked(state);
    const at = places.map((units) => units.map((byte) => ({ y: Math.floor(byte / 128), x: Math.floor(byte / UNIT) % GROUPS })));
    return picture(
      360,
      326,
      say(state),
      tile(row, lanes, state),
      memory(at, lanes, state),
      counts(at, lanes, passes),
      group(8, 264, label(0, 0, counted(passes, "wavefront"), { "font-size": 14, "font-weight": "bold" }), size(row, order)),
    );
  },
  say,
};

/**
 * What is read, and where it stands.
 * @param {State} state
 */
function asked(state) {
  const [row, which, order, along] = [Number(state.row), Number(state.which), String(state.order), String(state.along)];
  const first = ofRows(row, order, which, along);
  return {
    row,
    order,
    along,
    lanes: read(row, which, along),
    places: rowPlaces(row, order),
    groups: new Set(first.filter((byte) => byte >= 0).map((byte) => Math.floor(byte / UNIT) % GROUPS)).size,
    passes: wavefronts(first, UNIT, "read").passes,
  };
}

/** @param {State} state */
function say(state) {
  const { row, order, along, lanes, groups, passes } = asked(state);
  const what =
    along === "column"
      ? `The 16 bytes at place ${lanes[0][1]} of eight rows`
      : `The 128 bytes from row ${lanes[0][0]} on`;
  const conflict = passes === 1 ? "no conflict" : "1 without conflicts";
  const first = `${what} are in ${groups} of the 8 groups of banks: ${counted(passes, "wavefront")}, ${conflict}.`;
  return [first, ...remarks(row, order)].join(" ");
}

/**
 * What else an order means for rows of that length.
 * @param {number} row
 * @param {string} order
 */
function remarks(row, order) {
  if (order === "padding") {
    const off = Array.from({ length: ROWS }, (_, r) => r * between(row, order)).filter((byte) => byte % 32);
    return [`${off.length} of the eight rows do not begin at a multiple of 32 bytes.`];
  }
  const span = Number(order);
  return span && span < row ? [`TMA takes this swizzle for rows of up to ${span} bytes only.`] : [];
}

/**
 * @param {number} row
 * @param {string} order
 */
function size(row, order) {
  return label(0, 20, `${thousands(ROWS * between(row, order))} bytes of memory`, SMALL);
}

/**
 * Whether a place is read, and by which lane.
 * @param {[number, number][]} lanes
 * @param {number} r
 * @param {number} u
 */
function laneOf(lanes, r, u) {
  return lanes.findIndex(([row, unit]) => row === r && unit === u);
}

/**
 * What pressing a place does: read it, in the direction that is set.
 * @param {State} state
 * @param {number} r
 * @param {number} u
 */
function pick(state, r, u) {
  return sets({ which: state.along === "column" ? u : r });
}

/**
 * The tile as one thinks of it.
 * @param {number} row
 * @param {[number, number][]} lanes
 * @param {State} state
 */
function tile(row, lanes, state) {
  const parts = [label(0, -24, "tile, 16 bytes a square", SMALL)];
  for (let r = 0; r < ROWS; r += 1) {
    parts.push(label(10, r * HIGH + HIGH / 2, r, { anchor: "end", ...SMALL }));
    for (let u = 0; u < row / UNIT; u += 1) {
      const lane = laneOf(lanes, r, u);
      const more = { ...pick(state, r, u), stroke: "#8a8a8a", "stroke-width": 0.6 };
      const title = `row ${r}, place ${u}` + (lane < 0 ? "" : `: lane ${lane}`);
      parts.push(box(14 + u * 15, r * HIGH, 15, HIGH, lane < 0 ? "paper" : "sky", more, title));
      if (lane >= 0) parts.push(label(21.5 + u * 15, r * HIGH + HIGH / 2, u, { anchor: "middle", fill: "black", "pointer-events": "none", ...SMALL }));
    }
  }
  for (let u = 0; u < row / UNIT; u += 1) parts.push(label(21.5 + u * 15, -8, u, { anchor: "middle", fill: "grey", ...SMALL }));
  return group(4, 36, ...parts);
}

/**
 * Lines of shared memory, with the row and the place that stand in each group of banks.
 * @param {{x: number, y: number}[][]} at
 * @param {[number, number][]} lanes
 * @param {State} state
 */
function memory(at, lanes, state) {
  const parts = [label(0, -24, "shared memory, groups of four banks", SMALL)];
  for (let g = 0; g < GROUPS; g += 1) parts.push(label((g + 0.5) * GROUP, -8, g, { anchor: "middle", fill: "grey", ...SMALL }));
  parts.push(box(0, 0, GROUPS * GROUP, 9 * HIGH, "paper", { stroke: "#c4c4c4", "stroke-width": 0.6, "stroke-dasharray": "2 3" }));
  at.forEach((units, r) =>
    units.forEach(({ x, y }, u) => {
      const lane = laneOf(lanes, r, u);
      const more = { ...pick(state, r, u), stroke: "#8a8a8a", "stroke-width": 0.6 };
      const title = `group ${x}: place ${u} of row ${r}` + (lane < 0 ? "" : `, lane ${lane}`);
      parts.push(box(x * GROUP, y * HIGH, GROUP, HIGH, lane < 0 ? "pale" : "sky", more, title));
      const bold = lane < 0 ? {} : { "font-weight": "bold" };
      parts.push(label((x + 0.5) * GROUP, (y + 0.5) * HIGH, `${r}·${u}`, { anchor: "middle", fill: lane < 0 ? "grey" : "black", "pointer-events": "none", ...bold, ...SMALL }));
    }),
  );
  return group(162, 36, ...parts);
}

/**
 * What each group of banks gives, one row a wavefront.
 * @param {{x: number, y: number}[][]} at
 * @param {[number, number][]} lanes
 * @param {number} passes
 */
function counts(at, lanes, passes) {
  const high = 12;
  const parts = [line(0, 0, GROUPS * GROUP, 0, "grey")];
  const depth = new Array(GROUPS).fill(0);
  lanes.forEach(([r, u], lane) => {
    const { x } = at[r][u];
    const y = depth[x] * high;
    depth[x] += 1;
    parts.push(box(x * GROUP + 1, y + 1, GROUP - 2, high - 1, passes > 1 ? "orange" : "sky", {}, `wavefront ${depth[x]}: lane ${lane} from group ${x}`));
    parts.push(label((x + 0.5) * GROUP, y + high / 2 + 0.5, lane, { anchor: "middle", fill: "black", "pointer-events": "none", ...SMALL }));
  });
  parts.push(label(-6, 6, "lanes,", { anchor: "end", ...SMALL }), label(-6, 18, "a row a wavefront", { anchor: "end", ...SMALL }));
  return group(162, 222, ...parts);
}
