/** The entry for notebooks: a figure as an anywidget. */
import { explorers } from "./explorers/index.js";
import { register } from "./gpu/load.js";
import { bringCards } from "./gpu/start.js";
import { bring } from "./ui/live.js";

/**
 * @param {{model: {get: (key: string) => any, set: (key: string, value: any) => void,
 *   save_changes: () => void, on: (event: string, call: () => void) => void}, el: HTMLElement}} view
 */
export function render({ model, el }) {
  el.innerHTML = model.get("markup");
  // JupyterLab takes arrows and letters for its cells, but from elements that say so.
  el.addEventListener("focusin", (event) => {
    /** @type {Element} */ (event.target).setAttribute("data-lm-suppress-shortcuts", "true");
  });
  const figure = /** @type {HTMLElement} */ (el.querySelector("figure"));
  register(model.get("kernels") || {});
  bringCards(el);
  if (figure.classList.contains("d2l-run")) return;
  const explorer = explorers[figure.dataset.explorer || ""];
  const show = bring(figure, explorer, (state) => {
    model.set("state", state);
    model.save_changes();
  });
  model.on("change:state", () => show(model.get("state")));
}
