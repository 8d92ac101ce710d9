// The ways by which images come in: picked, dropped, pasted, or an example drawing.

import { example } from "./api.js";
import { find } from "./dom.js";

/** Calls `add` with a list of `{blob, name, path}`, `tell` with advice and `fail` with an error. */
export function takeImages(add, tell, fail) {
  const addFiles = (files) => add(Array.from(files, (file) => ({ blob: file, name: file.name, path: file.name })));
  takePicked(addFiles);
  takeDropped(addFiles, tell);
  takePasted(addFiles);
  takeExamples(add, fail);
}

function takePicked(addFiles) {
  const input = find("file");
  find("pick").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    addFiles(input.files);
    input.value = ""; // so that the same file can be picked again
  });
}

function takeDropped(addFiles, tell) {
  const cover = find("drop-cover");
  addEventListener("dragover", (event) => {
    event.preventDefault();
    event.dataTransfer.dropEffect = "copy";
    cover.hidden = !event.dataTransfer.types.includes("Files");
  });
  addEventListener("dragleave", (event) => {
    // Only when the pointer leaves the window does it go nowhere.
    if (event.relatedTarget === null) cover.hidden = true;
  });
  addEventListener("drop", (event) => {
    event.preventDefault();
    cover.hidden = true;
    if (event.dataTransfer.files.length) addFiles(event.dataTransfer.files);
    else tell("No file was dropped. Save the image first, then drop the file, or copy and paste it.");
  });
}

function takePasted(addFiles) {
  addEventListener("paste", (event) => {
    const files = event.clipboardData?.files ?? [];
    if (!files.length) return; // text for the field of the key
    event.preventDefault();
    addFiles(files);
  });
}

function takeExamples(add, fail) {
  for (const button of find("examples").querySelectorAll("button")) {
    const name = button.dataset.example;
    button.addEventListener("click", async () => {
      try {
        add([{ blob: await example(name), name: `${name}.png`, path: `service/examples/${name}.png` }]);
      } catch (error) {
        fail(error);
      }
    });
  }
}
