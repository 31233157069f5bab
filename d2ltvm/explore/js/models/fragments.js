/** Which lane holds which element, as `d2ltvm.layouts` says. */

/**
 * Lane and register of element (i, j). Of wgmma's sums the lane is a thread of its warpgroup.
 * @param {string} what mma_a, mma_b, mma_c; wmma_a, wmma_b, wmma_c; ldmatrix, ldmatrix_trans; sums
 * @param {number} i
 * @param {number} j
 * @returns {[number, number]}
 */
export function holder(what, i, j) {
  if (what === "ldmatrix" || what === "ldmatrix_trans") {
    const [row, column] = what === "ldmatrix" ? [i % 8, j % 8] : [j % 8, i % 8];
    return [row * 4 + half(column), (half8(j) * 2 + half8(i)) * 2 + (column % 2)];
  }
  if (what === "sums") {
    const [lane, register] = holder("mma_c", i % 16, j % 8);
    return [Math.floor(i / 16) * 32 + lane, half8(j) * 4 + register];
  }
  const [shape, matrix] = what.split("_");
  if (matrix === "a") return [(i % 8) * 4 + half(j % 8), half8(j) * 4 + half8(i) * 2 + (j % 2)];
  const next = shape === "wmma" ? half8(j) * 4 : 0; // columns from 8 on are a second matrix
  if (matrix === "b") return [(j % 8) * 4 + half(i % 8), half8(i) * 2 + (i % 2) + next];
  return [(i % 8) * 4 + half(j % 8), half8(i) * 2 + (j % 2) + next];
}

/** @param {number} k */
const half = (k) => Math.floor(k / 2);

/** @param {number} k */
const half8 = (k) => Math.floor(k / 8);

/**
 * Row and column of the 8 elements whose address a lane gives to ldmatrix.
 * @param {number} lane
 * @returns {[number, number]}
 */
export function givenRow(lane) {
  return [lane % 16, Math.floor(lane / 16) * 8];
}

/**
 * Where a float16 of a tile in rows of 128 swizzled bytes stands, counted from its beginning.
 * @param {number} row
 * @param {number} column
 */
export function place(row, column) {
  return row * 64 + (half8(column) ^ (row % 8)) * 8 + (column % 8);
}
