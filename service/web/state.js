// The state of the service in a corner: workers, queue, version. It is asked for while the page is
// seen, and after every answer.

import { metrics, ready } from "./api.js";
import { find } from "./dom.js";

const SECONDS = 15;
const ABSENT = { 0: "no answer", 401: "asks for a key" };

/** `answered` is called whenever the service has answered. */
export function watchState(answered) {
  const look = async () => {
    if (document.visibilityState === "visible" && (await showState())) answered();
  };
  setInterval(look, 1000 * SECONDS);
  document.addEventListener("visibilitychange", look);
  look();
}

/** Whether the service answered. */
export async function showState() {
  try {
    const { workers } = await ready();
    const numbers = readMetrics(await metrics().catch(() => ""));
    const inService = workers.filter((worker) => worker.ready).length;
    const parts = [`${inService} of ${workers.length} ${workers.length === 1 ? "worker" : "workers"} ready`];
    if (numbers.has("leafcode_queue_depth")) parts.push(`${numbers.get("leafcode_queue_depth")} waiting`);
    if (numbers.has("version")) parts.push(`version ${numbers.get("version")}`);
    tell("ready", parts.join(" · "));
    return true;
  } catch (failure) {
    tell(failure.status === 0 ? "away" : "busy", ABSENT[failure.status] ?? "not ready");
    find("state").title = failure.message;
    return failure.status !== 0;
  }
}

function tell(kind, text) {
  find("state").dataset.kind = kind;
  find("state").title = "";
  find("state-text").textContent = text;
}

/** The numbers without labels of a Prometheus page, and the service's version. */
export function readMetrics(page) {
  const numbers = new Map();
  for (const [, name, value] of page.matchAll(/^(leafcode_\w+) ([\d.e+]+)$/gm)) numbers.set(name, Number(value));
  const build = page.match(/^leafcode_build_info\{[^}]*version="([^"]+)"/m);
  if (build) numbers.set("version", build[1]);
  return numbers;
}
