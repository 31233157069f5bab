/** A ring of slots in time: who waits, for which barrier, and what a missing wait does. */
import { counted, rounded, sets, thousands } from "../ui/markup.js";
import { box, COLOURS, group, label, line, picture } from "../ui/svg.js";
import { ringTimeline, waited } from "../models/ring.js";

/**
 * @typedef {import("../ui/figure.js").State} State
 * @typedef {import("../models/ring.js").Timeline} Timeline
 * @typedef {import("../models/ring.js").Tile} Tile
 * @typedef {import("../models/ring.js").Wait} Wait
 * @typedef {import("../models/ring.js").Who} Who
 */

const LEFT = 54; // where time begins in the picture
const WIDTH = 244;
const SLOTS = { top: 62, height: 132 }; // of all slots together
const CONSUMER = 200;
const AXIS = 232;
const [FULL, EMPTY] = [314, 344]; // columns of phases
const SMALL = { "font-size": 10.5 };

/** @param {number} step @param {number} most */
const multiples = (step, most) => Array.from({ length: most / step }, (_, k) => (k + 1) * step);

/** @type {import("../ui/figure.js").Explorer} */
export const ring = {
  name: "ring",
  title: "A ring of slots in time.",
  question: "How many slots does it take until the consumer waits for the first tile only?",
  fields: [
    { key: "stages", label: "Slots of the ring", kind: "range", min: 1, max: 6 },
    { key: "rounds", label: "Tiles", kind: "range", min: 4, max: 16 },
    { key: "multiply", label: "Cycles to multiply a tile", kind: "steps", values: multiples(64, 1536) },
    { key: "latency", label: "Latency of a fetch (cycles)", kind: "steps", values: [0, ...multiples(64, 1536)] },
    { key: "transfer", label: "Cycles between tiles from memory", kind: "steps", values: multiples(32, 1024) },
    { key: "ask", label: "Cycles in which the producer asks", kind: "steps", values: multiples(32, 512) },
    {
      key: "broken",
      label: "What is wrong",
      kind: "choice",
      values: ["nothing", "full", "empty", "back", "consumer", "producer", "first"],
      names: [
        "nothing",
        "consumer does not wait for full",
        "producer does not wait for empty",
        "consumer hands nothing back",
        "consumer does not flip its parity",
        "producer does not flip its parity",
        "producer waits for the consumer's parity",
      ],
    },
    { key: "time", label: "Time (% of the whole)", kind: "range", min: 0, max: 100 },
  ],
  start: { stages: 2, rounds: 10, multiply: 512, latency: 640, transfer: 224, ask: 32, broken: "nothing", time: 100 },
  plays: { key: "time", seconds: 0.08 },
  draw: (state) => {
    const timeline = followed(state);
    const now = Math.round((timeline.time * Number(state.time)) / 100);
    const scale = WIDTH / Math.max(timeline.time, 1);
    const stages = Number(state.stages);
    const parts = [
      header(timeline, now, stages),
      producer(timeline, scale),
      ...timeline.full.map((_, slot) => ringSlot(timeline, slot, stages, scale, now)),
      consumer(timeline, scale),
      stalls(timeline, scale, stages),
      veil(now * scale),
      axis(timeline, scale, now),
      legend(),
    ];
    return picture(360, 296, say(state), ...parts);
  },
  say,
};

/** @param {State} state */
function followed(state) {
  const [stages, rounds, transfer, latency, multiply, ask] = [
    state.stages, state.rounds, state.transfer, state.latency, state.multiply, state.ask,
  ].map(Number);
  return ringTimeline(stages, rounds, transfer, latency, multiply, ask, String(state.broken));
}

/** @param {State} state */
function say(state) {
  const timeline = followed(state);
  return `${outcome(timeline, Number(state.stages))} ${hazards(timeline)}`;
}

/**
 * How it ends, and what it takes.
 * @param {Timeline} timeline
 * @param {number} stages
 */
