/**
 * Is it right? The whole result is held against a plain kernel on the same GPU, and a sample of it
 * against double precision in JavaScript, which knows nothing of the GPU.
 */
import { numbers, places } from "./data.js";
import { elements, indexOf } from "./definition.js";
import { fetched, once, ready, size } from "./kernel.js";

/**
 * @typedef {import("./kernel.js").Launch} Launch
 * @typedef {import("./definition.js").Definition} Definition
 * @typedef {{definition: Definition, plain: Launch, magnitudes?: {definition: Definition, plain: Launch}}} Reference
 *   `magnitudes`: what is added up in each element, where that is not the computation on magnitudes
 * @typedef {{right: boolean, sampled: number, elements: number, wrong: string}} Verdict
 */

const UNIT = 2 ** -24; // of float32: how far a rounding moves a number, at most
const TINY = 2 ** -126; // a GPU may take smaller numbers for zero
const SAMPLED = 64;

/**
 * How far an element may be off, by the roundings that it goes through (Higham, section 3.1).
 * @param {number} terms
 * @param {number} magnitude the sum of the magnitudes that were added up
 */
export function bound(terms, magnitude) {
  return ((terms * UNIT) / (1 - terms * UNIT)) * magnitude + terms * TINY;
}

/**
 * Compare a result with another one of the same GPU, both off by their own roundings.
 * @param {ArrayLike<number>} got
 * @param {ArrayLike<number>} want
 * @param {ArrayLike<number>} magnitudes themselves rounded as often
 * @param {number} terms
 * @returns {{wrong: number, first: number}} how many elements are too far off, and the first of them
 */
export function compared(got, want, magnitudes, terms) {
  let [wrong, first] = [0, -1];
  const factor = (2 * bound(terms, 1)) / (1 - bound(terms, 1));
  for (let k = 0; k < want.length; k += 1) {
    if (Math.abs(got[k] - want[k]) <= factor * magnitudes[k] + 2 * terms * TINY) continue;
    if (!wrong) first = k;
    wrong += 1;
  }
  return { wrong, first };
}

/**
 * Compare a sample of a result with double precision.
 * @param {ArrayLike<number>} got
 * @param {Definition} definition
 * @param {ArrayLike<number>[]} inputs
 * @param {Definition} [magnitudes]
 * @returns {{sampled: number, first: number, should: number}} the first that is too far off, or -1
 */
export function sampled(got, definition, inputs, magnitudes) {
  const { shape } = definition.stages[definition.stages.length - 1];
  const { value, magnitude: summed } = elements(definition, inputs);
  const magnitude = magnitudes ? elements(magnitudes, inputs).value : summed;
  const chosen = places(SAMPLED, got.length, 7);
  for (const place of chosen) {
    const index = indexOf(place, shape);
    const should = value(index);
    const off = definition.relative ? Math.abs(should) : magnitude(index);
    const allowed = definition.terms ? bound(definition.terms, off) : 0;
    if (!(Math.abs(got[place] - should) <= allowed)) return { sampled: chosen.length, first: place, should };
  }
  return { sampled: chosen.length, first: -1, should: 0 };
}

/**
 * Run a kernel on numbers by chance and say whether its result is right. The inputs are on the GPU
 * when it returns, for the clock.
 * @param {any} device
 * @param {(pass: any) => void} encode launches the kernel
 * @param {Record<string, any>} buffers of its tensors
 * @param {Reference} reference
 * @returns {Promise<Verdict>}
 */
export async function checked(device, encode, buffers, { definition, plain, magnitudes: added }) {
  const inputs = definition.inputs.map(({ shape, positive }, k) => {
    const made = numbers(size(shape), k);
    return positive ? made.map(Math.abs) : made;
  });
  const output = buffers[definition.stages[definition.stages.length - 1].name];
  const names = definition.inputs.map(({ name }) => name);
  const poison = new Float32Array(output.size / 4).fill(NaN);
  const launchPlain = await ready(device, plain, buffers);
  const launchAdded = added && (await ready(device, added.plain, buffers));
  /**
   * @param {(pass: any) => void} kernel
   * @param {boolean} absolute
   */
  const result = async (kernel, absolute) => {
    inputs.forEach((each, k) => device.queue.writeBuffer(buffers[names[k]], 0, absolute ? each.map(Math.abs) : each));
    device.queue.writeBuffer(output, 0, poison);
    once(device, kernel);
    return fetched(device, output);
  };
  const want = await result(launchPlain, false);
  const summed = definition.terms && !definition.relative;
  const magnitudes = summed ? await (launchAdded ? result(launchAdded, false) : result(launchPlain, true)) : want;
  const got = await result(encode, false);
  const all = compared(got, want, magnitudes, definition.terms);
  const some = sampled(got, definition, inputs, added && added.definition);
  const verdict = { right: !all.wrong && some.first < 0, sampled: some.sampled, elements: got.length };
  return { ...verdict, wrong: verdict.right ? "" : said(got, want, all, some) };
}

/**
 * @param {ArrayLike<number>} got
 * @param {ArrayLike<number>} want
 * @param {{wrong: number, first: number}} all
 * @param {{first: number, should: number}} some
 */
function said(got, want, all, some) {
  const place = all.wrong ? all.first : some.first;
  const should = all.wrong ? want[place] : some.should;
  const many = all.wrong ? `${all.wrong} of ${got.length} elements are` : "An element of the sample is";
  return `${many} further off than roundings explain. Element ${place} is ${got[place]} and should be ${should}.`;
}
