// Finding and making elements, in the few ways that this page needs.

export const find = (id) => document.getElementById(id);

/** An element; properties that contain a dash, and `role`, become attributes. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Replace the children of an element; whoever had the focus by `data-focus` keeps it. */
export function replace(element, ...children) {
  const focused = element.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  element.replaceChildren(...children);
  if (focused !== undefined) element.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
}

/** A label as a person writes it. */
export const words = (label) => label.replaceAll("_", " ");

export function percent(share) {
  if (share < 0.0005) return "< 0.1 %";
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
}

export const milliseconds = (value) => `${value.toFixed(value < 10 ? 1 : 0)} ms`;

/** Tell it to whoever listens to a screen reader. */
export function announce(text) {
  find("announcement").textContent = text;
}
