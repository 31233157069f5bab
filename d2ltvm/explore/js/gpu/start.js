/** Brings every card of a page, or of a cell's output, to life. */
import { bringCard } from "./live_card.js";
import { bringGpu } from "./live_gpu.js";

/** @param {ParentNode} root */
export function bringCards(root) {
  for (const each of root.querySelectorAll("figure.d2l-run")) {
    const figure = /** @type {HTMLElement} */ (each);
    if (figure.dataset.live) continue;
    figure.dataset.live = "yes";
    if (figure.dataset.gpu) bringGpu(figure);
    else bringCard(figure);
  }
}
