// The images of this visit: each is classified by itself, four at a time, and has its own
// answer or failure. They are shown as a list of thumbnails once there are several.

import { classify } from "./api.js";
import { find, make, percent, words } from "./dom.js";
import { failureFrom, tooLarge } from "./errors.js";

const AT_A_TIME = 4;

export class Gallery {
  /** `changed(image)` is called when the current image is another one, or has changed. */
  constructor(changed) {
    this.images = [];
    this.current = null;
    this.model = null;
    this.changed = changed;
    this.waiting = [];
    this.busy = 0;
    find("clear").addEventListener("click", () => this.clear());
  }

  add(found) {
    const images = found.map((item) => newImage(item));
    this.images.push(...images);
    find("thumbnails").append(...images.map((image) => this.thumbnail(image)));
    if (images.length) this.show(images[0]);
    images.forEach((image) => this.classify(image));
  }

  show(image) {
    this.current = image;
    find("gallery").hidden = this.images.length < 2;
    this.images.forEach((each) => this.draw(each));
    this.changed(image);
  }

  clear() {
    for (const image of this.images) URL.revokeObjectURL(image.url);
    this.images = [];
    this.waiting = [];
    find("thumbnails").replaceChildren();
    this.show(null);
  }

  /** Classify everything, again if need be; images wait until the first model is known. */
  use(model) {
    this.model = model;
    this.images.forEach((image) => this.classify(image));
  }

  retry(wanted) {
    this.images.filter((image) => image.failure && wanted(image)).forEach((image) => this.classify(image));
  }

  classify(image) {
    Object.assign(image, { state: "waiting", failure: null, answer: null, maps: new Map(), codes: null });
    if (!this.waiting.includes(image)) this.waiting.push(image);
    this.redraw(image);
    this.next();
  }

  async next() {
    if (!this.model || this.busy >= AT_A_TIME || !this.waiting.length) return;
    const image = this.waiting.shift();
    this.busy += 1;
    const model = this.model;
    try {
      const result = await this.ask(image, model);
      // Meanwhile another model may have been chosen, and asked for in its turn.
      if (model === this.model) accept(image, result);
    } catch (error) {
      if (model === this.model) Object.assign(image, { state: "failed", failure: failureFrom(error) });
    }
    this.busy -= 1;
    this.redraw(image);
    this.next();
  }

  async ask(image, model) {
    const most = model.limits.max_body_bytes;
    if (image.blob.size > most) throw tooLarge(image.blob.size, most);
    return classify(image.blob, model);
  }

  redraw(image) {
    this.draw(image);
    if (image === this.current) this.changed(image);
  }

  /** What changes of a thumbnail; its picture stays, which may have taken long to decode. */
  draw(image) {
    image.button.dataset.state = image.state;
    image.button.setAttribute("aria-current", String(image === this.current));
    image.caption.textContent = caption(image);
  }

  thumbnail(image) {
    const picture = make("img", { src: image.url, alt: "", decoding: "async" });
    picture.addEventListener("error", () => (picture.hidden = true));
    image.caption = make("span", { className: "thumbnail-label" });
    image.button = make(
      "button",
      { type: "button", className: "thumbnail", title: image.name },
      make("span", { className: "thumbnail-picture" }, picture),
      make("span", { className: "thumbnail-name" }, image.name),
      image.caption,
    );
    image.button.addEventListener("click", () => this.show(image));
    return make("li", {}, image.button);
  }
}

function newImage({ blob, name, path }) {
  return { blob, name, path, url: URL.createObjectURL(blob), state: "waiting" };
}

function accept(image, { answer, stages, elapsed }) {
  const [best] = answer.predictions;
  image.maps.set(mapKey(best.label, null), answer.explanation);
  Object.assign(image, { state: "done", answer, stages, elapsed, shown: { label: best.label, against: null } });
}

/** Under which key the map of a label, alone or against another one, is kept. */
export const mapKey = (label, against) => JSON.stringify([label, against]);

function caption(image) {
  if (image.state === "failed") return image.failure.title;
  if (image.state !== "done") return "…";
  if (!image.answer.known) return "like none of the classes";
  const [best] = image.answer.predictions;
  return `${words(best.label)}, ${percent(best.probability)}`;
}