function outcome(timeline, stages) {
  const { tiles, time, ends } = timeline;
  const done = tiles.filter((tile) => tile.done !== null).length;
  const before = `${done} of ${counted(tiles.length, "tile")} multiplied`;
  if (ends === "deadlock") {
    const stuck = timeline.waits.filter((wait) => wait.until === null);
    const whom = stuck.map((wait) => `the ${wait.who} waits for ${asked(wait, stages)}`);
    return `Deadlock at cycle ${thousands(time)}, ${before}: ${whom.join(", ")}, for ever.`;
  }
  if (ends === "overrun") {
    const slot = (tiles.filter((tile) => tile.asked !== null).length - 1) % stages;
    return `Broken at cycle ${thousands(time)}, ${before}: full[${slot}] gets a second arrival in one phase.`;
  }
  const under = tiles.filter((tile) => tile.arrived === null).length;
  const [waits, stalls] = WHO.map((who) => `${rounded((100 * waited(timeline, who)) / time, 2)}%`);
  return (
    `${counted(tiles.length, "tile")} in ${thousands(time)} cycles, ${thousands(time / tiles.length)} a tile; ` +
    `the consumer waits for full ${stalls} of the time, the producer for empty ${waits}.` +
    (ends === "early" ? ` The kernel ends with ${counted(under, "tile")} on its way.` : "")
  );
}

/** @param {Timeline} timeline */
function hazards({ tiles, ends }) {
  const wrong = tiles.filter((tile) => tile.done !== null && !tile.right).length;
  const early = tiles.filter((tile) => tile.overwrites).length;
  const found = [
    wrong && `${counted(wrong, "tile is", "tiles are")} multiplied in a slot with something else`,
    early && `${counted(early, "tile is", "tiles are")} asked for into a slot that is still needed`,
  ].filter(Boolean);
  if (found.length) return `Wrong: ${found.join("; ")}.`;
  return ends === "done" ? "Every tile is multiplied in a slot that holds it." : "No tile is multiplied in a slot with something else.";
}

/**
 * What someone waits for.
 * @param {Wait} wait
 * @param {number} stages
 */
function asked(wait, stages) {
  const barrier = wait.who === "producer" ? "empty" : "full";
  return `${barrier}[${wait.tile % stages}], parity ${wait.parity}`;
}

/**
 * What both do now, and above the last two columns what they are.
 * @param {Timeline} timeline
 * @param {number} now
 * @param {number} stages
 */
function header(timeline, now, stages) {
  const lines = WHO.map((who, k) => label(0, 8 + 15 * k, `${who} ${doing(timeline, who, now, stages)}`, SMALL));
  return [
    ...lines,
    label(360, 23, "phase of", { ...SMALL, anchor: "end", fill: "grey" }),
    label(FULL, 40, "full", { ...SMALL, anchor: "middle", fill: "grey" }),
    label(EMPTY, 40, "empty", { ...SMALL, anchor: "middle", fill: "grey" }),
  ].join("");
}

/** @type {Who[]} */
const WHO = ["producer", "consumer"];

/**
 * @param {Timeline} timeline
 * @param {Who} who
 * @param {number} now
 * @param {number} stages
 */
function doing(timeline, who, now, stages) {
  const waits = timeline.waits.find((w) => w.who === who && w.since <= now && (w.until === null || w.until > now));
  if (waits) return `waits for ${asked(waits, stages)}${waits.until === null ? ", for ever" : ""}`;
  const { tiles } = timeline;
  const through = tiles.every((tile) => (who === "producer" ? tile.asked : tile.done) !== null);
  const last = tiles.map((tile) => (who === "producer" ? tile.asked : tile.taken)).filter((at) => at !== null && at <= now);
  if (!last.length) return "begins";
  const tile = last.length - 1;
  if (who === "producer") return through && last.length === tiles.length ? "has asked for all tiles" : `asks for tile ${tile}`;
  const { done } = tiles[tile];
  if (done === null || done > now) return `multiplies tile ${tile}`;
  return last.length === tiles.length ? "has multiplied all tiles" : `has multiplied tile ${tile}`;
}

/**
 * A triangle where each tile is asked for.
 * @param {Timeline} timeline
 * @param {number} scale
 */
function producer({ tiles }, scale) {
  const marks = tiles.map((tile, k) => {
    if (tile.asked === null) return "";
    const x = LEFT + tile.asked * scale;
    const fill = tile.overwrites ? "orange" : "ink";
    const words = `tile ${k} asked for at cycle ${thousands(tile.asked)}`;
    const more = tile.overwrites ? ", while its slot is still needed" : "";
    return (
      `<path class="d2l-${fill}" fill="${COLOURS[fill]}" d="M${x} 58l-4 -8h8z"><title>${words}${more}</title></path>` +
      (tile.overwrites ? label(x, 44, "✗", { ...SMALL, anchor: "middle", fill }) : "")
    );
  });
  return label(0, 53, "producer", SMALL) + marks.join("");
}

