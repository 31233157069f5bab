/** Brings a figure to life: its controls, its picture under the pointer, its state in the address. */
import { put, read, settled } from "./fields.js";
import { fieldsOf } from "./figure.js";

/**
 * @typedef {import("./fields.js").State} State
 * @typedef {import("./figure.js").Explorer} Explorer
 */

/**
 * @param {HTMLElement} figure made by `figure`
 * @param {Explorer} explorer
 * @param {(state: State) => void} changed told of each new state
 * @returns {(wanted: Record<string, unknown>) => void} sets values from outside
 */
export function bring(figure, explorer, changed) {
  const given = JSON.parse(figure.dataset.given || "null");
  const fields = fieldsOf(explorer, given);
  const start = settled(fields, explorer.start, JSON.parse(figure.dataset.state || "{}"));
  let state = start;
  const form = /** @type {HTMLFormElement} */ (figure.querySelector("form"));
  const picture = /** @type {HTMLElement} */ (figure.querySelector(".d2l-picture"));
  const says = /** @type {HTMLElement} */ (figure.querySelector(".d2l-says"));

  /** @param {Record<string, unknown>} wanted */
  function show(wanted) {
    state = settled(fields, state, wanted);
    for (const field of fields) put(field, state, input(form, field.key));
    picture.innerHTML = explorer.draw(state, given);
    const said = explorer.say(state, given);
    if (says.textContent !== said) says.textContent = said;
    figure.dataset.state = JSON.stringify(state);
  }

  /** @param {Record<string, unknown>} wanted */
  function set(wanted) {
    show(wanted);
    changed(state);
  }

  form.addEventListener("input", (event) => {
    const from = /** @type {HTMLInputElement} */ (event.target);
    const field = fields.find((each) => each.key === from.name);
    if (field) set({ [field.key]: read(field, from) });
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    set(start);
  });
  pointed(picture, set);
  const play = /** @type {HTMLButtonElement | null} */ (form.querySelector(".d2l-play"));
  if (play && explorer.plays) player(play, explorer.plays, fields, () => state, set);
  return show;
}

/**
 * @param {HTMLFormElement} form
 * @param {string} key
 */
function input(form, key) {
  return /** @type {HTMLInputElement | HTMLSelectElement} */ (form.elements.namedItem(key));
}

/**
 * Parts of the picture with `data-set` set values, when pressed and when dragged over.
 * @param {HTMLElement} picture
 * @param {(wanted: Record<string, unknown>) => void} set
 */
function pointed(picture, set) {
  /** @param {PointerEvent} event */
  function follow(event) {
    const under = document.elementFromPoint(event.clientX, event.clientY);
    const part = under && picture.contains(under) && under.closest("[data-set]");
    if (part) set(JSON.parse(part.getAttribute("data-set") || "{}"));
    return Boolean(part);
  }
  picture.addEventListener("pointerdown", (event) => {
    if (!follow(event)) return;
    event.preventDefault(); // no text is selected while dragging
    const end = () => {
      document.removeEventListener("pointermove", follow);
      document.removeEventListener("pointerup", end);
      document.removeEventListener("pointercancel", end);
    };
    document.addEventListener("pointermove", follow);
    document.addEventListener("pointerup", end);
    document.addEventListener("pointercancel", end);
  });
}

/**
 * A button that moves one field along, again and again. With reduced motion it moves one step.
 * @param {HTMLButtonElement} button
 * @param {{key: string, seconds: number}} plays
 * @param {import("./fields.js").Field[]} fields
 * @param {() => State} now
 * @param {(wanted: Record<string, unknown>) => void} set
 */
function player(button, plays, fields, now, set) {
  const field = fields.find((each) => each.key === plays.key);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = 0;
  if (!field || field.max === undefined) return;
  const { min = 0, max } = field;
  const step = () => {
    const value = Number(now()[field.key]);
    set({ [field.key]: value < max ? value + 1 : min });
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    button.textContent = still.matches ? "Next step" : "Play";
  };
  stop();
  button.addEventListener("click", () => {
    if (still.matches) return step();
    if (timer) return stop();
    timer = window.setInterval(step, plays.seconds * 1000);
    button.textContent = "Pause";
  });
  still.addEventListener("change", stop);
  document.addEventListener("visibilitychange", stop);
}
