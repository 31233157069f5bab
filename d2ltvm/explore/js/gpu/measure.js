/** Check a kernel on the reader's GPU, and time it where it is right. */
import { checked } from "./check.js";
import { gpu, watched } from "./device.js";
import { buffersFor, ready } from "./kernel.js";
import { timed } from "./timing.js";

/**
 * @typedef {object} Variant
 * @property {string} label
 * @property {import("./kernel.js").Launch} launch
 * @property {number} reference which of the size's references
 * @property {number} flop
 * @property {number} bytes
 * @typedef {{label: string, variants: Variant[], references: import("./check.js").Reference[]}} Size
 * @typedef {{name: string, title: string, unit: string, sizes: Size[]}} Kernel
 * @typedef {object} Result of one variant at one size
 * @property {string} kernel
 * @property {string} title
 * @property {string} variant
 * @property {string} size
 * @property {string} unit
 * @property {number} speed in that unit; 0 where it is wrong
 * @property {number[]} spread lowest and highest
 * @property {number} gflops
 * @property {number} intensity operations for each byte
 * @property {import("./check.js").Verdict} verdict
 * @property {import("./timing.js").Timing | null} timing
 */

/**
 * @param {Kernel} kernel
 * @param {number} size
 * @param {number} variant
 * @returns {Promise<Result>}
 */
export async function measured(kernel, size, variant) {
  const at = kernel.sizes[size];
  const { label, launch, reference, flop, bytes } = at.variants[variant];
  const found = await gpu();
  const buffers = {};
  return watched(found, `${kernel.title} at ${at.label}`, async () => {
    try {
      Object.assign(buffers, buffersFor(found.device, launch));
      const encode = await ready(found.device, launch, buffers);
      const verdict = await checked(found.device, encode, buffers, at.references[reference]);
      const timing = verdict.right ? await timed(found, encode) : null;
      const names = { kernel: kernel.name, title: kernel.title, variant: label, size: at.label, unit: kernel.unit };
      const work = (kernel.unit === "GB/s" ? bytes : flop) / 1e9;
      const speeds = timing ? [timing.seconds, timing.high, timing.low].map((seconds) => work / seconds) : [0, 0, 0];
      const [speed, ...spread] = speeds;
      const gflops = timing ? flop / 1e9 / timing.seconds : 0;
      return { ...names, speed, spread, gflops, intensity: flop / bytes, verdict, timing };
    } finally {
      Object.values(buffers).forEach((buffer) => buffer.destroy());
    }
  });
}
