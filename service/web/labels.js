// The ranked labels with their bars; choosing one shows its heat map.

import { find, make, percent, replace, words } from "./dom.js";

/** `choose(label, against)` is called when somebody wants another map. */
export function showLabels(image, all, choose) {
  const { predictions } = image.answer;
  replace(find("labels"), ...predictions.map((item, i) => row(item, i, image.shown, choose)));
  showWhyNot(image, choose);
  showOthers(image, all, choose);
}

function row({ label, probability }, place, shown, choose) {
  const fill = make("span", { className: "fill" });
  fill.style.width = `${Math.max(0.5, 100 * probability)}%`;
  const pressed = shown.label === label && shown.against === null;
  const button = make(
    "button",
    { type: "button", className: "label", "aria-pressed": String(pressed), "data-focus": label },
    make("span", { className: "label-name" }, words(label)),
    make("span", { className: "label-share" }, percent(probability)),
    make("span", { className: "track", "aria-hidden": "true" }, fill),
  );
  button.addEventListener("click", () => choose(label, null));
  return make("li", { className: place === 0 ? "best" : "" }, button);
}

/** The best label against the second, or against the one whose map is shown. */
function showWhyNot({ answer, shown }, choose) {
  const [best, second] = answer.predictions.map((item) => item.label);
  const button = find("why-not");
  const rival = shown.label !== best ? shown.label : (shown.against ?? second);
  button.hidden = rival === undefined;
  if (button.hidden) return;
  button.textContent = `Why not ${words(rival)}?`;
  button.setAttribute("aria-pressed", String(shown.against === rival));
  button.onclick = () => choose(best, shown.against === rival ? null : rival);
}

function showOthers({ shown }, all, choose) {
  const select = find("other");
  const options = all.map((label) => make("option", { value: label }, words(label)));
  select.replaceChildren(...options);
  select.value = shown.label;
  select.onchange = () => choose(select.value, null);
  find("other-field").hidden = all.length < 2;
}

/** What the colours mean. */
export function legend({ label, against }) {
  const whom = against ? `${words(label)} rather than ${words(against)}` : words(label);
  const other = against ? `for ${words(against)}` : "against it";
  return [
    make("span", { className: "swatch for", "aria-hidden": "true" }),
    `Red places speak for ${whom}, `,
    make("span", { className: "swatch against", "aria-hidden": "true" }),
    `blue ones ${other}.`,
  ];
}

const VIEWS = { "fast-sift": "gradients", "lazebnik-sift": "gradients", "contour-sift": "contours", colour: "colours" };

/** How the score adds up: the blocks of the pooled vector, and the bias. */
export function scoreParts({ score, bias, blocks }) {
  const name = ({ kind, descriptor }) => `${kind} of ${VIEWS[descriptor] ?? descriptor}`;
  const parts = [...blocks.map((block) => [name(block), block.contribution]), ["bias", bias]];
  const items = parts.map(([part, value]) =>
    make("li", {}, make("span", {}, part), make("span", { className: "number" }, signed(value))),
  );
  const title = make("summary", {}, "Score ", make("span", { className: "number" }, signed(score)));
  return make("details", {}, title, make("ul", {}, ...items));
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
