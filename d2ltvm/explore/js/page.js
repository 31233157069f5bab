/** Brings every figure of a page to life. */
import { explorers } from "./explorers/index.js";
import { parsed, written } from "./ui/address.js";
import { bringCards } from "./gpu/start.js";
import { bring } from "./ui/live.js";

/** @type {Map<string, (wanted: Record<string, unknown>) => void>} */
const setters = new Map();

function start() {
  for (const each of document.querySelectorAll("figure.d2l-explorer")) {
    const figure = /** @type {HTMLElement} */ (each);
    const explorer = explorers[figure.dataset.explorer || ""];
    if (!explorer || figure.dataset.live) continue;
    figure.dataset.live = "yes";
    if (setters.has(figure.id)) figure.id += `-${setters.size}`;
    setters.set(figure.id, bring(figure, explorer, (state) => remember(figure.id, state)));
  }
  bringCards(document);
  follow();
}

/** Show the figure that the address names, in the state that it names. */
function follow() {
  const { id, wanted } = parsed(location.hash);
  const set = setters.get(id);
  const figure = document.getElementById(id);
  if (!set || !figure) return;
  set(wanted);
  figure.scrollIntoView({ block: "center" });
}

/**
 * Write the address of a state, without a step in the browser's history.
 * @param {string} id
 * @param {import("./ui/fields.js").State} state
 */
function remember(id, state) {
  try {
    history.replaceState(null, "", written(id, state));
  } catch (error) {
    // Browsers refuse many in a short time; the next change writes it.
  }
}

if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
else start();
window.addEventListener("hashchange", follow);
