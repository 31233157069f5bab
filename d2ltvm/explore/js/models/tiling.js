/** What tiles cost and what they save, as `d2ltvm.analysis.tiling` says. */

const FLOAT = 4; // bytes of a float32

/**
 * @typedef {object} Tiling
 * @property {number} blocks of the grid
 * @property {number} threads of a block
 * @property {number} sums registers of a thread for what it adds up
 * @property {number} operands likewise for what it multiplies
 * @property {number} shared bytes of shared memory of a block
 * @property {number} flop of the launch
 * @property {number} moved bytes that all blocks read and write
 * @property {number} least bytes of the tensors
 */

/** @param {number[]} values */
function product(values) {
  return values.reduce((so_far, value) => so_far * value, 1);
}

/**
 * @param {number[]} shape n, m and l
 * @param {number[]} rows pieces, warps, lanes and elements
 * @param {number[]} columns likewise
 * @param {number} depth terms of the sum in a tile
 * @param {number} stages tiles of each matrix in shared memory
 * @returns {Tiling}
 */
export function productTiling([n, m, l], rows, columns, depth, stages) {
  const [down, across] = [product(rows), product(columns)];
  const [high, wide] = [Math.ceil(n / down), Math.ceil(m / across)];
  const [mine, yours] = [rows[0] * rows[3], columns[0] * columns[3]];
  return {
    blocks: high * wide,
    threads: product([...rows.slice(1, 3), ...columns.slice(1, 3)]),
    sums: mine * yours,
    operands: mine + yours,
    shared: FLOAT * stages * depth * (down + across),
    flop: 2 * n * m * l,
    moved: FLOAT * (n * l * wide + m * l * high + n * m),
    least: FLOAT * (n * l + l * m + n * m),
  };
}

/**
 * @param {number[]} shape oc, ic, n, k, p and s
 * @param {number[][]} tiles of output channels, rows and columns: virtual threads, threads, elements
 * @param {number} depth input channels of a round
 * @returns {Tiling}
 */
export function convTiling([oc, ic, n, k, p, s], tiles, depth) {
  const o = Math.floor((n - k + 2 * p) / s) + 1;
  const [channels, high, wide] = tiles.map(product);
  const [deep, down, across] = [Math.ceil(oc / channels), Math.ceil(o / high), Math.ceil(o / wide)];
  const [c, h, w] = tiles.map(([, , elements]) => elements);
  const [vc, vh, vw] = tiles.map(([pieces]) => pieces);
  let pixels = 0; // rows that blocks below each other read, and then columns
  for (let row = 0; row < down; row += 1) {
    for (let tap = 0; tap < k; tap += 1) pixels += inside(row * high * s - p + tap, high, s, 1, n);
  }
  let columns = 0;
  for (let at = 0; at < across; at += 1) columns += inside(at * wide * s - p, wide, s, k, n);
  pixels *= columns;
  return {
    blocks: deep * down * across,
    threads: product(tiles.map(([, threads]) => threads)),
    sums: product([vc, c, vh, h, vw, w]),
    operands: vh * ((h - 1) * s + 1) * vw * ((w - 1) * s + k) + vc * c * k,
    shared: FLOAT * depth * (((high - 1) * s + 1) * ((wide - 1) * s + k) + channels * k),
    flop: 2 * oc * o * o * ic * k * k,
    moved: FLOAT * (deep * ic * pixels + oc * ic * k * k * down * across + oc * o * o),
    least: FLOAT * (ic * n * n + oc * ic * k * k + oc * o * o),
  };
}

/**
 * Of the pixels from `first` on that `outputs` neighbours need, those in an image of n.
 * @param {number} first
 * @param {number} outputs
 * @param {number} stride
 * @param {number} taps
 * @param {number} n
 */
function inside(first, outputs, stride, taps, n) {
  const end = first + (outputs - 1) * stride + taps;
  return Math.max(0, Math.min(end, n) - Math.max(first, 0));
}
