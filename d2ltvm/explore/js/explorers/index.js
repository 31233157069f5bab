/** Every explorer by its name, one line each. */
import { banks } from "./banks.js";
import { ring } from "./ring.js";
import { convolutionWindow } from "./window.js";

/** @type {Record<string, import("../ui/figure.js").Explorer>} */
export const explorers = { banks, ring, window: convolutionWindow };
