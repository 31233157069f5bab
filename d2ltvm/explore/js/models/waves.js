/** How tiles are dealt out to multiprocessors, as `d2ltvm.analysis.waves.deal` says. */

/**
 * @typedef {[number, number, number]} Part a tile, its first round, and the one behind its last
 * @typedef {{tile: number, first: number, last: number, start: number, stop: number}} Piece
 * @typedef {object} Waves
 * @property {Piece[][]} places what each place computes, one after the other
 * @property {number} waves how many times all places are filled
 * @property {number} time rounds until the last piece is done
 * @property {number} busy share of all places' time in which something is computed
 * @property {number} sums pieces of tiles that have to be added to another
 */

/**
 * @param {number} tiles
 * @param {number} sms
 * @param {number} anSm blocks that one holds
 * @param {number} rounds of a tile
 * @param {number} split pieces of a tile
 * @param {number} ends rounds that the beginning and the end of a piece take
 * @param {string} way "in turns", "on demand" or "stream-K"
 * @param {number} faster per cent by which every fifth multiprocessor is faster
 * @returns {Waves}
 */
export function deal(tiles, sms, anSm, rounds, split, ends, way, faster) {
  const count = sms * anSm;
  const each = Array.from({ length: count }, (_, p) => 100 + (Math.floor(p / anSm) % 5 ? faster : 0));
  const taken =
    way === "stream-K" ? stream(tiles, count, rounds) : dealt(parts(tiles, rounds, split), each, ends, way);
  const places = taken.map((own, place) => timed(own, each[place], ends, 100 + faster));
  const pieces = places.flat();
  const time = Math.max(...pieces.map(({ stop }) => stop));
  const worked = pieces.reduce((sum, { start, stop }) => sum + stop - start, 0);
  return {
    places,
    waves: pieces.length / count,
    time,
    busy: worked / (time * count),
    sums: pieces.length - new Set(pieces.map(({ tile }) => tile)).size,
  };
}

/**
 * @param {number} tiles
 * @param {number} rounds
 * @param {number} split
 */
function parts(tiles, rounds, split) {
  /** @type {Part[]} */
  const queue = [];
  for (let tile = 0; tile < tiles; tile += 1) {
    for (let k = 0; k < split; k += 1) {
      queue.push([tile, Math.floor((rounds * k) / split), Math.floor((rounds * (k + 1)) / split)]);
    }
  }
  return queue;
}

/**
 * Pieces in turns, or each to the place that is free first, the lowest of equals.
 * @param {Part[]} queue
 * @param {number[]} each time that a round takes at each place
 * @param {number} ends
 * @param {string} way
 */
function dealt(queue, each, ends, way) {
  const taken = each.map(() => /** @type {Part[]} */ ([]));
  // Who is free next: a heap of times and places.
  const free = each.map((_, place) => ({ time: 0, place }));
  queue.forEach((part, number) => {
    if (way === "in turns") {
      taken[number % each.length].push(part);
      return;
    }
    taken[free[0].place].push(part);
    free[0].time += (part[2] - part[1] + ends) * each[free[0].place];
    sink(free);
  });
  return taken;
}

/**
 * Put the first of a heap where it belongs.
 * @param {{time: number, place: number}[]} heap
 */
function sink(heap) {
  let at = 0;
  for (;;) {
    let least = at;
    for (const child of [2 * at + 1, 2 * at + 2]) {
      if (child < heap.length && before(heap[child], heap[least])) least = child;
    }
    if (least === at) return;
    [heap[at], heap[least]] = [heap[least], heap[at]];
    at = least;
  }
}

/**
 * @param {{time: number, place: number}} a
 * @param {{time: number, place: number}} b
 */
function before(a, b) {
  return a.time < b.time || (a.time === b.time && a.place < b.place);
}

/**
 * All rounds in a row, cut into equal parts.
 * @param {number} tiles
 * @param {number} places
 * @param {number} rounds
 */
function stream(tiles, places, rounds) {
  const total = tiles * rounds;
  return Array.from({ length: places }, (_, place) => {
    /** @type {Part[]} */
    const own = [];
    const end = Math.floor((total * (place + 1)) / places);
    for (let at = Math.floor((total * place) / places); at < end; ) {
      const first = at % rounds;
      const last = Math.min(rounds, first + end - at);
      own.push([Math.floor(at / rounds), first, last]);
      at += last - first;
    }
    return own;
  });
}

/**
 * When each piece is computed.
 * @param {Part[]} own
 * @param {number} each
 * @param {number} ends
 * @param {number} whole
 * @returns {Piece[]}
 */
function timed(own, each, ends, whole) {
  let now = 0;
  return own.map(([tile, first, last]) => {
    const start = now;
    now += (last - first + ends) * each;
    return { tile, first, last, start: start / whole, stop: now / whole };
  });
}
