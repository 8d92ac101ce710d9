// The model's card: labels, accuracy, data, licence, limits, as its bundle tells them.

import { find, make, percent, words } from "./dom.js";

export function showCard(model) {
  const told = model.provenance.card ?? {};
  const rows = [
    ["Name", `${model.name}, version ${model.version}`],
    ["Accuracy", accuracy(model.quality)],
    ["Data", told.data ?? model.provenance.dataset],
    ["Attribution", told.attribution],
    ["Licence", told.licence],
    ["Use", told.use],
    ["Limits", told.limits],
    ["Other images", otherImages(model.configuration)],
    ["Per request", limits(model.limits)],
    ["Digest", make("code", {}, model.digest.slice(0, 16))],
  ];
  const known = rows.filter(([, value]) => value);
  const list = known.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);
  find("card").replaceChildren(make("dl", { className: "card" }, ...list), labels(model.labels));
}

function accuracy(quality) {
  const test = quality.test ?? quality.folds ?? quality;
  if (test.mean_class_accuracy === undefined) return null;
  const images = test.n_test ? ` on ${test.n_test} held-out images` : "";
  const where = quality.test || !quality.folds ? images : " on folds of the training images";
  return `${percent(test.mean_class_accuracy)} mean per class${where}`;
}

function otherImages({ known_threshold: threshold }) {
  if (threshold === null) return "count as known: the model has no threshold that tells them apart";
  return `count as unknown: those of one colour, or whose best score is below ${threshold.toFixed(2)}`;
}

function limits({ max_body_bytes: bytes, max_image_pixels: pixels }) {
  return `up to ${(bytes / 1e6).toFixed(0)} MB and ${(pixels / 1e6).toFixed(0)} million pixels`;
}

function labels(all) {
  const items = all.map((label) => make("li", {}, words(label)));
  return make(
    "details",
    {},
    make("summary", {}, `${all.length} labels`),
    make("ul", { className: "label-list" }, ...items),
  );
}
