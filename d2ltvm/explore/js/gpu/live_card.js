/** Brings the card of a kernel to life: a prediction, a run, what came out. */
import { asks, outcome } from "./card.js";
import { ceilings } from "./ceilings.js";
import { gpu } from "./device.js";
import { loaded, register } from "./load.js";
import { measured } from "./measure.js";
import { Unable } from "./problems.js";
import { roofline } from "./roofline.js";
import { keepRuns, kept } from "./store.js";
import { copies } from "./copy.js";

/** Cards take turns: kernels that run side by side would slow each other down. */
let turn = Promise.resolve();

/** @param {HTMLElement} figure made by `card` */
export function bringCard(figure) {
  /** @type {import("./card.js").Shown} */
  const shown = JSON.parse(figure.dataset.given || "{}");
  if (figure.dataset.own) register({ [shown.name]: JSON.parse(figure.dataset.own) });
  const form = /** @type {HTMLFormElement} */ (figure.querySelector("form"));
  const expected = /** @type {HTMLInputElement} */ (form.elements.namedItem("expected"));
  const size = /** @type {HTMLSelectElement} */ (form.elements.namedItem("size"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const says = /** @type {HTMLElement} */ (figure.querySelector(".d2l-says"));
  const result = /** @type {HTMLElement} */ (figure.querySelector(".d2l-result"));
  let busy = false;
  const able = () => (button.disabled = busy || expected.value === "" || !expected.validity.valid);
  const say = (/** @type {string} */ text) => (says.textContent = text);
  say("Say what you expect, then run it.");
  form.addEventListener("input", able);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (button.disabled) return;
    busy = true;
    able();
    turn = turn.then(run).then(() => {
      busy = false;
      able();
    });
  });
  able();

  async function run() {
    figure.dataset.state = "running";
    result.innerHTML = "";
    try {
      say("Looking for your GPU …");
      const found = await gpu();
      const chosen = size.value === "" ? (found.processor ? 0 : shown.sizes.length - 1) : Number(size.value);
      const limits = await ceilings(say);
      const results = await all(shown, chosen, say);
      keepRuns(found.name, results.filter((each) => each.verdict.right));
      result.innerHTML = outcome(shown, results, limits, Number(expected.value), found) + roofline(limits, kept(found.name).runs, shown.needs);
      result.append(copies({ gpu: found.name, question: asks(shown), expected: expected.value, ceilings: limits, results }));
      const wrong = results.some((each) => !each.verdict.right);
      say(wrong ? "A result is wrong." : `${shown.title}, ${shown.sizes[chosen]}:`);
      figure.dataset.state = wrong ? "wrong" : "done";
    } catch (error) {
      say(error instanceof Unable ? `${error.message} What the book measured stands above.` : String(error));
      figure.dataset.state = "unable";
    }
  }
}

/**
 * Run what the card compares: another kernel and this one, or all variants of this one.
 * @param {import("./card.js").Shown} shown
 * @param {number} size
 * @param {(what: string) => void} say
 */
async function all(shown, size, say) {
  const results = [];
  for (const name of shown.needs) {
    const kernel = await loaded(name);
    const own = name === shown.name;
    for (let k = 0; k < (own ? shown.variants.length : 1); k += 1) {
      say(`Checking and timing: ${kernel.sizes[size].variants[k].label || kernel.title} …`);
      results.push(await measured(kernel, size, k));
    }
  }
  return results;
}
