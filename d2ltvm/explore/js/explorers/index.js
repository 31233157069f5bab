/** Every explorer by its name, one line each. */
import { banks } from "./banks.js";
import { broadcasting } from "./broadcast.js";
import { coalescing } from "./coalescing.js";
import { ring } from "./ring.js";
import { swizzle } from "./swizzle.js";
import { convolutionWindow } from "./window.js";

/** @type {Record<string, import("../ui/figure.js").Explorer>} */
export const explorers = {
  banks,
  broadcast: broadcasting,
  coalescing,
  ring,
  swizzle,
  window: convolutionWindow,
};
