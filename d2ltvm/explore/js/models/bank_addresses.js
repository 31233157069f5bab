/** The bytes of shared memory that a warp reads from a tile, by how the tile is cut. */
import { WARP, WORD } from "./banks.js";

/**
 * The first byte of each lane's first load from a tile of float32.
 *
 * Lane l stands in row l / across. Each thread owns `each` neighbouring columns; virtual threads cut
 * them into pieces, so that neighbours' first columns are each / vthreads apart, but no nearer than
 * the elements of one load.
 * @param {Record<string, number | string>} state of the explorer `banks`
 * @returns {number[]}
 */
export function addresses(state) {
  const [columns, padding, across, each, vthreads, width] = [
    state.columns, state.padding, state.across, state.each, state.vthreads, state.width,
  ].map(Number);
  const apart = Math.max(width, each / vthreads);
  return Array.from({ length: WARP }, (_, lane) => {
    const place = Math.floor(lane / across) * (columns + padding) + (lane % across) * apart;
    return state.swizzle ? swizzled(place * WORD) : place * WORD;
  });
}

/**
 * Where TMA's 128-byte swizzle puts a byte: 16 bytes change places by their row of 128 bytes.
 * Held equal to `d2ltvm.layouts.swizzle_128b`.
 * @param {number} byte
 */
export function swizzled(byte) {
  return byte ^ (((byte >> 7) & 7) << 4);
}
