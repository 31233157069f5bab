/** Speeds in words. */
import { rounded } from "../ui/markup.js";

/**
 * A speed with its unit: from a thousand on, in the next larger one.
 * @param {number} value
 * @param {string} unit GB/s or GFLOPS
 */
export function speed(value, unit) {
  return value >= 1000 ? `${rounded(value / 1000)} T${unit.slice(1)}` : `${rounded(value)} ${unit}`;
}

/** @param {number} share */
export function percent(share) {
  return `${rounded(100 * share, share < 0.1 ? 1 : 2)}%`;
}
