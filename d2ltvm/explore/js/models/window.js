/** A convolution's window along one axis and over both, as `d2ltvm.compute.windows` has it. */

/**
 * The pixels that a kernel covers, the gaps of a dilation among them.
 * @param {number} k taps along the axis
 * @param {number} d
 */
export function covered(k, d) {
  return (k - 1) * d + 1;
}

/**
 * Height or width of the output; 0 where the kernel is larger than the padded image.
 * @param {number} n
 * @param {number} k
 * @param {number} p
 * @param {number} s
 * @param {number} d
 */
export function outSize(n, k, p, s, d) {
  return Math.max(0, Math.floor((n + 2 * p - covered(k, d)) / s) + 1);
}

/**
 * The pixels under the taps along one axis, for each pixel of the output; outside of 0 to n - 1 is padding.
 * @param {number} n
 * @param {number} k
 * @param {number} p
 * @param {number} s
 * @param {number} d
 * @returns {number[][]}
 */
export function pixelsUnder(n, k, p, s, d) {
  return Array.from({ length: outSize(n, k, p, s, d) }, (_, at) =>
    Array.from({ length: k }, (_, tap) => at * s - p + tap * d),
  );
}

/**
 * How many products are with padding: for each pixel of the output, for each tap, and in all.
 * @param {number} n
 * @param {number} k
 * @param {number} p
 * @param {number} s
 * @param {number} d
 * @returns {{outputs: number[][], taps: number[][], zeros: number, all: number}}
 */
export function paddingProducts(n, k, p, s, d) {
  const inside = pixelsUnder(n, k, p, s, d).map((pixels) => pixels.map((i) => Number(i >= 0 && i < n)));
  const o = inside.length;
  const rows = inside.map((taps) => taps.reduce((sum, each) => sum + each, 0));
  const columns = Array.from({ length: k }, (_, tap) => inside.reduce((sum, taps) => sum + taps[tap], 0));
  const outputs = rows.map((a) => rows.map((b) => k * k - a * b));
  const taps = columns.map((a) => columns.map((b) => o * o - a * b));
  const zeros = outputs.reduce((sum, row) => sum + row.reduce((part, each) => part + each, 0), 0);
  return { outputs, taps, zeros, all: o * o * k * k };
}
