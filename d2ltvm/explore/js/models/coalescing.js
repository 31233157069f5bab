/** Global memory's sectors and lines, as `d2ltvm.analysis.coalescing` counts them. */
import { WARP } from "./banks.js";

export const SECTOR = 32;
export const LINE = 128;
export const LARGEST_ACCESS = 16; // bytes that a lane can ask for at once

/** @type {Record<string, number>} */
export const SIZES = { int8: 1, float16: 2, float32: 4, float64: 8 };

/**
 * The first byte of each lane, as `d2ltvm.analysis.patterns.strided` has it.
 * @param {Record<string, number | string>} state of the explorer `coalescing`
 * @returns {number[]}
 */
export function strided(state) {
  const [stride, offset, width] = [state.stride, state.offset, state.width].map(Number);
  const size = SIZES[state.dtype];
  return Array.from({ length: WARP }, (_, lane) => (offset + lane * stride * width) * size);
}

/**
 * The blocks of `size` bytes that a request touches, each once, in the order of memory.
 * @param {number[]} first the first byte that each lane asks for; -1 where it does not ask
 * @param {number} width bytes that a lane asks for
 * @param {number} size
 */
export function touched(first, width, size) {
  const ends = first.filter((byte) => byte >= 0).flatMap((byte) => [byte, byte + width - 1]);
  return [...new Set(ends.map((byte) => Math.floor(byte / size)))].sort((a, b) => a - b);
}

/**
 * Bytes that a request asks for; those that several lanes ask for count once.
 * @param {number[]} first
 * @param {number} width
 */
function bytesUsed(first, width) {
  const starts = first.filter((byte) => byte >= 0).sort((a, b) => a - b);
  return starts.reduce((sum, byte, k) => sum + (k ? Math.min(width, byte - starts[k - 1]) : width), 0);
}

/**
 * The same of a single sector: how many of its bytes somebody asks for.
 * @param {number[]} first
 * @param {number} width
 * @param {number} sector its number
 */
export function usedOf(first, width, sector) {
  const used = new Set();
  for (const byte of first) {
    const end = Math.min(byte + width, (sector + 1) * SECTOR);
    for (let k = Math.max(byte, sector * SECTOR); byte >= 0 && k < end; k += 1) used.add(k);
  }
  return used.size;
}

/**
 * What a request costs: sectors, lines, and the bytes that it asks for.
 * @param {number[]} first
 * @param {number} width
 */
export function requested(first, width) {
  return {
    sectors: touched(first, width, SECTOR).length,
    lines: touched(first, width, LINE).length,
    used: bytesUsed(first, width),
  };
}
