// The code view: which leaf the patch under the pointer went to, which atoms the leaf allows, and
// their values. The point moves with the pointer or with the arrow keys.

import { codes, dictionary } from "./api.js";
import { announce, find, make } from "./dom.js";
import { glyph } from "./glyphs.js";

const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
// With the Shift key.
const FAR = 8;

const dictionaries = new Map();

export class CodeView {
  constructor(stage, patch) {
    this.stage = stage;
    this.patch = patch;
    this.codes = null;
    stage.addEventListener("pointermove", (event) => this.pointAt(event));
    stage.addEventListener("pointerdown", (event) => this.pointAt(event));
    stage.addEventListener("keydown", (event) => this.move(event));
  }

  /** Show the codes of an image, first those of a patch; throws a failure if the service does. */
  async open(image, model, patch) {
    image.codes ??= codes(image.blob, model);
    const atoms = loadDictionary(model);
    try {
      [this.codes, this.dictionary] = await Promise.all([image.codes, atoms]);
    } catch (failure) {
      image.codes = null;
      throw failure;
    }
    const { rows, cols, left, top, step } = this.codes.grid;
    if (patch) this.show(Math.round((patch.left - left) / step), Math.round((patch.top - top) / step));
    else this.show(Math.floor(cols / 2), Math.floor(rows / 2));
  }

  close() {
    this.codes = null;
    this.patch.hidden = true;
  }

  pointAt(event) {
    if (!this.codes) return;
    const { step, left, top, side, width, height } = this.codes.grid;
    const box = this.stage.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * width;
    const y = ((event.clientY - box.top) / box.height) * height;
    this.show(Math.round((x - left - side / 2) / step), Math.round((y - top - side / 2) / step));
  }

  move(event) {
    const [across, down] = MOVES[event.key] ?? [0, 0];
    if (!this.codes || !(across || down)) return;
    event.preventDefault();
    const far = event.shiftKey ? FAR : 1;
    this.show(this.col + far * across, this.row + far * down);
    announce(`Column ${this.col}, row ${this.row}: ${find("leaf").textContent}`);
  }

  show(col, row) {
    const { rows, cols } = this.codes.grid;
    this.col = Math.min(Math.max(col, 0), cols - 1);
    this.row = Math.min(Math.max(row, 0), rows - 1);
    this.showPatch();
    this.showCode(this.row * cols + this.col);
  }

  showPatch() {
    const { step, left, top, side, width, height } = this.codes.grid;
    const share = (value, whole) => `${(100 * value) / whole}%`;
    Object.assign(this.patch.style, {
      left: share(left + this.col * step, width),
      top: share(top + this.row * step, height),
      width: share(side, width),
      height: share(side, height),
    });
    this.patch.hidden = false;
  }

  showCode(place) {
    const atoms = this.codes.atom_ids[place];
    const values = this.codes.values[place];
    const flat = values.every((value) => value === 0) ? ", a flat patch" : "";
    find("leaf").textContent = `leaf ${this.codes.leaf_ids[place]}${flat}`;
    const shown = atoms.map((atom, i) => atomFigure(this.dictionary.row(atom), atom, values[i]));
    shown.push(sumFigure(this.dictionary, atoms, values));
    find("atoms").replaceChildren(...shown);
  }
}

function loadDictionary(model) {
  if (!dictionaries.has(model.digest)) {
    const loading = dictionary(model);
    dictionaries.set(model.digest, loading);
    loading.catch(() => dictionaries.delete(model.digest));
  }
  return dictionaries.get(model.digest);
}

function atomFigure(numbers, atom, value) {
  const caption = make("figcaption", {}, make("strong", {}, value.toFixed(3)), ` atom ${atom}`);
  return make("figure", { className: "atom" }, glyph(numbers, `Atom ${atom}`), caption);
}

function sumFigure(atomsOfModel, atoms, values) {
  const sum = new Float32Array(atomsOfModel.cols);
  atoms.forEach((atom, i) => atomsOfModel.row(atom).forEach((number, j) => (sum[j] += values[i] * number)));
  const caption = make("figcaption", {}, make("strong", {}, "sum"), " of all");
  return make("figure", { className: "atom sum" }, glyph(sum, "Sum of the atoms"), caption);
}
