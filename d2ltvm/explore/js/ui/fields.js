/** What a reader can set: which values there are, and the controls that set them. */
import { element, escaped } from "./markup.js";

/**
 * @typedef {number | string} Value
 * @typedef {Record<string, Value>} State
 * @typedef {object} Field
 * @property {string} key its name in a state, in an address, and in Python
 * @property {string} label what the control is called, with the unit
 * @property {"range" | "steps" | "choice" | "check"} kind a slider over whole numbers, a slider over
 *   `values`, a menu of `values`, or a box that is 0 or 1
 * @property {number} [min] of a range
 * @property {number} [max] likewise
 * @property {Value[]} [values] of steps and of a choice
 * @property {string[]} [names] what each of them is called, if other than its value
 * @property {(state: State) => boolean} [when] where it has an effect; everywhere by default
 */

/**
 * The values that a field can have.
 * @param {Field} field
 * @returns {Value[]}
 */
export function values(field) {
  if (field.kind === "check") return [0, 1];
  if (field.values) return field.values;
  const { min = 0, max = 0 } = field;
  return Array.from({ length: max - min + 1 }, (_, k) => min + k);
}

/**
 * A value from text or from elsewhere as one that the field has, or undefined.
 * @param {Field} field
 * @param {unknown} value
 * @returns {Value | undefined}
 */
export function taken(field, value) {
  return values(field).find((each) => String(each) === String(value));
}

/**
 * A state in which every field has one of its values: that of `wanted`, else of `start`, else the first.
 * @param {Field[]} fields
 * @param {State} start
 * @param {Record<string, unknown>} wanted
 * @returns {State}
 */
export function settled(fields, start, wanted) {
  /** @type {State} */
  const state = {};
  for (const field of fields) {
    const found = [wanted[field.key], start[field.key], values(field)[0]]
      .map((value) => taken(field, value))
      .filter((value) => value !== undefined);
    state[field.key] = /** @type {Value} */ (found[0]);
  }
  return state;
}

/**
 * The controls of all fields, as they are in a state.
 * @param {Field[]} fields
 * @param {State} state
 * @param {string} id of the figure, for labels
 */
export function controls(fields, state, id) {
  return fields.map((field) => control(field, state, `${id}-${field.key}`)).join("");
}

/**
 * @param {Field} field
 * @param {State} state
 * @param {string} id
 */
function control(field, state, id) {
  const value = state[field.key];
  const off = Boolean(field.when && !field.when(state));
  const common = { id, name: field.key, disabled: off };
  const label = element("label", { for: id }, escaped(field.label));
  if (field.kind === "check") {
    const input = element("input", { ...common, type: "checkbox", checked: value === 1 });
    return element("div", { class: "d2l-field d2l-check" }, input, label);
  }
  if (field.kind === "choice") {
    const options = values(field).map((each) =>
      element("option", { value: String(each), selected: each === value }, escaped(called(field, each))),
    );
    return element("div", { class: "d2l-field" }, label, element("select", common, ...options));
  }
  const all = values(field);
  const input = element("input", {
    ...common,
    type: "range",
    min: "0",
    max: String(all.length - 1),
    value: String(all.indexOf(value)),
    "aria-valuetext": called(field, value),
  });
  const shown = element("output", { for: id }, escaped(called(field, value)));
  return element("div", { class: "d2l-field" }, label, input, shown);
}

/**
 * @param {Field} field
 * @param {Value} value
 */
function called(field, value) {
  return (field.names && field.names[values(field).indexOf(value)]) || String(value);
}

/**
 * The value that a control stands at.
 * @param {Field} field
 * @param {HTMLInputElement | HTMLSelectElement} input
 * @returns {Value}
 */
export function read(field, input) {
  if (field.kind === "check") return /** @type {HTMLInputElement} */ (input).checked ? 1 : 0;
  if (field.kind === "choice") return values(field).find((v) => String(v) === input.value) || 0;
  return values(field)[Number(input.value)];
}

/**
 * Put a control where a state says, after something else has changed the state.
 * @param {Field} field
 * @param {State} state
 * @param {HTMLInputElement | HTMLSelectElement} input
 */
export function put(field, state, input) {
  const value = state[field.key];
  input.disabled = Boolean(field.when && !field.when(state));
  if (field.kind === "check") {
    /** @type {HTMLInputElement} */ (input).checked = value === 1;
  } else if (field.kind === "choice") {
    input.value = String(value);
  } else {
    input.value = String(values(field).indexOf(value));
    input.setAttribute("aria-valuetext", called(field, value));
    const shown = input.parentElement && input.parentElement.querySelector("output");
    if (shown) shown.textContent = called(field, value);
  }
}
