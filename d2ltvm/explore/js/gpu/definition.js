/** Elements of a result in double precision, worked out from the definition of the computation. */

/**
 * @typedef {number | any[]} Expression a number; ["i", k], the index k; ["at", tensor, ...indices];
 *   ["if", condition, a, b]; ["exp2", a], and so for sqrt, rsqrt and abs; or an operator and two expressions
 * @typedef {{name: string, shape: number[], reduce: number[], by?: string, value: Expression}} Stage
 *   the sum over `reduce`, or by "max" the largest
 * @typedef {{inputs: {name: string, shape: number[], positive?: boolean}[], stages: Stage[], terms: number, relative?: boolean}} Definition
 * @typedef {(index: number[]) => number} Element
 */

/**
 * Functions of an element's index: its value, and the sum of the magnitudes that are added up in it.
 * @param {Definition} definition
 * @param {ArrayLike<number>[]} inputs
 * @returns {{value: Element, magnitude: Element}}
 */
export function elements(definition, inputs) {
  return { value: built(definition, inputs, false), magnitude: built(definition, inputs, true) };
}

/**
 * @param {Definition} definition
 * @param {ArrayLike<number>[]} inputs
 * @param {boolean} absolute
 */
function built(definition, inputs, absolute) {
  /** @type {((index: number[]) => number)[]} */
  const tensors = definition.inputs.map(({ shape }, k) => (index) => {
    const value = inputs[k][flat(index, shape)];
    return absolute ? Math.abs(value) : value;
  });
  for (const { shape, reduce, by, value } of definition.stages) {
    const one = compiled(value, tensors, absolute);
    const all = by === "max" ? largest : summed;
    tensors.push(reduce.length ? kept((index) => all(one, index.slice(0, shape.length), reduce)) : one);
  }
  return tensors[tensors.length - 1];
}

/**
 * @param {number[]} index
 * @param {number[]} shape
 */
function flat(index, shape) {
  return index.reduce((place, i, k) => place * shape[k] + i, 0);
}

/**
 * The index of a place in memory.
 * @param {number} place
 * @param {number[]} shape
 */
export function indexOf(place, shape) {
  const index = shape.map(() => 0);
  for (let k = shape.length - 1; k >= 0; k -= 1) {
    index[k] = place % shape[k];
    place = Math.floor(place / shape[k]);
  }
  return index;
}

/**
 * @param {Element} one
 * @param {number[]} index
 * @param {number[]} reduce
 */
function summed(one, index, reduce) {
  const count = reduce.reduce((product, size) => product * size, 1);
  let sum = 0;
  for (let place = 0; place < count; place += 1) sum += one([...index, ...indexOf(place, reduce)]);
  return sum;
}

/**
 * The same, and each element is worked out once.
 * @param {Element} element
 * @returns {Element}
 */
function kept(element) {
  /** @type {Map<string, number>} */
  const found = new Map();
  return (index) => {
    const key = index.join();
    let value = found.get(key);
    if (value === undefined) found.set(key, (value = element(index)));
    return value;
  };
}

/**
 * @param {Element} one
 * @param {number[]} index
 * @param {number[]} reduce
 */
function largest(one, index, reduce) {
  const count = reduce.reduce((product, size) => product * size, 1);
  let found = -Infinity;
  for (let place = 0; place < count; place += 1) found = Math.max(found, one([...index, ...indexOf(place, reduce)]));
  return found;
}

/** @type {Record<string, (a: number, b: number) => number>} */
const OPERATORS = {
  "+": (a, b) => a + b,
  "-": (a, b) => a - b,
  "*": (a, b) => a * b,
  "/": (a, b) => a / b,
  "//": (a, b) => Math.floor(a / b),
  "%": (a, b) => a - b * Math.floor(a / b),
  min: Math.min,
  max: Math.max,
  "<": (a, b) => Number(a < b),
  "<=": (a, b) => Number(a <= b),
  ">": (a, b) => Number(a > b),
  ">=": (a, b) => Number(a >= b),
  "==": (a, b) => Number(a === b),
  "!=": (a, b) => Number(a !== b),
  and: (a, b) => Number(a && b),
  or: (a, b) => Number(a || b),
};

/** @type {Record<string, (a: number) => number>} */
const FUNCTIONS = { exp2: (a) => 2 ** a, sqrt: Math.sqrt, rsqrt: (a) => 1 / Math.sqrt(a), abs: Math.abs };

/**
 * @param {Expression} expression
 * @param {Element[]} tensors
 * @param {boolean} absolute whether magnitudes are added up: those of differences too
 * @returns {Element}
 */
function compiled(expression, tensors, absolute) {
  if (!Array.isArray(expression)) {
    const value = absolute ? Math.abs(expression) : expression;
    return () => value;
  }
  const [name, ...parts] = expression;
  if (name === "i") return (index) => index[parts[0]];
  if (name === "at") {
    const tensor = tensors[parts[0]];
    const places = parts.slice(1).map((/** @type {Expression} */ part) => compiled(part, tensors, false));
    return (index) => tensor(places.map((/** @type {Element} */ place) => place(index)));
  }
  if (name === "if") {
    const condition = compiled(parts[0], tensors, false);
    const [a, b] = parts.slice(1).map((/** @type {Expression} */ part) => compiled(part, tensors, absolute));
    return (index) => (condition(index) ? a(index) : b(index));
  }
  if (name in FUNCTIONS) {
    const given = compiled(parts[0], tensors, absolute);
    return (index) => FUNCTIONS[name](given(index));
  }
  const operator = OPERATORS[absolute && name === "-" ? "+" : name];
  const [a, b] = parts.map((/** @type {Expression} */ part) => compiled(part, tensors, absolute));
  return (index) => operator(a(index), b(index));
}
