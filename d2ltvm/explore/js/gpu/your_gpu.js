/** The card of the reader's GPU as a whole: its ceilings beside the book's, and its roofline. */
import { element, escaped, rounded } from "../ui/markup.js";
import { speed } from "./units.js";

/**
 * @typedef {{device: string, copy: number, rate: number, launch: number}} Theirs
 */

/**
 * The card before anything was measured.
 * @param {Theirs} theirs the ceilings of the book's GPU
 */
export function gpuCard(theirs) {
  return element(
    "figure",
    { class: "d2l-explorer d2l-run", id: "your-gpu", "data-gpu": "yes", "data-given": JSON.stringify(theirs) },
    element("figcaption", {}, element("strong", {}, "Your GPU."), " ", element("span", { class: "d2l-question" }, "What are its ceilings, and how far below them are the kernels you have run?")),
    element(
      "form",
      { class: "d2l-controls", style: "display: none", "aria-label": "Measure your GPU" },
      element(
        "div",
        { class: "d2l-buttons" },
        element("button", { type: "submit" }, "Measure it"),
        element("button", { type: "button", class: "d2l-forget" }, "Forget all runs"),
      ),
    ),
    element("div", { class: "d2l-result" }, table(theirs, null)),
    element("p", { class: "d2l-says", role: "status" }, "Open this page with scripts in a browser that has WebGPU, and your own GPU stands beside it."),
  );
}

/**
 * @param {Theirs} theirs
 * @param {import("./store.js").Ceilings | null} yours
 */
export function table(theirs, yours) {
  const micro = (/** @type {number} */ value) => `${rounded(value, 2)} µs`;
  const rows = [
    ["Copy, read and written", yours && speed(yours.copy, "GB/s"), speed(theirs.copy, "GB/s")],
    ["Multiply-adds, float32", yours && speed(yours.rate, "GFLOPS"), speed(theirs.rate, "GFLOPS")],
    ["Operations for a byte", yours && rounded(yours.rate / yours.copy), rounded(theirs.rate / theirs.copy)],
    ["A launch among others", yours && micro(yours.launch), micro(theirs.launch)],
    ["A launch, until the answer", yours && micro(yours.alone), null], // no browser asked the H200
  ];
  const head = ["Ceiling", "Yours", `The book’s ${theirs.device}`].map((text) => element("th", { scope: "col" }, escaped(text)));
  const body = rows.map(([name, ...values]) =>
    element("tr", {}, element("th", { scope: "row" }, String(name)), ...values.map((text) => element("td", {}, escaped(text || "—")))),
  );
  return element("div", { class: "d2l-table" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
}
