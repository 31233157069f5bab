/** What TMA copies for a box of a matrix of pixels: as `d2ltvm.layouts.box` and `put` have it. */

/**
 * For each place of a box, row by row, the number of the pixel that TMA brings; -1 where it fills in zeros.
 * @param {number[]} image rows and columns
 * @param {number[]} corner the first row and column; may be outside
 * @param {number[]} shape rows and columns of the box
 */
export function fetched(image, corner, shape) {
  return Array.from({ length: shape[0] * shape[1] }, (_, k) => {
    const row = corner[0] + Math.floor(k / shape[1]);
    const column = corner[1] + (k % shape[1]);
    const inside = row >= 0 && row < image[0] && column >= 0 && column < image[1];
    return inside ? row * image[1] + column : -1;
  });
}

/**
 * For each pixel of an image, the place in the box that TMA stores there; -1 where it writes nothing.
 * @param {number[]} image
 * @param {number[]} corner
 * @param {number[]} shape
 */
export function stored(image, corner, shape) {
  const pixels = Array(image[0] * image[1]).fill(-1);
  fetched(image, corner, shape).forEach((pixel, k) => {
    if (pixel >= 0) pixels[pixel] = k;
  });
  return pixels;
}

/**
 * Bytes of a box: of pixels inside of the image, of zeros, and what the barrier waits for.
 * @param {number[]} image
 * @param {number[]} corner
 * @param {number[]} shape
 * @param {number} each bytes of a pixel
 */
export function boxBytes(image, corner, shape, each) {
  const inside = fetched(image, corner, shape).filter((pixel) => pixel >= 0).length;
  const all = shape[0] * shape[1];
  return { image: inside * each, zeros: (all - inside) * each, barrier: all * each };
}
