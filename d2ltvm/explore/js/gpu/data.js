/** Numbers by chance that are the same each time: a seed, and nothing else, decides. */

/**
 * Float32 numbers from -1 to 1, multiples of 2^-23, none of them 0.
 * @param {number} count
 * @param {number} seed
 */
export function numbers(count, seed) {
  const made = new Float32Array(count);
  const next = integers(seed);
  for (let k = 0; k < count; k += 1) made[k] = ((next() >> 8) | 1) / 2 ** 23;
  return made;
}

/**
 * Integers of 32 bits by xorshift (Marsaglia, 2003).
 * @param {number} seed
 * @returns {() => number}
 */
function integers(seed) {
  let x = (Math.imul(seed + 1, 0x9e3779b9) ^ 0x85ebca6b) || 1;
  return () => {
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    return x;
  };
}

/**
 * `count` different places out of `size`, the first and the last among them; all where there are few.
 * @param {number} count
 * @param {number} size
 * @param {number} seed
 */
export function places(count, size, seed) {
  if (size <= count) return Array.from({ length: size }, (_, k) => k);
  const found = new Set([0, size - 1]);
  const next = integers(seed);
  while (found.size < count) found.add((next() >>> 0) % size);
  return [...found];
}
