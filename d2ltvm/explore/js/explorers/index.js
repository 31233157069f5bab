/** Every explorer by its name, one line each. */
import { banks } from "./banks.js";
import { convolutionWindow } from "./window.js";

/** @type {Record<string, import("../ui/figure.js").Explorer>} */
export const explorers = { banks, window: convolutionWindow };
