/**
 * The card of a kernel, as markup: what runs, what the book's GPU did, what the reader expects.
 * Python stores it in the notebook; `live_card.js` brings it to life.
 */
import { counted, element, escaped, rounded, thousands } from "../ui/markup.js";
import { percent, speed } from "./units.js";

/**
 * @typedef {import("./measure.js").Result} Result
 * @typedef {import("./store.js").Ceilings} Ceilings
 * @typedef {{speed: number, size: string, device: string, measurement: string, date: string} | null} Recorded
 * @typedef {object} Shown what Python tells of a kernel, for its card
 * @property {string} name
 * @property {string} title
 * @property {string} chapter
 * @property {string} unit
 * @property {string[]} sizes
 * @property {string[]} variants
 * @property {Recorded[]} records by variant
 * @property {string} against the title of the kernel that it is compared with, or ''
 * @property {Recorded} againstRecord
 * @property {string[]} needs the names of the kernels to load
 * @property {string[]} adapted sentences
 */

const WITHOUT = "Open this page with scripts in a browser that has WebGPU, and the kernel runs on your own GPU.";

/** @param {Shown} shown */
export function asks(shown) {
  if (shown.variants.length > 1) return "Which is the fastest on your GPU?";
  if (shown.against) return `How many times as fast as “${shown.against}” is it on your GPU?`;
  const ceiling = shown.unit === "GB/s" ? "the bandwidth of a copy" : "the rate of multiply-adds";
  return `What share of ${ceiling} does it reach on your GPU?`;
}

/**
 * The whole card before anything has run.
 * @param {Shown} shown
 * @param {import("./measure.js").Kernel | null} own the kernel, where the catalog does not have it
 */
export function card(shown, own) {
  const id = `run-${shown.name}`;
  return element(
    "figure",
    { class: "d2l-explorer d2l-run", id, "data-run": shown.name, "data-given": JSON.stringify(shown), "data-own": own ? JSON.stringify(own) : undefined },
    element(
      "figcaption",
      {},
      element("strong", {}, `Run it on your GPU: ${escaped(shown.title)}.`),
      " ",
      element("span", { class: "d2l-question" }, escaped(asks(shown))),
    ),
    element("p", { class: "d2l-record" }, escaped(recorded(shown))),
    shown.adapted.length ? element("p", { class: "d2l-adapted" }, `For WebGPU: ${escaped(shown.adapted.join(" "))}`) : "",
    form(shown, id),
    element("p", { class: "d2l-says", role: "status" }, escaped(WITHOUT)),
    element("div", { class: "d2l-result" }),
  );
}

/** @param {Shown} shown */
function recorded(shown) {
  const rows = [{ label: shown.against, record: shown.againstRecord }, ...shown.variants.map((label, k) => ({ label: label || shown.title, record: shown.records[k] }))];
  const known = rows.filter(({ record }) => record);
  const first = known[0] && known[0].record;
  if (!first) return "This card has no record to compare with.";
  const sizes = [...new Set(known.map(({ record }) => record && record.size))];
  const each = known.map(({ label, record }) => {
    const size = sizes.length > 1 && record ? ` (${record.size})` : "";
    return `${known.length > 1 ? `${label}: ` : ""}${record ? speed(record.speed, shown.unit) : ""}${size}`;
  });
  const where = sizes.length > 1 ? "" : ` at ${sizes[0]}`;
  return `The book’s ${first.device}${where}: ${each.join("; ")}.`;
}

/**
 * @param {Shown} shown
 * @param {string} id
 */
function form(shown, id) {
  const suits = shown.sizes.length > 1 ? [element("option", { value: "" }, "what suits your GPU")] : [];
  const sizes = shown.sizes.map((label, k) => element("option", { value: k }, escaped(label)));
  const size = element("select", { id: `${id}-size`, name: "size" }, ...suits, ...sizes);
  return element(
    "form",
    { class: "d2l-controls", style: "display: none", "aria-label": `Run ${shown.title}` },
    field(`${id}-size`, "Size", size),
    field(`${id}-expect`, expects(shown), expectation(shown, `${id}-expect`)),
    element("div", { class: "d2l-buttons" }, element("button", { type: "submit", disabled: true }, "Run")),
  );
}

/** @param {Shown} shown */
function expects({ variants, against }) {
  if (variants.length > 1) return "You expect";
  return against ? "You expect (times as fast)" : "You expect (percent)";
}

/**
 * @param {string} id
 * @param {string} label
 * @param {string} control
 */
function field(id, label, control) {
  return element("div", { class: "d2l-field" }, element("label", { for: id }, label), control);
}

/**
 * @param {Shown} shown
 * @param {string} id
 */
