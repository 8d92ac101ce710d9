// What is shown of one image: the image with its heat map or its codes, the labels, the time, or
// what went wrong. `show` may be called again and again as the image's answer comes in.

import { explain } from "./api.js";
import { CodeView } from "./codes.js";
import { announce, find, percent, replace, words } from "./dom.js";
import { mapKey } from "./gallery.js";
import { clearHeat, drawHeat } from "./heatmap.js";
import { legend, scoreParts, showLabels } from "./labels.js";
import { showTiming } from "./timing.js";

// The result is below what takes images, out of sight on a phone.
const NARROW = "(max-width: 820px)";

// What makes the image something that can be pointed at without a mouse.
const POINTED = {
  tabindex: "0",
  role: "application",
  "aria-label": "Image: arrow keys move the point",
  "aria-describedby": "codes-hint",
};

export class Result {
  /** `shown(image)` is called when another map is chosen, `fail(failure)` when something failed. */
  constructor({ shown, fail, retry }) {
    this.image = null;
    this.model = null;
    this.mode = "why";
    this.shown = shown;
    this.fail = fail;
    this.codeView = new CodeView(find("stage"), find("patch"));
    find("show-why").addEventListener("click", () => this.setMode("why"));
    find("show-codes").addEventListener("click", () => this.setMode("codes"));
    find("retry").addEventListener("click", () => retry(this.image));
    this.setUpSlider();
    this.setUpPicture();
  }

  setUpSlider() {
    const slider = find("strength");
    slider.addEventListener("input", () => this.applyStrength());
  }

  /** The stronger the map, the paler the image: on a red sign red would not be seen. */
  applyStrength() {
    const strength = find("strength").value / 100;
    const pale = this.mode === "why" && this.image?.state === "done" ? Math.min(1, 2 * strength) : 0;
    find("heat").style.opacity = String(strength);
    find("picture").style.filter = `grayscale(${pale}) contrast(${1 - 0.5 * pale}) brightness(${1 + 0.25 * pale})`;
  }

  setUpPicture() {
    const picture = find("picture");
    picture.addEventListener("load", () => {
      setRatio(picture.naturalWidth, picture.naturalHeight);
      find("no-picture").hidden = true;
      find("result").classList.remove("without-picture");
      picture.hidden = false;
    });
    picture.addEventListener("error", () => {
      picture.hidden = true;
      find("result").classList.add("without-picture");
      find("no-picture").hidden = this.image?.state !== "done";
    });
  }

  show(image, model) {
    const another = image !== this.image;
    this.image = image;
    this.model = model;
    find("result").hidden = image === null;
    document.body.classList.toggle("has-image", image !== null);
    if (image === null) return;
    if (another) this.showPicture();
    if (another && matchMedia(NARROW).matches) find("result").scrollIntoView();
    find("image-name").textContent = image.name;
    find("labels-panel").hidden = image.state === "failed";
    find("timing-panel").hidden = image.state !== "done";
    for (const id of ["tabs", "why-controls", "codes-panel", "codes-hint"]) find(id).hidden = image.state !== "done";
    find("failure").hidden = image.state !== "failed";
    find("labels").setAttribute("aria-busy", String(image.state !== "failed" && image.state !== "done"));
    find("result").dataset.state = image.state;
    if (image.state === "done") this.showAnswer();
    else if (image.state === "failed") this.showFailure();
    else this.showWaiting();
  }

  showPicture() {
    const picture = find("picture");
    picture.hidden = false;
    picture.src = this.image.url;
    picture.alt = `Your image ${this.image.name}`;
    find("no-picture").hidden = true;
  }

  showWaiting() {
    this.applyStrength();
    clearHeat(find("heat"));
    this.codeView.close();
    find("unknown").hidden = true;
    replace(find("labels"));
    replace(find("score"));
    find("why-not").hidden = true;
    find("other-field").hidden = true;
  }

  showFailure() {
    this.showWaiting();
    const { title, message } = this.image.failure;
    find("failure-title").textContent = title;
    find("failure-text").textContent = message;
    find("retry").hidden = !this.image.failure.passing;
    announce(`${this.image.name}: ${title}. ${message}`);
  }

  showAnswer() {
    const { known, predictions } = this.image.answer;
    const [best] = predictions;
    const doubt = known ? "" : "like none of the classes, most of all like ";
    announce(`${this.image.name}: ${doubt}${words(best.label)}, ${percent(best.probability)}`);
    find("unknown").hidden = known;
    find("unknown").textContent =
      `This image looks like none of the model's ${this.model.labels.length} classes. ` +
      "The labels below are those that it resembles most; the shares are among the classes alone.";
    if (find("picture").hidden) find("no-picture").hidden = false;
    showTiming(this.image.stages, this.image.elapsed);
    this.showMap();
    this.showMode();
  }

  /** Show the map of a label, alone or against another one; it is asked for once. */
  async choose(label, against) {
    const { image, model } = this;
    const key = mapKey(label, against);
    this.wanted = key;
    try {
      if (!image.maps.has(key)) image.maps.set(key, await explain(image.blob, model, label, against));
    } catch (failure) {
      this.fail(failure);
      return;
    }
    // Meanwhile another map, or another model, may have been asked for.
    if (this.wanted !== key || image.state !== "done" || !image.maps.has(key)) return;
    image.shown = { label, against };
    if (image !== this.image) return;
    this.showMap();
    announce(find("legend").textContent);
  }

  showMap() {
    const { image } = this;
    const { label, against } = image.shown;
    const explanation = image.maps.get(mapKey(label, against));
    showLabels(image, this.model.labels, (...wanted) => this.choose(...wanted));
    drawHeat(find("heat"), explanation);
    const rival = against ? ` against ${words(against)}` : "";
    find("heat").setAttribute("aria-label", `Heat map of ${words(label)}${rival}`);
    if (find("picture").hidden) setRatio(explanation.grid.width, explanation.grid.height);
    replace(find("legend"), ...legend(image.shown));
    replace(find("score"), scoreParts(explanation));
    this.shown(image);
  }

  setMode(mode) {
    if (mode === this.mode) return;
    this.mode = mode;
    if (this.image?.state === "done") this.showMode();
  }

  async showMode() {
    const codes = this.mode === "codes";
    find("show-why").setAttribute("aria-pressed", String(!codes));
    find("show-codes").setAttribute("aria-pressed", String(codes));
    find("why-controls").hidden = codes;
    find("heat").hidden = codes;
    this.applyStrength();
    find("codes-hint").hidden = !codes;
    find("codes-panel").hidden = !codes;
    find("labels-panel").hidden = find("timing-panel").hidden = codes;
    find("stage").classList.toggle("pointed", codes);
    this.setPointing(codes);
    this.codeView.close();
    if (codes) await this.openCodes();
  }

  async openCodes() {
    const { image } = this;
    try {
      const [strongest] = image.maps.get(mapKey(image.shown.label, image.shown.against)).atoms;
      await this.codeView.open(image, this.model, strongest);
    } catch (failure) {
      this.fail(failure);
    }
    // Meanwhile another image, or the heat map, may have been asked for.
    if (image !== this.image || this.mode !== "codes") this.codeView.close();
  }

  /** A stage that is pointed at can be reached by the keyboard, and keeps the arrow keys. */
  setPointing(codes) {
    const stage = find("stage");
    for (const [name, value] of Object.entries(POINTED)) {
      if (codes) stage.setAttribute(name, value);
      else stage.removeAttribute(name);
    }
  }
}

function setRatio(width, height) {
  find("stage").style.setProperty("--ratio", String(width / height));
}
