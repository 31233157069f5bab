/** A figure's state in the address of the page: page.html#explorer-banks?stride=2&padding=1. */

/** @typedef {import("./fields.js").State} State */

/**
 * Which figure an address names, and the values it asks for.
 * @param {string} hash
 * @returns {{id: string, wanted: Record<string, string>}}
 */
export function parsed(hash) {
  const [id, query = ""] = hash.replace(/^#/, "").split("?");
  /** @type {Record<string, string>} */
  const wanted = {};
  for (const part of query.split("&").filter(Boolean)) {
    const [key, value = ""] = part.split("=").map(unquoted);
    wanted[key] = value;
  }
  return { id, wanted };
}

/** @param {string} text */
function unquoted(text) {
  try {
    return decodeURIComponent(text);
  } catch (error) {
    return text; // a percent sign that stands for itself
  }
}

/**
 * @param {string} id of the figure
 * @param {State} state
 */
export function written(id, state) {
  const parts = Object.entries(state).map(([k, v]) => `${k}=${encodeURIComponent(v)}`);
  return `#${id}?${parts.join("&")}`;
}
