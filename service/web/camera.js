// A picture from the camera; the button is there only where the browser gives access.

import { find } from "./dom.js";

export function takePictures(add, tell) {
  if (!navigator.mediaDevices?.getUserMedia) return;
  const dialog = find("camera-dialog");
  const video = find("video");
  const button = find("camera");
  button.hidden = false;
  button.addEventListener("click", () => open(dialog, video, tell));
  find("camera-close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => stop(video));
  find("shoot").addEventListener("click", async () => {
    const blob = await shoot(video);
    dialog.close();
    add([{ blob, name: "camera.jpg", path: "camera.jpg" }]);
  });
}

async function open(dialog, video, tell) {
  try {
    video.srcObject = await navigator.mediaDevices.getUserMedia({
      video: { facingMode: "environment", width: { ideal: 1280 } },
    });
    find("shoot").disabled = true;
    video.addEventListener("loadeddata", () => (find("shoot").disabled = false), { once: true });
    dialog.showModal();
  } catch (error) {
    const denied = error.name === "NotAllowedError";
    tell(
      denied
        ? "The browser has no permission for the camera. Allow it, or choose a file."
        : "No camera was found. Choose a file instead.",
    );
  }
}

function shoot(video) {
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  canvas.getContext("2d").drawImage(video, 0, 0);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.92));
}

function stop(video) {
  for (const track of video.srcObject?.getTracks() ?? []) track.stop();
  video.srcObject = null;
}
