/** How many blocks of a kernel an SM can hold, as `d2ltvm.occupancy` says. */
import { CHIPS, RESERVED_SHARED } from "../data/chips.js";

const WARP = 32;
const REGISTER_PIECE = 256; // registers that are handed out together
const WARP_PIECE = 4; // parts of an SM, to which warps are handed out alike

/**
 * @typedef {object} Occupancy
 * @property {number} blocks at a time; 0 where a single one does not fit
 * @property {number} warps of these
 * @property {number} share of the warps that the SM could hold
 * @property {string} limit what there is not enough of for one more block
 */

/**
 * @param {string} gpu its name
 * @param {number} threads of a block
 * @param {number} registers of a thread
 * @param {number} shared bytes of a block
 * @returns {Occupancy}
 */
export function occupancy(gpu, threads, registers, shared) {
  const chip = CHIPS[gpu];
  const warps = Math.ceil(threads / WARP);
  const aWarp = up(registers * WARP, REGISTER_PIECE);
  const fit = Math.floor((chip.registers_kib * 256) / aWarp / WARP_PIECE) * WARP_PIECE;
  const turing = chip.capability === "sm_75";
  const aBlock = up(shared + (turing ? 0 : RESERVED_SHARED), turing ? 256 : 128);
  /** @type {[string, number][]} */
  const limits = [
    ["threads", Math.floor(chip.max_threads / WARP / warps)],
    ["blocks", chip.max_blocks],
    ["registers", Math.floor(fit / warps)],
    ["shared memory", aBlock ? Math.floor((chip.shared_kib * 1024) / aBlock) : chip.max_blocks],
  ];
  const [limit, blocks] = limits.reduce((least, each) => (each[1] < least[1] ? each : least));
  return { blocks, warps: blocks * warps, share: (blocks * warps * WARP) / chip.max_threads, limit };
}

/**
 * The least multiple of a piece that is no smaller than a value.
 * @param {number} value
 * @param {number} piece
 */
function up(value, piece) {
  return Math.ceil(value / piece) * piece;
}
