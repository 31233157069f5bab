/** A figure that can be touched, as markup: caption, controls, picture, and what it says. */
import { controls, settled } from "./fields.js";
import { element, escaped } from "./markup.js";

/**
 * @typedef {import("./fields.js").State} State
 * @typedef {import("./fields.js").Field} Field
 * @typedef {any} Given what Python hands over beside the state: a kernel's accesses, a record
 * @typedef {object} Explorer
 * @property {string} name
 * @property {string} title
 * @property {string} question answered by moving something
 * @property {string} [questionFor] another one, where something is given
 * @property {Field[]} fields
 * @property {State} start a telling state
 * @property {(state: State, given: Given) => string} draw the picture
 * @property {(state: State, given: Given) => string} say the result, in one or two sentences
 * @property {(given: Given) => Field[]} [fieldsFor] other fields, where something is given
 * @property {{key: string, seconds: number}} [plays] a field that a button moves along
 */

/**
 * The fields of an explorer, with what is given.
 * @param {Explorer} explorer
 * @param {Given} given
 */
export function fieldsOf(explorer, given) {
  return explorer.fieldsFor && given ? explorer.fieldsFor(given) : explorer.fields;
}

/**
 * The whole figure.
 * @param {Explorer} explorer
 * @param {Record<string, unknown>} wanted values that differ from the start
 * @param {Given} given
 */
export function figure(explorer, wanted, given) {
  const fields = fieldsOf(explorer, given);
  const state = settled(fields, explorer.start, wanted);
  const id = `explorer-${explorer.name}${given ? "-kernel" : ""}`; // a page may have both
  const hidden = "display: none"; // until a style sheet shows it: a plain notebook has no scripts
  const buttons = [
    explorer.plays && element("button", { type: "button", class: "d2l-play" }, "Play"),
    element("button", { type: "reset", class: "d2l-reset" }, "Start again"),
  ].filter(Boolean);
  return element(
    "figure",
    {
      class: "d2l-explorer",
      id,
      "data-explorer": explorer.name,
      "data-state": JSON.stringify(state),
      "data-given": given ? JSON.stringify(given) : undefined,
    },
    element(
      "figcaption",
      {},
      element("strong", {}, escaped(explorer.title)),
      " ",
      element("span", { class: "d2l-question" }, escaped((given && explorer.questionFor) || explorer.question)),
    ),
    element(
      "form",
      { class: "d2l-controls", style: hidden, "aria-label": explorer.title },
      controls(fields, state, id),
      element("div", { class: "d2l-buttons" }, ...buttons.map(String)),
    ),
    element("div", { class: "d2l-picture" }, explorer.draw(state, given)),
    element("p", { class: "d2l-says", role: "status" }, escaped(explorer.say(state, given))),
  );
}
