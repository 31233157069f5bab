/**
 * How long does a launch take? By the GPU's own clock where the browser has it, which Chromium rounds
 * to 100 µs, else by the wall's. In either case so many launches go together that the clock's own
 * step does not count.
 */
import { inSight } from "./device.js";

/**
 * @typedef {object} Timing
 * @property {number} seconds of one launch, the median of the samples
 * @property {number} low of the samples
 * @property {number} high
 * @property {number} samples
 * @property {number} together launches in a sample
 * @property {string} clock in words
 */

const SAMPLES = 9;
const FEWER = 7; // where one launch takes long
const LONG = 0.05; // seconds
const GPU_CLOCK = "the GPU’s timestamps";
const WALL_CLOCK = "the wall clock";
const LEAST = { [GPU_CLOCK]: 0.01, [WALL_CLOCK]: 0.06 }; // seconds of a sample
const MOST_LAUNCHES = 4096; // launches in a sample

/**
 * Time a kernel that is warm: what it was checked with is on the GPU.
 * @param {import("./device.js").Gpu} gpu
 * @param {(pass: any, times: number) => void} encode
 * @param {number} [fewest] launches in a sample
 * @returns {Promise<Timing>}
 */
export function timed(gpu, encode, fewest = 1) {
  return inSight(async () => {
    const clock = clockOf(gpu, encode);
    try {
      const rough = await calibrated(clock);
      if (clock.stamps && !(await trusted(clock, rough))) clock.dropStamps();
      const least = clock.stamps ? LEAST[GPU_CLOCK] : LEAST[WALL_CLOCK];
      const together = Math.max(fewest, Math.min(MOST_LAUNCHES, Math.ceil(least / rough)));
      const samples = [];
      const count = rough > LONG ? FEWER : SAMPLES;
      for (let k = 0; k < count; k += 1) samples.push((await clock.read(together)) / together);
      return summary(samples, together, clock.stamps ? GPU_CLOCK : WALL_CLOCK);
    } finally {
      clock.release();
    }
  });
}

/**
 * @param {number[]} samples
 * @param {number} together
 * @param {string} clock
 * @returns {Timing}
 */
export function summary(samples, together, clock) {
  const sorted = [...samples].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  const seconds = sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return { seconds, low: sorted[0], high: sorted[sorted.length - 1], samples: sorted.length, together, clock };
}

/**
 * Seconds of a launch, by the wall clock and roughly: more and more together, until they take 10 ms.
 * @param {ReturnType<typeof clockOf>} clock
 */
async function calibrated(clock) {
  await clock.wall(1);
  for (let together = 1; ; together *= 4) {
    let seconds = await clock.wall(together);
    if (seconds < LONG) seconds = Math.min(seconds, await clock.wall(together)); // once may be a hiccup
    if (seconds > 0.01 || together * 4 > MOST_LAUNCHES) return Math.max(seconds / together, 1e-8);
  }
}

/**
 * Whether timestamps make sense: time passes, and no more than by the wall clock.
 * @param {ReturnType<typeof clockOf>} clock
 * @param {number} rough
 */
async function trusted(clock, rough) {
  const together = Math.max(1, Math.min(MOST_LAUNCHES, Math.ceil(LEAST[GPU_CLOCK] / rough)));
  const start = performance.now();
  const seconds = await clock.read(together);
  const wall = (performance.now() - start) / 1000;
  return seconds > 0 && seconds <= wall + 0.001;
}

/**
 * @param {import("./device.js").Gpu} gpu
 * @param {(pass: any, times: number) => void} encode
 */
function clockOf({ device, timestamps }, encode) {
  const stamps = timestamps ? stampsOf(device) : null;
  /** @param {number} times */
  const wall = async (times) => {
    const start = performance.now();
    submit(device, encode, times, null);
    await device.queue.onSubmittedWorkDone();
    return (performance.now() - start) / 1000;
  };
  const clock = {
    stamps,
    wall,
    dropStamps: () => (clock.stamps = null),
    release: () => stamps && stamps.release(),
    /** @param {number} times */
    read: async (times) => {
      if (!clock.stamps) return wall(times);
      submit(device, encode, times, clock.stamps);
      return clock.stamps.seconds();
    },
  };
  return clock;
}

/**
 * @param {any} device
 * @param {(pass: any, times: number) => void} encode
 * @param {number} times
 * @param {ReturnType<typeof stampsOf> | null} stamps
 */
function submit(device, encode, times, stamps) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass(stamps ? { timestampWrites: stamps.writes } : {});
  encode(pass, times);
  pass.end();
  if (stamps) stamps.resolve(encoder);
  device.queue.submit([encoder.finish()]);
}

/**
 * Two timestamps, at the beginning and at the end of a pass.
 * @param {any} device
 */
function stampsOf(device) {
  const querySet = device.createQuerySet({ type: "timestamp", count: 2 });
  const resolved = device.createBuffer({ size: 16, usage: 512 | 4 }); // query resolve, copy source
  const read = device.createBuffer({ size: 16, usage: 1 | 8 }); // map read, copy destination
  return {
    writes: { querySet, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 },
    /** @param {any} encoder */
    resolve: (encoder) => {
      encoder.resolveQuerySet(querySet, 0, 2, resolved, 0);
      encoder.copyBufferToBuffer(resolved, 0, read, 0, 16);
    },
    seconds: async () => {
      await read.mapAsync(1);
      const [start, end] = new BigUint64Array(read.getMappedRange());
      read.unmap();
      return Number(end - start) / 1e9;
    },
    release: () => [querySet, resolved, read].forEach((each) => each.destroy()),
  };
}
