/** Every model by its name: arithmetic alone, held equal to the package's by tests. */
import { addresses } from "./bank_addresses.js";
import { wavefronts } from "./banks.js";
import { broadcast, broadcastBytes, source } from "./broadcast.js";
import { requested, strided } from "./coalescing.js";
import { occupancy } from "./occupancy.js";
import { givenRow, holder, place } from "./fragments.js";
import { ringTimeline } from "./ring.js";
import { ofRows, rowPlaces, swizzled } from "./swizzle.js";
import { attainable, inFlight } from "./roofline.js";
import { convTiling, productTiling } from "./tiling.js";
import { deal } from "./waves.js";
import { boxBytes, fetched, stored } from "./tma_box.js";
import { outSize, paddingProducts, pixelsUnder } from "./window.js";

/** @type {Record<string, (...values: any[]) => any>} */
export const models = {
  addresses, wavefronts,
  broadcast, broadcastBytes, source,
  requested, strided,
  ofRows, rowPlaces, swizzled,
  occupancy, attainable, inFlight, convTiling, productTiling, deal,
  boxBytes, fetched, stored,
  outSize, paddingProducts, pixelsUnder,
  givenRow, holder, place, ringTimeline,
};
