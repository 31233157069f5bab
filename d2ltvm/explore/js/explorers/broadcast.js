/** Which numbers of two tensors each element of their sum is made of, by NumPy's rule of shapes. */
import { counted, sets, thousands } from "../ui/markup.js";
import { box, group, label, outline, picture } from "../ui/svg.js";
import { broadcast, broadcastBytes, elements, indexAt, place, source } from "../models/broadcast.js";

/** @typedef {import("../ui/figure.js").State} State */
/** @typedef {import("../ui/svg.js").Colour} Colour */

const CELL = 20;
const SLICE = 4 * CELL + 12; // of the picture, for a matrix and the gap behind it
const LEFT = 68;
const BYTES = 4; // of a float32
const INSIDE = { "font-size": 10.5, anchor: "middle", "pointer-events": "none" };

/**
 * The three axes of a tensor, of which the first may be missing.
 * @param {string} name
 * @param {string} key
 * @returns {import("../ui/fields.js").Field[]}
 */
function axes(name, key) {
  const named = (/** @type {number} */ most) => Array.from({ length: most + 1 }, (_, k) => (k ? String(k) : "none"));
  const sizes = (/** @type {number} */ most) => ({ values: named(most).map((_, k) => k), names: named(most) });
  return [
    { key: `${key}0`, label: `${name}: first of three axes`, kind: "steps", ...sizes(3), when: (state) => Number(state[`${key}1`]) > 0 },
    { key: `${key}1`, label: `${name}: axis before the last`, kind: "steps", ...sizes(4) },
    { key: `${key}2`, label: `${name}: last axis`, kind: "range", min: 1, max: 4 },
  ];
}

/** @type {import("../ui/figure.js").Explorer} */
export const broadcasting = {
  name: "broadcast",
  title: "Shapes that broadcast.",
  question: "Which shapes fit, and which number of A and of B goes into each element of C = A + B?",
  fields: [
    ...axes("A", "a"),
    ...axes("B", "b"),
    { key: "element", label: "Element of C, row by row, up to its last", kind: "range", min: 0, max: 47 },
  ],
  start: { a0: 0, a1: 3, a2: 1, b0: 0, b1: 3, b2: 4, element: 6 },
  draw: (state) => {
    const { one, two, shape, misfit, index } = placed(state);
    const rows = misfit
      ? [tensor("A", one, one, null, "sky"), tensor("B", two, two, null, "amber"), mismatch(misfit)]
      : [tensor("A", one, shape, index, "sky"), tensor("B", two, shape, index, "amber"), result(one, two, shape, index)];
    const tables = rows.map((row, k) => group(0, 8 + k * (4 * CELL + 10), row));
    return picture(360, 320, say(state), ...tables, misfit ? "" : group(0, 282, traffic(one, two)));
  },
  say,
};

/**
 * The shapes of a state, their result, and the index of the element that is looked at.
 * @param {State} state
 */
function placed(state) {
  const [one, two] = ["a", "b"].map((key) => {
    const sizes = [0, 1, 2].map((k) => Number(state[`${key}${k}`]));
    return sizes.slice(sizes.lastIndexOf(0) + 1);
  });
  const { shape, misfit } = broadcast(one, two);
  return { one, two, shape, misfit, index: indexAt(shape, Math.min(Number(state.element), elements(shape) - 1)) };
}

