/** The bytes of shared memory that a warp reads from a tile, by how the tile is cut. */
import { WARP, WORD } from "./banks.js";
import { swizzled } from "./swizzle.js";

/**
 * How a tile is cut among the lanes of a warp.
 *
 * What does not fit is made to: a thread owns at least the elements of one load, there are no more
 * lanes side by side than the tile has room for, and no more virtual threads than loads.
 * @param {Record<string, number | string>} state of the explorer `banks`
 */
export function cut(state) {
  const [columns, padding, width] = [state.columns, state.padding, state.width].map(Number);
  const each = Math.min(columns, Math.max(Number(state.each), width));
  const across = Math.min(Number(state.across), columns / each);
  const vthreads = Math.min(Number(state.vthreads), each / width);
  return { columns, padding, width, each, across, vthreads, piece: each / vthreads };
}

/**
 * The first byte of each lane's first load from a tile of float32.
 *
 * Lane l is in row l / across. Each thread owns `each` neighbouring columns; virtual threads cut
 * them into pieces, so that neighbours' first columns are each / vthreads apart.
 * `d2ltvm.analysis.patterns.from_tile`.
 * @param {Record<string, number | string>} state
 * @returns {number[]}
 */
export function addresses(state) {
  const { columns, padding, across, piece } = cut(state);
  return Array.from({ length: WARP }, (_, lane) => {
    const row = Number(state.same_row) ? 0 : Math.floor(lane / across);
    const byte = (row * (columns + padding) + (lane % across) * piece) * WORD;
    return Number(state.swizzle) ? swizzled(byte, 128) : byte;
  });
}
