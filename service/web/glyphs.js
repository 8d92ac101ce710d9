// Atoms, and sums of atoms, as glyphs: four by four cells, in each a line for every one of the
// eight directions of the gradient, as long as the entry is large. SVG takes the page's colours.

const CELLS = 4;
const DIRECTIONS = 8;
const CELL = 24;
const NAMESPACE = "http://www.w3.org/2000/svg";

/** An SVG of 128 numbers: positive ones solid, negative ones dashed. */
export function glyph(numbers, name) {
  const svg = element("svg", { viewBox: `0 0 ${CELLS * CELL} ${CELLS * CELL}`, class: "glyph", role: "img" });
  svg.setAttribute("aria-label", name);
  svg.append(element("path", { d: frame(), class: "glyph-frame" }));
  svg.append(element("path", { d: lines(numbers, 1), class: "glyph-positive" }));
  svg.append(element("path", { d: lines(numbers, -1), class: "glyph-negative" }));
  return svg;
}

function element(tag, attributes) {
  const made = document.createElementNS(NAMESPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function frame() {
  const side = CELLS * CELL;
  const places = Array.from({ length: CELLS - 1 }, (_, i) => (i + 1) * CELL);
  return places.map((place) => `M${place} 0V${side}M0 ${place}H${side}`).join("");
}

/** The lines of one sign; the longest of both signs reaches the edge of its cell. */
function lines(numbers, sign) {
  const most = numbers.reduce((largest, value) => Math.max(largest, Math.abs(value)), 1e-9);
  let path = "";
  numbers.forEach((value, i) => {
    const length = (sign * value * CELL) / 2 / most;
    if (length < 0.7) return;
    const cell = Math.floor(i / DIRECTIONS);
    const angle = ((i % DIRECTIONS) * 2 * Math.PI) / DIRECTIONS;
    const x = ((cell % CELLS) + 0.5) * CELL;
    const y = (Math.floor(cell / CELLS) + 0.5) * CELL;
    path += `M${x} ${y}l${(length * Math.cos(angle)).toFixed(2)} ${(length * Math.sin(angle)).toFixed(2)}`;
  });
  return path;
}