/**
 * A slot: tiles on their way, that have come, and that are multiplied.
 * @param {Timeline} timeline
 * @param {number} slot
 * @param {number} stages
 * @param {number} scale
 * @param {number} now
 */
function ringSlot({ tiles, full, empty, time }, slot, stages, scale, now) {
  const height = SLOTS.height / Math.max(stages, 3);
  const parts = [label(0, height / 2, `slot ${slot}`, SMALL)];
  for (let k = slot; k < tiles.length && tiles[k].asked !== null; k += stages) {
    const after = k + stages < tiles.length ? tiles[k + stages].asked : null;
    parts.push(stay(k, tiles[k], after === null ? time : after, time, scale, height));
  }
  for (let k = slot; k < tiles.length; k += stages) parts.push(use(k, tiles[k], time, scale, 4, height - 8));
  for (const [x, turns, name] of /** @type {[number, number[], string][]} */ ([[FULL, full[slot], "full"], [EMPTY, empty[slot], "empty"]])) {
    const phase = turns.filter((at) => at <= now).length % 2;
    const title = `${name}[${slot}] is in phase ${phase}`;
    const middle = height / 2;
    parts.push(box(x - 8, middle - 8, 16, 16, phase ? "ink" : "paper", { stroke: COLOURS.grey, rx: 3 }, title));
    parts.push(label(x, middle, phase, { ...SMALL, anchor: "middle", fill: phase ? "paper" : "ink", "pointer-events": "none" }));
  }
  return group(0, SLOTS.top + slot * height, ...parts);
}

/**
 * A tile in its slot before it is multiplied.
 * @param {number} k
 * @param {Tile} tile
 * @param {number} until the slot is asked for again
 * @param {number} time of the end
 * @param {number} scale
 * @param {number} height
 */
function stay(k, tile, until, time, scale, height) {
  const from = Number(tile.asked);
  const arrived = tile.arrived === null ? time : tile.arrived;
  const way = span(from, arrived, scale, 3, height - 6, "sky", { "fill-opacity": 0.4, stroke: COLOURS.sky, "stroke-dasharray": "2 2" },
    `tile ${k} on its way, cycles ${thousands(from)} to ${thousands(arrived)}`);
  const taken = tile.taken !== null && tile.taken >= arrived ? tile.taken : until;
  const end = Math.min(taken, until);
  if (tile.arrived === null || end <= arrived) return way;
  return way + span(arrived, end, scale, 3, height - 6, "paper", { stroke: COLOURS.blue },
    `tile ${k} waits to be multiplied, cycles ${thousands(arrived)} to ${thousands(end)}`);
}

/**
 * A tile that is multiplied, with its number.
 * @param {number} k
 * @param {Tile} tile
 * @param {number} time
 * @param {number} scale
 * @param {number} y
 * @param {number} height
 */
function use(k, tile, time, scale, y, height) {
  if (tile.taken === null) return "";
  const done = tile.done === null ? time : tile.done;
  const right = tile.right || tile.done === null;
  const held = tile.held === null ? "a copy on its way" : tile.held === k ? "it, but not to the end" : `tile ${tile.held}`;
  const words = `tile ${k} multiplied, cycles ${thousands(tile.taken)} to ${thousands(done)}${right ? "" : `: its slot holds ${held}`}`;
  const width = (done - tile.taken) * scale;
  const text = right ? String(k) : width > 22 ? `✗ ${k}` : "✗";
  const fits = width >= 5 + 6 * text.length;
  return (
    span(tile.taken, done, scale, y, height, right ? "blue" : "orange", {}, words) +
    (fits ? label(LEFT + tile.taken * scale + width / 2, y + height / 2, text,
      { ...SMALL, anchor: "middle", fill: "paper", "font-weight": "bold", "pointer-events": "none" }) : "")
  );
}

/**
 * A box from one time to another.
 * @param {number} from
 * @param {number} until
 * @param {number} scale
 * @param {number} y
 * @param {number} height
 * @param {import("../ui/svg.js").Colour} fill
 * @param {import("../ui/svg.js").Attributes} more
 * @param {string} title
 */
function span(from, until, scale, y, height, fill, more, title) {
  const width = Math.max((until - from) * scale - 0.6, 0.6);
  return box(round(LEFT + from * scale), y, round(width), height, fill, more, title);
}

/** @param {number} x */
const round = (x) => Math.round(x * 100) / 100;

