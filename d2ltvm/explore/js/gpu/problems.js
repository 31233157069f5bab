/** What can be missing or go wrong with a GPU in a page, each in one line that a reader can act on. */

/** Something that keeps a kernel from running. Its message is for the reader. */
export class Unable extends Error {}

/** Why a page has no WebGPU, as far as it can tell. */
export function noWebGPU() {
  const secure = typeof isSecureContext === "undefined" || isSecureContext;
  return new Unable(
    secure
      ? "This browser has no WebGPU. Chrome, Edge, Safari 26 and Firefox 141 have it, or newer ones."
      : "Browsers give WebGPU to pages from https, from localhost and from the disk, and this page came by http.",
  );
}

export const noAdapter = () =>
  new Unable("WebGPU found no GPU here: the driver may be too old, or the browser has blocked it.");

export const lost = () =>
  new Unable("The GPU was lost while it worked, as when its driver starts anew. Reload the page to try again.");

export const background = () =>
  new Unable("The tab was in the background, where browsers slow down, so the times were thrown away. Run it again.");

/** @param {string} what */
export const outOfMemory = (what) => new Unable(`The GPU has too little memory for ${what}. A smaller size may fit.`);

/**
 * @param {string} what that is too much, with its number
 * @param {number} most
 */
export const overLimit = (what, most) => new Unable(`The kernel takes ${what}; this GPU allows ${most}.`);

/** @param {string} why the browser's own words */
export const refused = (why) => new Unable(`The browser refused the kernel: ${why.split("\n")[0]}`);

/** @param {string} name */
export const notLoaded = (name) => new Unable(`The script of the kernel, kernels/${name}.js, could not be loaded.`);
