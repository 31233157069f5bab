/** Who holds what when TensorCores multiply: press a lane, or an element. */
import { counted, sets } from "../ui/markup.js";
import { box, COLOURS, group, label, line, picture } from "../ui/svg.js";
import { givenRow, holder, place } from "../models/fragments.js";

/**
 * @typedef {import("../ui/figure.js").State} State
 * @typedef {{i: number, j: number, lane: number, register: number}} Element
 * @typedef {object} Matrix what is drawn
 * @property {string} what
 * @property {string} name of the matrix
 * @property {number} rows
 * @property {number} columns
 * @property {number} top the first row, where it is part of more
 * @property {number} left the first column
 * @property {number} bits of an element
 */

const CELL = { width: 15.6, height: 14.5 };
const GRID = { x: 24, y: 30 };
const PANEL = 300; // where the registers stand
const SMALL = { "font-size": 10.5 };
const CENTRE = { ...SMALL, anchor: "middle", "pointer-events": "none" };

const NAMES = {
  mma_a: "mma.sync m16n8k16: A",
  mma_b: "mma.sync m16n8k16: B",
  mma_c: "mma.sync m16n8k16: C",
  wmma_a: "wmma 16 × 16 × 16: A",
  wmma_b: "wmma 16 × 16 × 16: B",
  wmma_c: "wmma 16 × 16 × 16: C",
  ldmatrix: "ldmatrix",
  ldmatrix_trans: "ldmatrix.trans",
  sums: "wgmma m64nNk16: C",
  operand: "wgmma: A or B in shared memory",
};

/** @param {State} state */
const loads = (state) => String(state.what).startsWith("ldmatrix");
/** @param {State} state */
const inMemory = (state) => state.what === "operand";
/** @param {State} state */
const ofWarpgroup = (state) => inMemory(state) || state.what === "sums";

/** @type {import("../ui/figure.js").Explorer} */
export const fragments = {
  name: "fragments",
  title: "Who holds what.",
  question: "Which elements does a lane hold, and which two of them share a register of 32 bits?",
  fields: [
    { key: "what", label: "Instruction and matrix", kind: "choice", values: Object.keys(NAMES), names: Object.values(NAMES) },
    { key: "lane", label: "Lane", kind: "range", min: 0, max: 31, when: (state) => !inMemory(state) },
    { key: "register", label: "Element of the lane", kind: "range", min: 0, max: 7, when: (state) => !inMemory(state) },
    { key: "number", label: "Matrices that ldmatrix loads", kind: "steps", values: [1, 2, 4], when: loads },
    { key: "warp", label: "Rows: 16 times", kind: "range", min: 0, max: 3, when: ofWarpgroup },
    { key: "block", label: "Columns: 16 times", kind: "range", min: 0, max: 15, when: (state) => state.what === "sums" },
    { key: "row", label: "Row of these 16", kind: "range", min: 0, max: 15, when: inMemory },
    { key: "step", label: "Step of 16 columns", kind: "range", min: 0, max: 3, when: inMemory },
  ],
  start: { what: "mma_a", lane: 9, register: 0, number: 4, warp: 0, block: 0, row: 5, step: 1 },
  draw: (state) => picture(360, 306, say(state), ...(inMemory(state) ? memory(state) : registers(state))),
  say,
};

/**
 * @param {State} state
 * @returns {Matrix}
 */
function matrix(state) {
  const what = String(state.what);
  const name = loads(state) ? "T" : what === "sums" ? "C" : what.slice(-1).toUpperCase();
  const [top, left] = what === "sums" ? [16 * Number(state.warp), 16 * Number(state.block)] : [0, 0];
  const narrow = what === "mma_b" || what === "mma_c" || (loads(state) && Number(state.number) < 4);
  const rows = loads(state) && state.number === 1 ? 8 : 16;
  return { what, name, rows, columns: narrow ? 8 : 16, top, left, bits: name === "C" ? 32 : 16 };
}

/**
 * All elements that are drawn, with who holds them; lanes are those of the warp.
 * @param {Matrix} of
 * @returns {Element[]}
 */
