/** Where swizzled rows stand in shared memory, as in `d2ltvm.layouts` and `analysis.patterns`. */
import { WARP } from "./banks.js";

export const UNIT = 16; // bytes, which a swizzle moves together
export const ROWS = 8;

/**
 * Where TMA's swizzle of a span of 32, 64 or 128 bytes puts a byte. `d2ltvm.layouts.swizzle`.
 * @param {number} byte
 * @param {number} span
 */
export function swizzled(byte, span) {
  return byte ^ (((byte >> 7) & (span / UNIT - 1)) << 4);
}

/**
 * Bytes from the beginning of a row to that of the next.
 * @param {number} row bytes of a row
 * @param {string} order
 */
export function between(row, order) {
  return row + (order === "padding" ? UNIT : 0);
}

/**
 * The first byte of each 16 bytes of eight rows. `d2ltvm.analysis.patterns.row_places`.
 * @param {number} row bytes of a row
 * @param {string} order none, padding, 32, 64 or 128
 * @returns {number[][]}
 */
export function rowPlaces(row, order) {
  const span = Number(order);
  return Array.from({ length: ROWS }, (_, r) =>
    Array.from({ length: row / UNIT }, (_, u) => {
      const byte = r * between(row, order) + u * UNIT;
      return span ? swizzled(byte, span) : byte;
    }),
  );
}

/**
 * The eight places (row, unit) that are read together, the first lane's first.
 * @param {number} row
 * @param {number} which of a row's 16 bytes, or of the rows
 * @param {string} along column or row
 * @returns {[number, number][]}
 */
export function read(row, which, along) {
  const units = row / UNIT;
  return Array.from({ length: 8 }, (_, lane) =>
    along === "column" ? [lane, Math.min(which, units - 1)] : [(which + Math.floor(lane / units)) % ROWS, lane % units],
  );
}

/**
 * The first byte of each lane of a warp, of which eight ask. `d2ltvm.analysis.patterns.of_rows`.
 * @param {number} row
 * @param {string} order
 * @param {number} which
 * @param {string} along
 */
export function ofRows(row, order, which, along) {
  const places = rowPlaces(row, order);
  const first = read(row, which, along).map(([r, u]) => places[r][u]);
  return Array.from({ length: WARP }, (_, lane) => (lane < first.length ? first[lane] : -1));
}
