/** The ceilings of the reader's own GPU: how fast it copies, multiplies and adds, and launches. */
import { gpu, watched } from "./device.js";
import { buffersFor, once, ready } from "./kernel.js";
import { loaded } from "./load.js";
import { measured } from "./measure.js";
import { keepCeilings, kept } from "./store.js";
import { summary, timed } from "./timing.js";
import { Unable } from "./problems.js";

const LAUNCHES = 50; // one by one
const TOGETHER = 500; // in a pass, at least

/**
 * The ceilings of this GPU: measured before, or now.
 * @param {(what: string) => void} [say] told what is going on
 * @param {boolean} [anew]
 * @returns {Promise<import("./store.js").Ceilings>}
 */
export async function ceilings(say = () => {}, anew = false) {
  const found = await gpu();
  const before = kept(found.name).ceilings;
  if (before && !anew) return before;
  const size = found.processor ? 0 : 2;
  say("How fast does it copy?");
  const copies = await best("copy_width", size);
  say("How fast does it multiply and add?");
  const rates = await best("multiply_add", size);
  say("How long does a launch take?");
  const launches = await launchTimes();
  const date = new Date().toISOString().slice(0, 10);
  const clock = copies.timing ? copies.timing.clock : "";
  const made = { copy: copies.speed, rate: rates.speed, ...launches, clock, date };
  keepCeilings(found.name, made);
  return made;
}

/**
 * The fastest variant of a kernel.
 * @param {string} name
 * @param {number} size
 */
async function best(name, size) {
  const kernel = await loaded(name);
  let fastest = null;
  for (let k = 0; k < kernel.sizes[size].variants.length; k += 1) {
    const result = await measured(kernel, size, k);
    if (!result.verdict.right) throw new Unable(`${kernel.title} gave a wrong result on this GPU: ${result.verdict.wrong}`);
    if (!fastest || result.speed > fastest.speed) fastest = result;
  }
  return /** @type {import("./measure.js").Result} */ (fastest);
}

/** Microseconds of a launch that has nothing to do: among others in a pass, and by itself. */
async function launchTimes() {
  const found = await gpu();
  const { sizes } = await loaded("launch");
  const { launch } = sizes[0].variants[0];
  return watched(found, "a copy of one number", async () => {
    const buffers = buffersFor(found.device, launch);
    try {
      const encode = await ready(found.device, launch, buffers);
      const together = await timed(found, encode, TOGETHER);
      const alone = await submitted(found.device, encode);
      return { launch: together.seconds * 1e6, alone: alone.seconds * 1e6 };
    } finally {
      Object.values(buffers).forEach((buffer) => buffer.destroy());
    }
  });
}

/**
 * Submissions of one launch each, until the GPU says that it is done, by the wall clock.
 * @param {any} device
 * @param {(pass: any) => void} encode
 */
async function submitted(device, encode) {
  const samples = [];
  for (let k = 0; k < LAUNCHES; k += 1) {
    const start = performance.now();
    once(device, encode);
    await device.queue.onSubmittedWorkDone();
    samples.push((performance.now() - start) / 1000);
  }
  return summary(samples, 1, "the wall clock");
}