function elements({ what, rows, columns, top, left }) {
  return Array.from({ length: rows * columns }, (_, k) => {
    const [i, j] = [top + Math.floor(k / columns), left + (k % columns)];
    const [lane, register] = holder(what, i, j);
    return { i, j, lane: lane % 32, register };
  });
}

/**
 * What the lane of the state holds, in the order of its registers; and the one that is looked at.
 * @param {State} state
 */
function held(state) {
  const of = matrix(state);
  const all = elements(of);
  const mine = all.filter((each) => each.lane === Number(state.lane)).sort((a, b) => a.register - b.register);
  return { of, all, mine, chosen: mine[Number(state.register) % mine.length] };
}

/** @param {State} state */
function say(state) {
  if (inMemory(state)) return sayMemory(state);
  const { of, mine, chosen } = held(state);
  const who = of.what === "sums" ? `Thread ${32 * Number(state.warp) + Number(state.lane)}` : `Lane ${state.lane}`;
  const [rows, columns] = [mine.map((each) => each.i), mine.map((each) => each.j)].map(different);
  const all = `${plural("row", rows)} and ${plural("column", columns)}`;
  const pair = mine.filter((each) => each !== chosen && share(each, chosen));
  const with_ =
    of.bits === 32 ? `alone in register ${chosen.register}, as float32` : `in one register of 32 bits with ${pair.map((each) => at(of, each)).join("")}`;
  const part = of.what === "sums" ? "these columns of C" : of.name;
  const verb = loads(state) ? `${given(state)} and receives` : "holds";
  return `${who} ${verb} ${counted(mine.length, "element")} of ${part}, from ${all}. ${at(of, chosen)} is ${with_}.`;
}

/**
 * Which address a lane gives to ldmatrix.
 * @param {State} state
 */
function given(state) {
  const lane = Number(state.lane);
  if (lane >= 8 * Number(state.number)) return "gives no address that is used";
  const [row, column] = givenRow(lane);
  return `gives the address of ${at(matrix(state), { i: row, j: column })} to ${at(matrix(state), { i: row, j: column + 7 })}`;
}

/**
 * @param {Element} a
 * @param {Element} b
 */
function share(a, b) {
  return Math.floor(a.register / 2) === Math.floor(b.register / 2);
}

