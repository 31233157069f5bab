/** Every model by its name: arithmetic alone, held equal to the package's by tests. */
import { addresses, swizzled } from "./bank_addresses.js";
import { wavefronts } from "./banks.js";
import { ringTimeline } from "./ring.js";
import { outSize, paddingProducts, pixelsUnder } from "./window.js";

/** @type {Record<string, (...values: any[]) => any>} */
export const models = {
  addresses, swizzled, wavefronts,
  outSize, paddingProducts, pixelsUnder,
  ringTimeline,
};
