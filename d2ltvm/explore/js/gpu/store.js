/** What was measured, by GPU, kept by the browser from page to page where it keeps anything. */

/**
 * @typedef {import("./measure.js").Result} Result
 * @typedef {{copy: number, rate: number, launch: number, alone: number, clock: string, date: string}} Ceilings
 *   GB/s, GFLOPS, and microseconds of a launch among others and by itself
 * @typedef {{ceilings: Ceilings | null, runs: Result[]}} Kept
 */

const KEY = "d2ltvm-gpu";

/** Where the browser refuses to store, as it may from the disk, a page remembers by itself. */
let fallback = "{}";

/** @returns {Record<string, Kept>} */
function all() {
  let text = fallback;
  try {
    text = localStorage.getItem(KEY) || "{}";
  } catch (error) {
    // no storage
  }
  try {
    const found = JSON.parse(text);
    return found && typeof found === "object" ? found : {};
  } catch (error) {
    return {}; // somebody else's
  }
}

/** @param {Record<string, Kept>} value */
function write(value) {
  fallback = JSON.stringify(value);
  try {
    localStorage.setItem(KEY, fallback);
  } catch (error) {
    // no storage, or none left
  }
}

/**
 * @param {string} gpu its name
 * @returns {Kept}
 */
export function kept(gpu) {
  const found = all()[gpu];
  return found && Array.isArray(found.runs) ? found : { ceilings: null, runs: [] };
}

/** The GPU of which most was measured here, where there is one. */
export function lastGpu() {
  const found = Object.entries(all()).sort(([, a], [, b]) => b.runs.length - a.runs.length)[0];
  return found ? found[0] : "";
}

/**
 * @param {string} gpu
 * @param {Ceilings} ceilings
 */
export function keepCeilings(gpu, ceilings) {
  write({ ...all(), [gpu]: { ...kept(gpu), ceilings } });
}

/**
 * Keep results; an older one of the same kernel, variant and size goes.
 * @param {string} gpu
 * @param {Result[]} results
 */
export function keepRuns(gpu, results) {
  const name = (/** @type {Result} */ r) => `${r.kernel}/${r.variant}/${r.size}`;
  const fresh = new Set(results.map(name));
  const { ceilings, runs } = kept(gpu);
  write({ ...all(), [gpu]: { ceilings, runs: [...runs.filter((r) => !fresh.has(name(r))), ...results] } });
}

/** Forget everything. */
export function forget() {
  write({});
}
