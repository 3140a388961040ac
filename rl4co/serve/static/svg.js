// Small helpers for elements, shared by all drawings.

/** An SVG element with attributes and children. */
export function svg(tag, attributes = {}, children = []) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** An HTML element; attributes that are functions are listeners, `class` and `data-*` work. */
export function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Hues of routes, jobs and facilities. Amber is left out: it shows probabilities.
const HUES = [262, 165, 350, 215, 305, 130, 22, 190, 328, 240, 148, 5, 283];

/** The style of the route, job or facility with this number. */
export const hue = (number) => `--hue:${HUES[number % HUES.length]}`;

/** Icons as paths in a square of 24. */
const ICONS = {
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M7 5.5h3.5v13H7zM13.5 5.5H17v13h-3.5z",
  back: "M15.5 6v12L7.5 12z",
  forward: "M8.5 6v12l8-6z",
  start: "M6 6h2.2v12H6zM18.5 6v12l-9-6z",
  end: "M15.8 6H18v12h-2.2zM5.5 6v12l9-6z",
  go: "M5 11h9.2l-3.6-3.6L12 6l6 6-6 6-1.4-1.4 3.6-3.6H5z",
  forbid: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zm0 2a6 6 0 0 1 3.7 1.3L7.3 15.7A6 6 0 0 1 12 6zm0 12a6 6 0 0 1-3.7-1.3l8.4-8.4A6 6 0 0 1 12 18z",
};

export const icon = (name) =>
  svg("svg", { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" }, [
    svg("path", { d: ICONS[name] }),
  ]);