/** @param {number[]} shape as Python writes it */
function tuple(shape) {
  return shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(", ")})`;
}

/** @param {State} state */
function say(state) {
  const { one, two, shape, misfit, index } = placed(state);
  if (misfit) {
    return (
      `${tuple(one)} and ${tuple(two)} do not broadcast: axis ${misfit.axis} of the result would be ` +
      `${misfit.sizes.join(" and ")}. Expected are equal sizes, or one of them 1.`
    );
  }
  const { loaded, once, written } = broadcastBytes(one, two, BYTES);
  const [a, b] = [one, two].map((each) => source(each, index).join(", "));
  const [uses, others] = [one, two].map((each) => elements(shape) / elements(each));
  return (
    `C has shape ${tuple(shape)}, and C[${index.join(", ")}] = A[${a}] + B[${b}]. Each number of A goes into ` +
    `${counted(uses, "element")} of C, each of B into ${others}: ${counted(loaded, "byte")} are read if each element loads ` +
    `both, ${thousands(once)} if each number is read once, and ${thousands(written)} written.`
  );
}

/**
 * The name of a tensor, its shape and its bytes.
 * @param {string} name
 * @param {number[]} shape
 */
function heading(name, shape) {
  return [
    label(6, 14, name, { "font-size": 14, "font-weight": "bold" }),
    label(6, 34, tuple(shape), { "font-size": 11.5 }),
    label(6, 52, counted(elements(shape) * BYTES, "byte"), { "font-size": 11.5 }),
  ].join("");
}

/**
 * Where an element of C is drawn.
 * @param {number[]} index
 */
function spot(index) {
  const [slice, row, column] = [0, 0, 0, ...index].slice(-3);
  return { x: LEFT + slice * SLICE + column * CELL, y: row * CELL };
}

/**
 * A tensor in the frame of C: its own elements full, those that it repeats dashed.
 * @param {string} name
 * @param {number[]} own its shape
 * @param {number[]} shape of C
 * @param {number[] | null} index of the element of C that is looked at
 * @param {Colour} fill
 */
function tensor(name, own, shape, index, fill) {
  const parts = [heading(name, own)];
  const looked = index && place(own, source(own, index));
  for (let at = 0; at < elements(shape); at += 1) {
    const here = indexAt(shape, at);
    const from = source(own, here);
    const real = here.slice(0, here.length - own.length).every((i) => i === 0) && from.every((i, k) => i === here[here.length - own.length + k]);
    const number = place(own, from);
    const { x, y } = spot(here);
    const style = { stroke: "#8a8a8a", "stroke-width": 0.8, ...(real ? {} : { "stroke-dasharray": "2 2" }) };
    const title = `${name}[${from.join(", ")}]` + (real ? "" : ", repeated");
    parts.push(box(x + 1, y + 1, CELL - 2, CELL - 2, real ? fill : "paper", { ...style, ...(index ? sets({ element: at }) : {}) }, title));
    parts.push(label(x + CELL / 2, y + CELL / 2, number, { ...INSIDE, fill: real ? "black" : "grey" }));
    if (real && number === looked) parts.push(outline(x + 1, y + 1, CELL - 2, CELL - 2, "ink", { "stroke-width": 2.5 }));
  }
  if (index) parts.push(dashed(index));
  return parts.join("");
}

/**
 * What marks the place of the element that is looked at, in a tensor that repeats a number there.
 * @param {number[]} index
 */
function dashed(index) {
  const { x, y } = spot(index);
  return outline(x + 1, y + 1, CELL - 2, CELL - 2, "ink", { "stroke-width": 1.5, "stroke-dasharray": "4 2" });
}

/**
 * C: a bar on top of the elements that take the same number of A, and one below those of B.
 * @param {number[]} one
 * @param {number[]} two
 * @param {number[]} shape
 * @param {number[]} index
 */
function result(one, two, shape, index) {
  const parts = [heading("C", shape)];
  for (let at = 0; at < elements(shape); at += 1) {
    const here = indexAt(shape, at);
    const { x, y } = spot(here);
    const [sameA, sameB] = [one, two].map((own) => place(own, source(own, here)) === place(own, source(own, index)));
    const [a, b] = [one, two].map((own) => source(own, here).join(", "));
    const title = `C[${here.join(", ")}] = A[${a}] + B[${b}]`;
    parts.push(box(x + 1, y + 1, CELL - 2, CELL - 2, "pale", { stroke: "#8a8a8a", "stroke-width": 0.8, ...sets({ element: at }) }, title));
    if (sameA) parts.push(box(x + 2, y + 2, CELL - 4, 3.5, "sky", { "pointer-events": "none" }));
    if (sameB) parts.push(box(x + 2, y + CELL - 5.5, CELL - 4, 3.5, "amber", { "pointer-events": "none" }));
    parts.push(label(x + CELL / 2, y + CELL / 2, at, INSIDE));
  }
  const { x, y } = spot(index);
  return parts.join("") + outline(x + 1, y + 1, CELL - 2, CELL - 2, "ink", { "stroke-width": 2.5 });
}

/** @param {{axis: number, sizes: number[]}} misfit */
function mismatch({ axis, sizes }) {
  const [a, b] = sizes;
  return [
    label(6, 14, "C", { "font-size": 14, "font-weight": "bold" }),
    label(LEFT, 14, `axis ${axis}: ${a} and ${b} do not fit`, { fill: "orange", "font-size": 13 }),
  ].join("");
}

/**
 * Bytes that are read: by each element for itself, and each number once.
 * @param {number[]} one
 * @param {number[]} two
 */
function traffic(one, two) {
  const { loaded, once } = broadcastBytes(one, two, BYTES);
  const bar = (/** @type {number} */ y, /** @type {number} */ bytes, /** @type {string} */ what) => {
    const wide = (110 * bytes) / loaded;
    return box(LEFT, y, wide, 12, "grey") + label(LEFT + wide + 5, y + 6.5, `${thousands(bytes)}: ${what}`, { "font-size": 11.5 });
  };
  return [
    label(6, 7, "bytes read", { "font-size": 10.5 }),
    bar(0, loaded, "each element loads both"),
    bar(18, once, "each number once"),
  ].join("");
}
