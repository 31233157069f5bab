/** Pictures as text, in the colours of the book's figures. */
import { element, escaped } from "./markup.js";

/**
 * The book's colours, as in `d2ltvm.figures`: Okabe and Ito, "Color Universal Design", 2008. A style
 * sheet gives each a second value for dark pages, by the class `d2l-NAME`. Every shape that has a
 * meaning by its colour also has it by its text or its pattern.
 */
export const COLOURS = {
  blue: "#0072B2",
  orange: "#D55E00",
  green: "#009E73",
  pink: "#CC79A7",
  sky: "#56B4E9",
  amber: "#E69F00",
  black: "#000000", // on a colour, in dark pages too
  ink: "#222222",
  grey: "#8a8a8a",
  line: "#c4c4c4",
  pale: "#f0f0f0",
  paper: "#ffffff",
};

/** @typedef {keyof typeof COLOURS} Colour */
/** @typedef {import("./markup.js").Attributes} Attributes */

/**
 * A whole picture, as wide as its place and in proportion. At 360 units across, text of 10.5 units
 * can be read on a phone, and a wide page shows it larger, up to 1.7 times.
 * @param {number} width in units of its own
 * @param {number} height
 * @param {string} label what a reader who cannot see it is told
 * @param {...string} children
 */
export function picture(width, height, label, ...children) {
  return element(
    "svg",
    {
      xmlns: "http://www.w3.org/2000/svg",
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": label,
      "font-family": "system-ui, sans-serif",
      "font-size": 12,
      style: `width: 100%; max-width: ${Math.round(1.7 * width)}px; height: auto`,
    },
    ...children,
  );
}

/**
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {Colour} fill
 * @param {Attributes} [more]
 * @param {string} [title] shown when pointed at
 */
export function box(x, y, width, height, fill, more = {}, title = "") {
  const inside = title ? [element("title", {}, escaped(title))] : [];
  const place = { x, y, width, height, fill: COLOURS[fill] };
  return element("rect", { class: `d2l-${fill}`, ...place, ...more }, ...inside);
}

/**
 * Text. `anchor` says which part of it stands at x; y is its middle.
 * @param {number} x
 * @param {number} y
 * @param {string | number} text
 * @param {Attributes & {fill?: Colour, anchor?: string}} [more]
 */
export function label(x, y, text, more = {}) {
  const { fill = "ink", anchor = "start", ...others } = more;
  const style = { "text-anchor": anchor, "dominant-baseline": "central" };
  const place = { class: `d2l-${fill}`, x, y, fill: COLOURS[fill], ...style, ...others };
  return element("text", place, escaped(text));
}

/**
 * A straight line.
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 * @param {Colour} stroke
 * @param {Attributes} [more]
 */
export function line(x1, y1, x2, y2, stroke, more = {}) {
  const place = { class: `d2l-stroke-${stroke}`, x1, y1, x2, y2, stroke: COLOURS[stroke] };
  return element("line", { ...place, ...more });
}

/**
 * Parts of a picture that belong together, moved by (x, y).
 * @param {number} x
 * @param {number} y
 * @param {...string} children
 */
export function group(x, y, ...children) {
  return element("g", { transform: `translate(${x} ${y})` }, ...children);
}

/**
 * The outline of a rectangle, in front of what it encloses; the pointer goes through it.
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {Colour} stroke
 * @param {Attributes} [more]
 */
export function outline(x, y, width, height, stroke, more = {}) {
  const style = { fill: "none", stroke: COLOURS[stroke], "stroke-width": 2, "pointer-events": "none" };
  return element("rect", { class: `d2l-stroke-${stroke}`, x, y, width, height, ...style, ...more });
}
