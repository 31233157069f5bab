/** The accesses of a kernel in hand, of which one is looked at. */

/** @typedef {{first: number[], width: number, kind: string}} Request the first byte of each lane, or -1 */

/**
 * The menu of a kernel's accesses.
 * @param {any} given what Python hands over: its `requests` with their names
 * @returns {import("./fields.js").Field}
 */
export function requestField(given) {
  return {
    key: "request",
    label: "Access of the kernel",
    kind: "choice",
    values: given.requests.map((/** @type {any} */ _, /** @type {number} */ k) => k),
    names: given.requests.map((/** @type {any} */ each) => each.name),
  };
}

/**
 * The access that the menu stands at.
 * @param {import("./fields.js").State} state
 * @param {any} given
 * @returns {Request}
 */
export function requestOf(state, given) {
  return given.requests[Number(state.request) || 0];
}