/** @param {number[]} numbers */
function different(numbers) {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/**
 * @param {string} noun
 * @param {number[]} numbers
 */
function plural(noun, numbers) {
  const last = numbers[numbers.length - 1];
  return numbers.length === 1 ? `${noun} ${last}` : `${noun}s ${numbers.slice(0, -1).join(", ")} and ${last}`;
}

/**
 * @param {Matrix} of
 * @param {{i: number, j: number}} element
 */
function at(of, { i, j }) {
  return `${of.name}[${i}, ${j}]`;
}

/** @param {State} state */
function registers(state) {
  const { of, all, mine, chosen } = held(state);
  const cells = all.map((each) => cell(state, of, each, mine, chosen));
  return [
    label(0, 7, loads(state) ? "a tile, by the lane that receives an element" : `${of.name}, by the lane that holds an element`, SMALL),
    group(GRID.x, GRID.y, ...rulers(of, loads(state)), ...cells, ...(loads(state) ? addresses(state) : [])),
    panel(of, mine, chosen),
    of.what === "sums" ? overview(state) : "",
    lanes(state),
  ];
}

/**
 * @param {State} state
 * @param {Matrix} of
 * @param {Element} each
 * @param {Element[]} mine
 * @param {Element} chosen
 */
function cell(state, of, each, mine, chosen) {
  const [x, y] = [(each.j - of.left) * CELL.width, (each.i - of.top) * CELL.height];
  const on = each.lane === Number(state.lane);
  const now = each === chosen || (each.i === chosen.i && each.j === chosen.j);
  const fill = now ? "amber" : on ? "blue" : each.lane % 2 ? "pale" : "paper";
  const ink = now ? "black" : on ? "paper" : "ink";
  const title = `${at(of, each)}: lane ${each.lane}, register element ${each.register}`;
  const index = on ? mine.indexOf(each) : Number(rank(of, each));
  return (
    box(x, y, CELL.width, CELL.height, fill, { ...sets({ lane: each.lane, register: index }), stroke: COLOURS.line, "stroke-width": 0.5 }, title) +
    label(x + CELL.width / 2, y + CELL.height / 2, each.lane, { ...CENTRE, fill: ink, "font-weight": on ? "bold" : undefined })
  );
}

/**
 * Which of its lane's elements that are drawn an element is.
 * @param {Matrix} of
 * @param {Element} each
 */
function rank(of, each) {
  return of.what === "sums" ? each.register % 8 : each.register;
}

/**
 * Numbers of rows and columns; of ldmatrix the rows are named by who gives their address.
 * @param {Matrix} of
 * @param {boolean} byLane
 */
function rulers(of, byLane) {
  const parts = [];
  for (let j = 0; j < of.columns; j += 1) {
    if (of.left > 90 && j % 2) continue; // numbers of three digits are wider than a cell
    parts.push(label((j + 0.5) * CELL.width, -7, of.left + j, { ...CENTRE, fill: "grey" }));
  }
  if (byLane) return parts;
  for (let i = 0; i < of.rows; i += 1) {
    parts.push(label(-4, (i + 0.5) * CELL.height, of.top + i, { ...SMALL, anchor: "end", fill: "grey" }));
  }
  return parts;
}

/**
 * On both sides of a tile the lanes that give the address of half a row.
 * @param {State} state
 */
function addresses(state) {
  const parts = [];
  for (let lane = 0; lane < 8 * Number(state.number); lane += 1) {
    const [row, column] = givenRow(lane);
    const on = lane === Number(state.lane);
    const [x, y] = [column ? 16 * CELL.width + 3 : -21, row * CELL.height];
    const title = `lane ${lane} gives the address of this half of row ${row}`;
    parts.push(box(x, y + 0.5, 18, CELL.height - 1, on ? "orange" : "paper", { ...sets({ lane }), stroke: COLOURS.orange, "stroke-width": 0.7, rx: 3 }, title));
    parts.push(label(x + 9, y + CELL.height / 2, lane, { ...CENTRE, fill: on ? "paper" : "ink", "font-weight": on ? "bold" : undefined }));
    if (on) {
      parts.push(
        `<rect class="d2l-stroke-orange" x="${column * CELL.width}" y="${y}" width="${8 * CELL.width}" height="${CELL.height}" ` +
          `fill="none" stroke="${COLOURS.orange}" stroke-width="2.5" pointer-events="none"/>`,
      );
    }
  }
  return parts;
}

/**
 * The registers of the lane, two float16 in one, or a float32.
 * @param {Matrix} of
 * @param {Element[]} mine
 * @param {Element} chosen
 */
function panel(of, mine, chosen) {
  const each = of.bits / 16; // rows that an element is high
  const parts = [label(PANEL, 7, `lane ${chosen.lane}'s`, SMALL), label(PANEL, 21, "registers", SMALL)];
  mine.forEach((element, k) => {
    const y = 30 + k * 15 + Math.floor((k * each) / 2) * 4;
    const now = element === chosen;
    const more = { ...sets({ register: k }), stroke: COLOURS.blue, "stroke-width": 0.8 };
    parts.push(box(PANEL, y, 59, 15, now ? "amber" : "paper", more, `register element ${element.register}: ${at(of, element)}`));
    parts.push(label(PANEL + 30, y + 7.5, `${element.i}, ${element.j}`, { ...CENTRE, fill: now ? "black" : "ink" }));
  });
  return parts.join("");
}

/**
 * All warps and columns of wgmma's sums, with the part that is drawn.
 * @param {State} state
 */
function overview(state) {
  const parts = [label(PANEL, 216, "64 × 256", SMALL)];
  for (let warp = 0; warp < 4; warp += 1) {
    for (let block = 0; block < 16; block += 1) {
      const on = warp === Number(state.warp) && block === Number(state.block);
      const title = `warp ${warp}, columns ${16 * block} to ${16 * block + 15}`;
      parts.push(box(PANEL + block * 3.8, 226 + warp * 9, 3.8, 9, on ? "amber" : "paper", { ...sets({ warp, block }), stroke: COLOURS.grey, "stroke-width": 0.5 }, title));
    }
  }
  return parts.join("");
}

/**
 * All lanes, to press.
 * @param {State} state
 */
function lanes(state) {
  const parts = [label(0, 278, "lane", SMALL)];
  for (let lane = 0; lane < 32; lane += 1) {
    const [x, y] = [GRID.x + 4 + (lane % 16) * 20.5, 270 + Math.floor(lane / 16) * 18];
    const on = lane === Number(state.lane);
    parts.push(box(x, y, 19.5, 17, on ? "blue" : "pale", { ...sets({ lane }), stroke: COLOURS.grey, "stroke-width": 0.5 }, `lane ${lane}`));
    parts.push(label(x + 9.75, y + 8.5, lane, { ...CENTRE, fill: on ? "paper" : "ink", "font-weight": on ? "bold" : undefined }));
  }
  return parts.join("");
}

/** @param {State} state */
function sayMemory(state) {
  const [row, step] = [16 * Number(state.warp) + Number(state.row), Number(state.step)];
  const pieces = [0, 8].map((more) => place(row, 16 * step + more) * 2);
  const banks = pieces.map((byte) => `${(byte / 4) % 32} to ${((byte / 4) % 32) + 3}`);
  return (
    `Columns ${16 * step} to ${16 * step + 15} of row ${row} are 2 pieces of 16 bytes, which begin at bytes ${pieces.join(" and ")} ` +
    `of the tile, in banks ${banks.join(" and ")}. Any 8 neighbouring rows have the same piece in all 32 banks.`
  );
}

/**
 * Rows of 128 bytes as they lie in memory, eight pieces of 16 bytes each.
 * @param {State} state
 */
function memory(state) {
  const [top, row, step] = [16 * Number(state.warp), Number(state.row), Number(state.step)];
  const width = 40;
  const parts = [label(0, 7, "shared memory: which columns of its row each 16 bytes hold", SMALL)];
  for (let k = 0; k < 8; k += 1) parts.push(label(28 + (k + 0.5) * width, 22, `${4 * k}–${4 * k + 3}`, { ...CENTRE, fill: "grey" }));
  for (let i = 0; i < 16; i += 1) {
    const y = 30 + i * CELL.height;
    parts.push(label(22, y + CELL.height / 2, top + i, { ...SMALL, anchor: "end", fill: i === row ? "ink" : "grey", "font-weight": i === row ? "bold" : undefined }));
    for (let piece = 0; piece < 8; piece += 1) {
      const byte = place(top + i, 8 * piece) * 2;
      const x = 28 + ((byte % 128) / 16) * width;
      const on = Math.floor(piece / 2) === step;
      const now = on && i === row;
      const title = `row ${top + i}, columns ${8 * piece} to ${8 * piece + 7}: byte ${byte} of the tile`;
      const more = { ...sets({ row: i, step: Math.floor(piece / 2) }), stroke: COLOURS.line, "stroke-width": 0.5 };
      parts.push(box(x, y, width, CELL.height, now ? "amber" : on ? "blue" : "paper", more, title));
      const ink = now ? "black" : on ? "paper" : "ink";
      parts.push(label(x + width / 2, y + CELL.height / 2, `${8 * piece}–${8 * piece + 7}`, { ...CENTRE, fill: ink, "font-weight": on ? "bold" : undefined }));
    }
  }
  const middle = 30 + 8 * CELL.height;
  parts.push(line(28, middle, 28 + 8 * width, middle, "ink", { "stroke-width": 1.5 }));
  parts.push(label(28, 272, "above: the banks; bold: the columns of this step", { ...SMALL, fill: "grey" }));
  return parts;
}
