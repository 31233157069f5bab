/** Shared memory's banks, as `d2ltvm.analysis.coalescing.wavefronts` counts them. */

export const BANKS = 32;
export const WARP = 32;
export const WORD = 4;

/**
 * How many passes over the banks a warp's request takes, and which words each bank gives.
 *
 * Lanes are served in groups of 128 bytes. A group takes as many passes as its busiest bank has
 * different words to give. Loads whose lanes agree in pairs are served in groups twice as large.
 * @param {number[]} first the first byte that each of 32 lanes asks for; -1 where it does not ask
 * @param {number} width bytes that a lane asks for
 * @param {string} kind "read" or "write"
 * @returns {{passes: number, groups: {lanes: number[], banks: number[][], passes: number}[]}}
 */
export function wavefronts(first, width, kind) {
  const paired = kind === "read" && width > WORD && [1, 2].some((far) => agree(first, far));
  const size = Math.min(WARP, (WORD * BANKS) / Math.max(width, WORD)) * (paired ? 2 : 1);
  const groups = [];
  for (let lane = 0; lane < WARP; lane += size) {
    const lanes = Array.from({ length: size }, (_, k) => lane + k).filter((k) => first[k] >= 0);
    const banks = words(lanes.map((k) => first[k]), width);
    groups.push({ lanes, banks, passes: Math.max(...banks.map((each) => each.length)) });
  }
  return { passes: groups.reduce((sum, group) => sum + group.passes, 0), groups };
}

/**
 * The different words that each bank gives to lanes with these first bytes.
 * @param {number[]} first
 * @param {number} width
 */
function words(first, width) {
  const banks = Array.from({ length: BANKS }, () => /** @type {number[]} */ ([]));
  for (const byte of first) {
    for (let k = 0; k < Math.max(1, Math.floor(width / WORD)); k += 1) {
      const word = Math.floor(byte / WORD) + k;
      const bank = banks[word % BANKS];
      if (!bank.includes(word)) bank.push(word);
    }
  }
  return banks;
}

/**
 * Whether every lane asks for the same as the lane `far` away, where both ask.
 * @param {number[]} first
 * @param {number} far
 */
function agree(first, far) {
  return first.every((byte, k) => byte < 0 || first[k ^ far] < 0 || byte === first[k ^ far]);
}
