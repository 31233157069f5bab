/**
 * Markup as text. The same text is the first picture in the page, each later one, and the still
 * picture that Python stores in a notebook, so nothing here touches a document.
 */

/** @typedef {Record<string, string | number | boolean | undefined>} Attributes */

/**
 * Text that stands for itself between tags and in attributes.
 * @param {string | number | boolean} text
 */
export function escaped(text) {
  return String(text)
    .replace(/&/g, "&amp;")
    .replace(/</g, "&lt;")
    .replace(/>/g, "&gt;")
    .replace(/"/g, "&quot;")
    .replace(/'/g, "&#39;");
}

/**
 * An element. Attributes that are undefined or false are left out; `true` is one without a value.
 * @param {string} name
 * @param {Attributes} [attributes]
 * @param {...string} children markup; text goes through `escaped`
 */
export function element(name, attributes = {}, ...children) {
  const written = Object.entries(attributes)
    .filter(([, value]) => value !== undefined && value !== false)
    .map(([key, value]) => (value === true ? ` ${key}` : ` ${key}="${escaped(String(value))}"`));
  if (VOID.has(name)) return `<${name}${written.join("")}>`;
  return `<${name}${written.join("")}>${children.join("")}</${name}>`;
}

const VOID = new Set(["input", "br", "hr"]);

/**
 * What makes an element of a picture set values of the explorer when pressed, or dragged over.
 * @param {Record<string, string | number>} values
 */
export function sets(values) {
  return { "data-set": JSON.stringify(values), cursor: "pointer" };
}

/**
 * `count` with a noun that agrees with it, and thousands apart.
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export function counted(count, one, many = `${one}s`) {
  return `${thousands(count)} ${count === 1 ? one : many}`;
}

/**
 * An integer with a comma between thousands.
 * @param {number} value
 */
export function thousands(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * A number in `digits` significant digits, with thousands apart.
 * @param {number} value
 * @param {number} [digits]
 */
export function rounded(value, digits = 3) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
  const [whole, part] = Math.abs(value).toFixed(Math.min(places, 20)).split(".");
  return (value < 0 ? "−" : "") + thousands(Number(whole)) + (part ? `.${part}` : "");
}
