/** Every model by its name: arithmetic alone, held equal to the package's by tests. */
import { addresses, swizzled } from "./bank_addresses.js";
import { wavefronts } from "./banks.js";
import { broadcast, broadcastBytes, source } from "./broadcast.js";
import { ringTimeline } from "./ring.js";
import { outSize, paddingProducts, pixelsUnder } from "./window.js";

/** @type {Record<string, (...values: any[]) => any>} */
export const models = {
  addresses, swizzled, wavefronts,
  broadcast, broadcastBytes, source,
  outSize, paddingProducts, pixelsUnder,
  ringTimeline,
};