function expectation({ variants }, id) {
  if (variants.length > 1) {
    const options = variants.map((label, k) => element("option", { value: k }, escaped(label)));
    return element("select", { id, name: "expected" }, element("option", { value: "" }, "choose one"), ...options);
  }
  return element("input", { id, name: "expected", type: "number", min: 0, step: "any", inputmode: "decimal" });
}

/**
 * What came out, as markup.
 * @param {Shown} shown
 * @param {Result[]} results of the kernel that it is compared with, where there is one, and of each variant
 * @param {Ceilings} ceilings
 * @param {number} expected a variant's number, a ratio, or percent
 * @param {{name: string, processor: boolean}} gpu
 */
export function outcome(shown, results, ceilings, expected, gpu) {
  const own = shown.against ? results.slice(1) : results;
  const records = shown.against ? [shown.againstRecord, ...shown.records] : shown.records;
  const rows = results.map((result, k) => row(result, records.some(Boolean) ? records[k] : undefined, ceilings));
  const theirs = records.some(Boolean);
  const head = ["Kernel", "Your GPU", "of your ceiling", ...(theirs ? ["The book’s"] : [])].map((text) => element("th", { scope: "col" }, text));
  const wrong = results.filter((result) => !result.verdict.right);
  return [
    element("div", { class: "d2l-table" }, element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows))),
    wrong.length ? "" : element("p", {}, escaped(verdict(shown, results, own, ceilings, expected))),
    element("p", { class: "d2l-how" }, escaped(how(results, gpu))),
  ].join("");
}

/**
 * @param {Result} result
 * @param {Recorded | undefined} record undefined where no kernel of the table has one
 * @param {Ceilings} ceilings
 */
function row(result, record, ceilings) {
  const ceiling = result.unit === "GB/s" ? ceilings.copy : ceilings.rate;
  const right = result.verdict.right;
  const cells = right
    ? [`${speed(result.speed, result.unit)}`, percent(result.speed / ceiling)]
    : ["wrong", ""];
  const theirs = record === undefined ? [] : [record ? speed(record.speed, result.unit) : "—"];
  const name = element("th", { scope: "row" }, escaped(result.variant || result.title));
  return element("tr", right ? {} : { class: "d2l-wrong" }, name, ...[...cells, ...theirs].map((text) => element("td", {}, escaped(text))));
}

/**
 * What was expected, and what it is.
 * @param {Shown} shown
 * @param {Result[]} results
 * @param {Result[]} own
 * @param {Ceilings} ceilings
 * @param {number} expected
 */
function verdict(shown, results, own, ceilings, expected) {
  if (shown.variants.length > 1) {
    const fastest = own.reduce((a, b) => (b.speed > a.speed ? b : a));
    const close = own.filter((each) => each !== fastest && each.spread[1] >= fastest.spread[0]);
    const tie = close.length ? ` Within the spread it is no faster than ${close.map((each) => each.variant).join(", ")}.` : "";
    return `You expected ${shown.variants[expected]}; the fastest is ${fastest.variant}.${tie}`;
  }
  if (shown.against) {
    const ratio = results[1].speed / results[0].speed;
    const theirs = shown.records[0] && shown.againstRecord ? ` On the book’s ${shown.records[0].device} it is ${rounded(shown.records[0].speed / shown.againstRecord.speed, 2)}.` : "";
    return `You expected ${expected} times as fast; it is ${rounded(ratio, 2)}.${theirs}`;
  }
  const ceiling = shown.unit === "GB/s" ? ceilings.copy : ceilings.rate;
  return `You expected ${expected}%; it is ${percent(own[0].speed / ceiling)}.`;
}

/**
 * How it was checked and timed, or what is wrong with it.
 * @param {Result[]} results
 * @param {{name: string, processor: boolean}} gpu
 */
function how(results, gpu) {
  const wrong = results.find((result) => !result.verdict.right);
  if (wrong) return `The result of “${wrong.variant || wrong.title}” is wrong, so it was not timed: ${wrong.verdict.wrong}`;
  const { verdict, timing } = results[results.length - 1];
  const spread = results.map(({ speed: middle, spread: [low, high] }) => (high - low) / middle);
  const clock = timing ? `Timed warm by ${timing.clock}: the median of ${timing.samples} samples of ${counted(timing.together, "launch", "launches")} each; samples lie within ${percent(Math.max(...spread))} of each other.` : "";
  const checked = `Right: all ${thousands(verdict.elements)} elements agree with a plain kernel on this GPU, and ${verdict.sampled} with double precision, up to rounding.`;
  const processor = gpu.processor ? " This is a program on your processor and no GPU, so the numbers say nothing of GPUs." : "";
  return `${checked} ${clock} On ${gpu.name}.${processor}`;
}
