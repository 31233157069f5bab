/** Brings the card of the reader's GPU to life. */
import { rounded, element, escaped } from "../ui/markup.js";
import { ceilings } from "./ceilings.js";
import { copies } from "./copy.js";
import { gpu } from "./device.js";
import { Unable } from "./problems.js";
import { dots, roofline } from "./roofline.js";
import { forget, kept, lastGpu } from "./store.js";
import { speed } from "./units.js";
import { table } from "./your_gpu.js";

/** @param {HTMLElement} figure made by `gpuCard` */
export function bringGpu(figure) {
  const theirs = JSON.parse(figure.dataset.given || "{}");
  const form = /** @type {HTMLFormElement} */ (figure.querySelector("form"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button"));
  const says = /** @type {HTMLElement} */ (figure.querySelector(".d2l-says"));
  const result = /** @type {HTMLElement} */ (figure.querySelector(".d2l-result"));
  const say = (/** @type {string} */ text) => (says.textContent = text);
  const show = (/** @type {string} */ name) => {
    const { ceilings: yours, runs } = kept(name);
    result.innerHTML = table(theirs, yours) + (yours ? roofline(yours, runs) + listed(runs) : "");
    if (yours) result.append(copies({ gpu: name, ceilings: yours, runs }));
    say(yours ? `${name}, by ${yours.clock}, ${yours.date}.` : "Not measured yet.");
  };
  show(lastGpu());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    figure.dataset.state = "running";
    try {
      say("Looking for your GPU …");
      const found = await gpu();
      await ceilings(say, true);
      show(found.name);
      if (found.processor) say(`${says.textContent} It is a program on your processor and no GPU.`);
      figure.dataset.state = "done";
    } catch (error) {
      say(error instanceof Unable ? error.message : String(error));
      figure.dataset.state = "unable";
    }
    button.disabled = false;
  });
  const clear = /** @type {HTMLButtonElement} */ (form.querySelector(".d2l-forget"));
  clear.addEventListener("click", () => {
    forget();
    show("");
  });
}

/** @param {import("./measure.js").Result[]} runs */
function listed(runs) {
  const found = dots(runs);
  const moving = runs.filter((run) => run.gflops === 0);
  const items = found.map(({ title, gflops, intensity }) => `${title}: ${speed(gflops, "GFLOPS")} at ${rounded(intensity, 2)} operations for a byte`);
  const list = items.length ? element("ol", {}, ...items.map((text) => element("li", {}, escaped(text)))) : "";
  const copied = moving.map((run) => `${[run.title, run.variant, run.size].filter(Boolean).join(", ")}: ${speed(run.speed, run.unit)}`);
  const rest = copied.length ? element("p", {}, "These compute nothing and have no place in the picture:") + element("ul", {}, ...copied.map((text) => element("li", {}, escaped(text)))) : "";
  return list + rest || element("p", {}, "Run a kernel in any chapter, and a dot for it appears here.");
}
