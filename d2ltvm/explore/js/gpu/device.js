/** The reader's GPU: opened once for a page, and described in words. */
import { Unable, background, lost, noAdapter, noWebGPU, outOfMemory, refused } from "./problems.js";

/**
 * @typedef {object} Gpu
 * @property {any} device a GPUDevice
 * @property {string} name what the browser says it is
 * @property {boolean} processor whether it is no GPU but a program on the processor
 * @property {boolean} timestamps whether it can note the time by itself
 * @property {{gone: boolean}} state
 */

/** @type {Promise<Gpu> | null} */
let opened = null;

/**
 * The GPU of this page. After it was lost, the next call opens one anew.
 * @returns {Promise<Gpu>}
 */
export async function gpu() {
  if (!opened) {
    opened = open();
    opened.then((found) => found.device.lost.then(() => (opened = null)), () => (opened = null));
  }
  return opened;
}

/** @returns {Promise<Gpu>} */
async function open() {
  const webgpu = typeof navigator === "undefined" ? undefined : /** @type {any} */ (navigator).gpu;
  if (!webgpu) throw noWebGPU();
  const adapter = await webgpu.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) throw noAdapter();
  const timestamps = adapter.features.has("timestamp-query");
  const device = await adapter.requestDevice({ requiredFeatures: timestamps ? ["timestamp-query"] : [] });
  const state = { gone: false };
  device.lost.then(() => (state.gone = true));
  const info = adapter.info || {};
  return { device, state, timestamps, name: named(info), processor: onProcessor(adapter, info) };
}

/** @param {any} info */
function named(info) {
  const parts = [info.vendor, info.architecture, info.description || info.device];
  return [...new Set(parts.filter(Boolean))].join(" ") || "a GPU without a name";
}

/**
 * @param {any} adapter
 * @param {any} info
 */
function onProcessor(adapter, info) {
  const said = `${info.vendor} ${info.architecture} ${info.device} ${info.description}`;
  return Boolean(info.isFallbackAdapter || adapter.isFallbackAdapter) || /swiftshader|llvmpipe|lavapipe|basic render|warp/i.test(said);
}

/**
 * Do something on a device, and turn what goes wrong into a line for the reader.
 * @template T
 * @param {Gpu} gpu
 * @param {string} what the memory is for
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function watched({ device, state }, what, work) {
  const kinds = ["validation", "internal", "out-of-memory"];
  for (const kind of kinds) device.pushErrorScope(kind);
  /** @type {unknown} */
  let thrown = null;
  /** @type {T | undefined} */
  let result;
  try {
    result = await Promise.race([work(), device.lost.then(() => Promise.reject(lost()))]);
  } catch (error) {
    thrown = error;
  }
  if (state.gone) throw lost();
  const errors = [];
  for (const kind of [...kinds].reverse()) errors.push([kind, await device.popErrorScope()]);
  const found = errors.find(([, error]) => error);
  if (found) throw found[0] === "out-of-memory" ? outOfMemory(what) : refused(found[1].message);
  if (thrown instanceof RangeError) throw outOfMemory(what); // of the page's own arrays
  if (thrown instanceof Unable) throw thrown;
  if (thrown) throw refused(thrown instanceof Error ? thrown.message : String(thrown));
  return /** @type {T} */ (result);
}

/**
 * Do something while the tab is in sight all the time: browsers slow down the others.
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
export async function inSight(work) {
  let hidden = document.hidden;
  const note = () => (hidden = hidden || document.hidden);
  document.addEventListener("visibilitychange", note);
  try {
    const result = await work();
    if (hidden) throw background();
    return result;
  } finally {
    document.removeEventListener("visibilitychange", note);
  }
}
