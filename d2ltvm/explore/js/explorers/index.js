/** Every explorer by its name, one line each. */
import { banks } from "./banks.js";

/** @type {Record<string, import("../ui/figure.js").Explorer>} */
export const explorers = { banks };
