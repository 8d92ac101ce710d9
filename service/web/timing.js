// Where the time of an answer went: the service's stages, by Server-Timing, and the way there.

import { find, make, milliseconds } from "./dom.js";

const WAY = "network and browser";

export function showTiming(stages, elapsed) {
  const total = stages.find(([stage]) => stage === "total")?.[1] ?? 0;
  const parts = stages.filter(([stage]) => stage !== "total");
  const known = parts.reduce((sum, [, duration]) => sum + duration, 0);
  if (total > known) parts.push(["front end", total - known]);
  if (elapsed > total) parts.push([WAY, elapsed - total]);
  find("total").textContent = `${milliseconds(elapsed)}, of which ${milliseconds(total)} in the service`;
  find("timing").replaceChildren(bar(parts), list(parts));
}

function bar(parts) {
  const made = make("div", { className: "bar", "aria-hidden": "true" });
  parts.forEach(([, duration], i) => {
    const part = make("span", { className: `stage-${i % 9}` });
    part.style.flexGrow = String(duration);
    made.append(part);
  });
  return made;
}

function list(parts) {
  const items = parts.map(([stage, duration], i) =>
    make(
      "li",
      {},
      make("span", { className: `swatch stage-${i % 9}`, "aria-hidden": "true" }),
      `${stage} `,
      make("span", { className: "muted" }, milliseconds(duration)),
    ),
  );
  return make("ul", { className: "stages" }, ...items);
}
