/** Every explorer by its name, one line each. */
import { banks } from "./banks.js";
import { broadcasting } from "./broadcast.js";
import { coalescing } from "./coalescing.js";
import { convTiles } from "./conv_tiles.js";
import { hierarchy } from "./hierarchy.js";
import { latency } from "./latency.js";
import { fragments } from "./fragments.js";
import { ring } from "./ring.js";
import { swizzle } from "./swizzle.js";
import { waves } from "./waves.js";
import { tmaBox } from "./tma_box.js";
import { convolutionWindow } from "./window.js";

/** @type {Record<string, import("../ui/figure.js").Explorer>} */
export const explorers = {
  banks,
  broadcast: broadcasting,
  coalescing,
  conv_tiles: convTiles,
  hierarchy,
  latency,
  fragments,
  ring,
  swizzle,
  waves,
  tma_box: tmaBox,
  window: convolutionWindow,
};
