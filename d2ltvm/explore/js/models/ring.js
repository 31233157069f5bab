/** A ring of slots in time, as `d2ltvm.analysis.ring_timeline` follows it. */

/**
 * @typedef {"producer" | "consumer"} Who
 * @typedef {object} Tile its clocks are null where an event does not come
 * @property {number | null} asked
 * @property {number | null} arrived
 * @property {number | null} taken
 * @property {number | null} done
 * @property {number | null} held the tile in its slot when it was taken; null, a copy on its way
 * @property {boolean} right whether the slot held this tile while it was multiplied
 * @property {boolean} overwrites asked for while the slot's tile before was still needed
 * @typedef {{who: Who, tile: number, parity: number, since: number, until: number | null}} Wait
 * @typedef {object} Timeline
 * @property {Tile[]} tiles
 * @property {number[][]} full when the phase of each slot's barrier changes
 * @property {number[][]} empty
 * @property {Wait[]} waits
 * @property {"done" | "deadlock" | "overrun" | "early"} ends
 * @property {number} time
 */

/** An mbarrier that expects one thread, as the emulator's. */
class Barrier {
  constructor() {
    this.missing = 1;
    this.copies = 0;
    this.phase = 0;
    /** @type {number[]} */
    this.turns = [];
  }

  /**
   * @param {number} now
   * @returns {boolean} false where more arrive in a phase than are expected
   */
  arrive(now) {
    this.missing -= 1;
    this.turn(now);
    return this.missing >= 0;
  }

  /** @param {number} now */
  come(now) {
    this.copies -= 1;
    this.turn(now);
  }

  /** @param {number} now */
  turn(now) {
    if (this.missing || this.copies) return;
    this.missing = 1;
    this.phase = 1 - this.phase;
    this.turns.push(now);
  }
}

/**
 * What happens in a ring, from the times that its parts take.
 * @param {number} stages slots
 * @param {number} rounds tiles
 * @param {number} transfer cycles between two tiles that memory brings one behind the other
 * @param {number} latency cycles from the end of a tile's transfer to its arrival
 * @param {number} multiply cycles for which the consumer uses a slot
 * @param {number} ask cycles from one question of the producer to its next
 * @param {string} broken what is wrong: nothing, full, empty, back, consumer, producer, first
 * @returns {Timeline}
 */
export function ringTimeline(stages, rounds, transfer, latency, multiply, ask, broken) {
  const full = Array.from({ length: stages }, () => new Barrier());
  const empty = Array.from({ length: stages }, () => new Barrier());
  /** @type {Tile[]} */
  const tiles = Array.from({ length: rounds }, () => ({
    asked: null, arrived: null, taken: null, done: null, held: null, right: false, overwrites: false,
  }));
  /** @type {(number | null)[]} */
  const holds = Array(stages).fill(null);
  /** @type {{arrival: number, tile: number}[]} */
  const copies = [];
  /** @type {Wait[]} */
  const waits = [];
  const next = { producer: 0, consumer: 0 };
  const since = { producer: 0, consumer: 0 };
  /** @type {number | null} */
  let busy = null;
  let now = 0;
  let free = 0; // when memory is

  /** @param {Who} who */
  function waiting(who) {
    return next[who] < rounds && since[who] <= now && !(who === "consumer" && busy !== null);
  }

  /** @param {Who} who */
  function parity(who) {
    const lap = broken === who ? 0 : Math.floor(next[who] / stages);
    return (lap + (who === "producer" && broken !== "first" ? 1 : 0)) % 2;
  }

  /** @param {Who} who */
  function able(who) {
    const barrier = (who === "producer" ? empty : full)[next[who] % stages];
    const leftOut = broken === (who === "producer" ? "empty" : "full");
    return waiting(who) && (leftOut || barrier.phase !== parity(who));
  }

  /**
   * Past a wait.
   * @param {Who} who
   * @returns {boolean} false where a barrier is overrun
   */
  function goOn(who) {
    const tile = next[who];
    if (now > since[who]) waits.push({ who, tile, parity: parity(who), since: since[who], until: now });
    next[who] += 1;
    const slot = tile % stages;
    const found = tiles[tile];
    if (who === "consumer") {
      found.taken = now;
      found.held = holds[slot];
      busy = tile;
      since.consumer = now + multiply;
      return true;
    }
    found.asked = now;
    since.producer = now + ask;
    found.overwrites = tile >= stages && tiles[tile - stages].done === null;
    holds[slot] = null;
    full[slot].copies += 1;
    if (!full[slot].arrive(now)) return false;
    free = Math.max(free, now) + transfer;
    copies.push({ arrival: free + latency, tile });
    return true;
  }

  /** When something is going to happen by itself. */
  function later() {
    const times = copies.map((copy) => copy.arrival);
    if (busy !== null) times.push(since.consumer);
    if (next.producer < rounds && since.producer > now) times.push(since.producer);
    return times;
  }

  /** What is due now. */
  function happen() {
    while (copies.length && copies[0].arrival === now) {
      const { tile } = copies[0];
      copies.shift();
      holds[tile % stages] = tile;
      tiles[tile].arrived = now;
      full[tile % stages].come(now);
    }
    if (busy === null || since.consumer !== now) return;
    const found = tiles[busy];
    found.done = now;
    found.right = found.held === busy && holds[busy % stages] === busy;
    if (broken !== "back") empty[busy % stages].arrive(now);
    busy = null;
  }

  /** @returns {Timeline["ends"]} */
  function run() {
    while (busy !== null || next.producer < rounds || next.consumer < rounds) {
      const going = WHO.filter(able);
      for (const who of going) if (!goOn(who)) return "overrun";
      const times = later();
      if (!times.length) return "deadlock";
      now = Math.min(...times);
      happen();
    }
    return copies.length ? "early" : "done";
  }

  const ends = run();
  for (const who of WHO) {
    if (ends !== "deadlock" || !waiting(who)) continue;
    waits.push({ who, tile: next[who], parity: parity(who), since: since[who], until: null });
  }
  const turns = [full, empty].map((barriers) => barriers.map((barrier) => barrier.turns));
  return { tiles, full: turns[0], empty: turns[1], waits, ends, time: now };
}

/** @type {Who[]} */
const WHO = ["producer", "consumer"];

/**
 * How long someone waits, up to the end.
 * @param {Timeline} timeline
 * @param {Who} who
 */
export function waited(timeline, who) {
  return timeline.waits
    .filter((wait) => wait.who === who)
    .reduce((sum, wait) => sum + (wait.until === null ? timeline.time : wait.until) - wait.since, 0);
}
