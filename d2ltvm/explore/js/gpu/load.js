/** A kernel's shaders, from a script of their own that is loaded when they are asked for. */
import { notLoaded } from "./problems.js";

/** Where this script is: those of kernels are beside its folder. It is known only while it starts. */
const current = typeof document === "undefined" ? null : document.currentScript;
const HERE = current && "src" in current ? String(current.src) : "";

/** @returns {Record<string, import("./measure.js").Kernel>} */
const registry = () => /** @type {any} */ (globalThis).d2lKernels || {};

/**
 * @param {string} name
 * @returns {Promise<import("./measure.js").Kernel>}
 */
export async function loaded(name) {
  if (!registry()[name]) await script(new URL(`../kernels/${name}.js`, HERE || document.baseURI).href, name);
  if (!registry()[name]) throw notLoaded(name);
  return registry()[name];
}

/**
 * @param {string} address
 * @param {string} name
 * @returns {Promise<void>}
 */
function script(address, name) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = address;
    element.onload = () => resolve();
    element.onerror = () => reject(notLoaded(name));
    document.head.append(element);
  });
}

/**
 * Bring kernels in that did not come by a script: a notebook has them at hand.
 * @param {Record<string, import("./measure.js").Kernel>} kernels
 */
export function register(kernels) {
  const global = /** @type {any} */ (globalThis);
  global.d2lKernels = Object.assign(global.d2lKernels || {}, kernels);
}