/**
 * @param {Timeline} timeline
 * @param {number} scale
 */
function consumer({ tiles, time }, scale) {
  return label(0, CONSUMER + 12, "consumer", SMALL) + tiles.map((tile, k) => use(k, tile, time, scale, CONSUMER, 24)).join("");
}

/**
 * Where someone waits: a dashed line.
 * @param {Timeline} timeline
 * @param {number} scale
 * @param {number} stages
 */
function stalls({ waits, time, ends }, scale, stages) {
  const lines = waits.map((wait) => {
    const y = wait.who === "producer" ? 54 : CONSUMER + 12;
    const stroke = wait.until === null ? "orange" : "ink";
    const until = wait.until === null ? time + 8 / scale : wait.until;
    const words = `${wait.who} waits for ${asked(wait, stages)}, ${thousands(until - wait.since)} cycles`;
    const title = wait.until === null ? `${wait.who} waits for ${asked(wait, stages)}, for ever` : words;
    const [from, to] = [LEFT + wait.since * scale + 1, LEFT + until * scale - 1].map(round);
    return (
      line(from, y, to, y, stroke, { "stroke-dasharray": "3 2", "stroke-width": 1.5 }) +
      `<rect x="${from}" y="${y - 8}" width="${Math.max(to - from, 0)}" height="16" fill="none" pointer-events="all"><title>${title}</title></rect>`
    );
  });
  const x = LEFT + time * scale;
  if (ends !== "done") lines.push(line(x, 46, x, AXIS, "orange", { "stroke-width": 2 }));
  return lines.join("");
}

/**
 * What has not happened yet is paler.
 * @param {number} x
 */
function veil(x) {
  const width = round(WIDTH + 10 - x);
  return box(round(LEFT + x), 44, width, AXIS - 46, "paper", { "fill-opacity": 0.8, "pointer-events": "none" });
}

/**
 * Cycles, and the moment that is shown: drag it.
 * @param {Timeline} timeline
 * @param {number} scale
 * @param {number} now
 */
function axis({ time }, scale, now) {
  const step = [1, 2, 5].flatMap((n) => [1, 10, 100, 1000, 10000].map((ten) => n * ten)).sort((a, b) => a - b)
    .find((each) => each * 4 >= time) || time;
  const parts = [line(LEFT, AXIS, LEFT + WIDTH, AXIS, "grey")];
  for (let at = 0; at <= time; at += step) {
    const x = round(LEFT + at * scale);
    parts.push(line(x, AXIS, x, AXIS + 4, "grey"), label(x, AXIS + 12, thousands(at), { ...SMALL, anchor: "middle", fill: "grey" }));
  }
  parts.push(label(360, AXIS + 12, "cycles", { ...SMALL, anchor: "end", fill: "grey" }));
  const x = round(LEFT + now * scale);
  parts.push(line(x, 44, x, AXIS, "pink", { "stroke-width": 1.5 }));
  parts.push(`<path class="d2l-pink" fill="${COLOURS.pink}" d="M${x} ${AXIS}l-5 -8h10z"/>`);
  for (let k = 0; k <= 100; k += 1) {
    const left = LEFT + ((k - 0.5) * WIDTH) / 100;
    parts.push(box(round(left), AXIS - 9, WIDTH / 100, 28, "paper", { ...sets({ time: k }), "fill-opacity": 0 }));
  }
  return parts.join("");
}

function legend() {
  const y = 268;
  return [
    box(0, y - 6, 18, 12, "sky", { "fill-opacity": 0.4, stroke: COLOURS.sky, "stroke-dasharray": "2 2" }),
    label(22, y, "on its way", SMALL),
    box(86, y - 6, 18, 12, "paper", { stroke: COLOURS.blue }),
    label(108, y, "has come", SMALL),
    box(170, y - 6, 18, 12, "blue"),
    label(192, y, "multiplied", SMALL),
    box(252, y - 6, 18, 12, "orange"),
    label(261, y, "✗", { ...SMALL, anchor: "middle", fill: "paper" }),
    label(274, y, "wrong content", SMALL),
    line(0, y + 18, 18, y + 18, "ink", { "stroke-dasharray": "3 2", "stroke-width": 1.5 }),
    label(22, y + 18, "waits", SMALL),
    `<path class="d2l-ink" fill="${COLOURS.ink}" d="M95 ${y + 22}l-4 -8h8z"/>`,
    label(108, y + 18, "a tile is asked for", SMALL),
  ].join("");
}
