/** The entry for Python: still pictures, and models for the tests. */
import { explorers } from "./explorers/index.js";
import { models } from "./models/index.js";
import { card } from "./gpu/card.js";
import { elements } from "./gpu/definition.js";
import { gpuCard } from "./gpu/your_gpu.js";
import { fieldsOf, figure } from "./ui/figure.js";
import { values } from "./ui/fields.js";

/**
 * The markup of a figure.
 * @param {string} name
 * @param {Record<string, unknown>} state
 * @param {any} given
 */
export function still(name, state, given) {
  return figure(explorers[name], state, given);
}

/**
 * What an explorer shows in a state, in words.
 * @param {string} name
 * @param {import("./ui/fields.js").State} state
 * @param {any} given
 */
export function said(name, state, given) {
  return explorers[name].say(state, given);
}

/**
 * An explorer's start, its title, and the values that each of its fields can have.
 * @param {string} name
 * @param {any} given
 */
export function described(name, given) {
  const explorer = explorers[name];
  const all = fieldsOf(explorer, given).map((field) => [field.key, values(field)]);
  return { start: explorer.start, title: explorer.title, fields: Object.fromEntries(all) };
}

/** The names of all explorers. */
export function names() {
  return Object.keys(explorers);
}

/**
 * A model's result for each of many inputs.
 * @param {string} name
 * @param {any[][]} inputs its arguments
 */
export function results(name, inputs) {
  return inputs.map((each) => models[name](...each));
}

/**
 * The card of a kernel that runs on the reader's GPU.
 * @param {import("./gpu/card.js").Shown} shown
 * @param {import("./gpu/measure.js").Kernel | null} own the kernel, where the catalog does not have it
 */
export function kernelCard(shown, own) {
  return card(shown, own);
}

/**
 * The card of the reader's GPU.
 * @param {import("./gpu/your_gpu.js").Theirs} theirs
 */
export function yourGpu(theirs) {
  return gpuCard(theirs);
}

/**
 * Elements of a result and the magnitudes that go into them, as the page works them out.
 * @param {import("./gpu/definition.js").Definition} definition
 * @param {number[][]} inputs
 * @param {number[][]} indices
 */
export function workedOut(definition, inputs, indices) {
  const { value, magnitude } = elements(definition, inputs);
  return indices.map((index) => [value(index), magnitude(index)]);
}
