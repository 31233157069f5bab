/** A button that copies what was measured, as JSON. */

/**
 * @param {any} value
 * @returns {HTMLElement}
 */
export function copies(value) {
  const text = JSON.stringify(value, null, 1);
  const place = document.createElement("div");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "d2l-copy";
  button.textContent = "Copy as JSON";
  place.append(button);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      place.replaceChildren(shownText(text)); // no right to the clipboard: then by hand
    }
  });
  return place;
}

/** @param {string} text */
function shownText(text) {
  const area = document.createElement("textarea");
  area.readOnly = true;
  area.rows = 8;
  area.setAttribute("aria-label", "The measurement as JSON");
  area.value = text;
  return area;
}
