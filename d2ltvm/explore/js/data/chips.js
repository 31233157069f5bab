/** The GPUs' data sheets: `d2ltvm.system.chips`, put in where the modules become one script. */

/**
 * @typedef {object} Chip
 * @property {string} name
 * @property {string} capability
 * @property {number} sms
 * @property {number} registers_kib
 * @property {number} max_threads
 * @property {number} max_blocks
 * @property {number} shared_kib
 * @property {number} shared_block_kib
 * @property {number} bandwidth_tb_s
 * @property {number} fp32_tflops
 */

/** @type {Record<string, Chip>} by name */
export const CHIPS = JSON.parse("{{chips}}");

/** @type {number} bytes of shared memory that the system keeps in each block */
export const RESERVED_SHARED = JSON.parse("{{reserved_shared}}");
