/** NumPy's rule for shapes that broadcast, as `d2ltvm.compute.ops.broadcast_shape` has it. */

/**
 * The shape of the result, or the first of its axes at which two shapes do not fit.
 * @param {number[]} one
 * @param {number[]} two
 * @returns {{shape: number[], misfit: {axis: number, sizes: number[]} | null}}
 */
export function broadcast(one, two) {
  const rank = Math.max(one.length, two.length);
  const [a, b] = [one, two].map((shape) => [...Array(rank - shape.length).fill(1), ...shape]);
  const axis = a.findIndex((size, k) => size !== b[k] && size !== 1 && b[k] !== 1);
  if (axis >= 0) return { shape: [], misfit: { axis, sizes: [a[axis], b[axis]] } };
  return { shape: a.map((size, k) => Math.max(size, b[k])), misfit: null };
}

/**
 * The index of the element that a tensor of `shape` gives to element `index` of the result.
 * @param {number[]} shape
 * @param {number[]} index
 */
export function source(shape, index) {
  const own = index.slice(index.length - shape.length);
  return own.map((i, k) => (shape[k] === 1 ? 0 : i));
}

/**
 * The place of an element in memory, counted in elements: row-major.
 * @param {number[]} shape
 * @param {number[]} index
 */
export function place(shape, index) {
  return index.reduce((sum, i, k) => sum * shape[k] + i, 0);
}

/**
 * The index of the element at a place in memory.
 * @param {number[]} shape
 * @param {number} at
 */
export function indexAt(shape, at) {
  /** @type {number[]} */
  const index = [];
  let rest = at;
  for (let k = shape.length - 1; k >= 0; k -= 1) {
    index[k] = rest % shape[k];
    rest = Math.floor(rest / shape[k]);
  }
  return index;
}

/** @param {number[]} shape */
export function elements(shape) {
  return shape.reduce((product, size) => product * size, 1);
}

/**
 * Bytes of a sum of tensors that fit: read, if each element of the result loads both of its numbers or
 * if each number is read once, and written.
 * @param {number[]} one
 * @param {number[]} two
 * @param {number} each bytes of an element
 */
export function broadcastBytes(one, two, each) {
  const results = elements(broadcast(one, two).shape);
  return {
    loaded: 2 * results * each,
    once: (elements(one) + elements(two)) * each,
    written: results * each,
  };
}
