// The heat map: contributions of the cells as colours over the image, red for the label and blue
// against it, the stronger the less transparent.

const FOR = [214, 40, 40];
const AGAINST = [29, 88, 214];
// The strongest cells are drawn alike: one outlier would make all others invisible.
const FULL_SHARE = 0.98;
// The longer side of the drawing, in pixels; the browser scales it to the image.
const SIDE = 512;

/** Draw the cells of an explanation, row by row, over all of a canvas. */
export function drawHeat(canvas, { cells, grid }) {
  const small = colour(cells);
  const scale = SIDE / Math.max(grid.width, grid.height);
  canvas.width = Math.round(grid.width * scale);
  canvas.height = Math.round(grid.height * scale);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(small, 0, 0, canvas.width, canvas.height);
}

export function clearHeat(canvas) {
  canvas.width = canvas.height = 1;
}

/** One pixel a cell. */
function colour(cells) {
  const canvas = document.createElement("canvas");
  canvas.height = cells.length;
  canvas.width = cells[0].length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const full = strongest(cells.flat());
  cells.flat().forEach((value, i) => {
    const strength = Math.min(1, Math.abs(value) / full);
    image.data.set(value > 0 ? FOR : AGAINST, 4 * i);
    image.data[4 * i + 3] = Math.round(255 * strength);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

function strongest(values) {
  const sorted = values.map(Math.abs).sort((a, b) => a - b);
  return sorted[Math.floor(FULL_SHARE * (sorted.length - 1))] || sorted.at(-1) || 1;
}
