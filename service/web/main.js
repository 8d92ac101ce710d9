// Puts the page together: what comes in, what is shown of it, and the service around it.

import { hasKey, models, setKey } from "./api.js";
import { takePictures } from "./camera.js";
import { showCard } from "./card.js";
import { showCommands } from "./commands.js";
import { find, make, replace } from "./dom.js";
import { failureFrom } from "./errors.js";
import { Gallery } from "./gallery.js";
import { takeImages } from "./intake.js";
import { Result } from "./result.js";
import { showState, watchState } from "./state.js";

let cards = [];

const result = new Result({
  shown: (image) => showCommands(image, gallery.model, isDefault()),
  fail,
  retry: (image) => gallery.retry((other) => other === image),
});

const gallery = new Gallery((image) => {
  result.show(image, gallery.model);
  showCommands(image, gallery.model, isDefault());
  if (image?.failure) noteFailure(image.failure);
  if (image?.state === "done" || image?.state === "failed") showState();
});

function isDefault() {
  return gallery.model?.default ?? true;
}

function add(images) {
  tell(null);
  gallery.add(images);
}

/** What is not about one image is told above all of them. */
function fail(error) {
  const failure = failureFrom(error);
  noteFailure(failure);
  tell(`${failure.title}. ${failure.message}`);
}

function tell(text) {
  find("message").hidden = text === null;
  replace(find("message"), ...(text === null ? [] : [make("p", {}, text)]));
}

function noteFailure({ status }) {
  if (status !== 401) return;
  find("key-section").hidden = false;
  find("docs").hidden = true; // a link carries no key
  find("key").focus();
}

async function loadModels() {
  try {
    cards = await models();
  } catch (failure) {
    if (failure.status === 401 && !hasKey()) noteFailure(failure);
    else fail(failure);
    return;
  }
  tell(null);
  showModels();
}

function showModels() {
  const name = ({ name, version }) => `${name}, version ${version}`;
  const options = cards.map((card, i) => make("option", { value: String(i) }, name(card)));
  replace(find("model"), ...options);
  find("model-field").hidden = cards.length < 2;
  const before = cards.findIndex((card) => card.digest === gallery.model?.digest);
  const place = Math.max(0, before >= 0 ? before : cards.findIndex((card) => card.default));
  find("model").value = String(place);
  useModel(cards[place]);
}

function useModel(card) {
  showCard(card);
  gallery.use(card);
  showCommands(gallery.current, card, card.default);
}

function setUpKey() {
  find("key-toggle").addEventListener("click", () => {
    find("key-section").hidden = false;
    find("key").focus();
  });
  find("key-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    setKey(find("key").value.trim());
    tell(null);
    await loadModels();
    if (gallery.model) find("key-section").hidden = true;
  });
}

find("model").addEventListener("change", (event) => useModel(cards[Number(event.target.value)]));
takeImages(add, tell, fail);
takePictures(add, tell);
setUpKey();
showCommands(null, null, true);
watchState(() => !gallery.model && find("key-section").hidden && loadModels());
