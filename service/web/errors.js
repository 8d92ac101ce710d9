// What went wrong, as a sentence, and what to do about it.

const ADVICE = {
  401: "Enter a key that this service knows.",
  404: "Reload the page: the models may have changed.",
  408: "The connection is slow; try a smaller image.",
  413: "Make the image smaller, or save it as JPEG.",
  415: "Save it as JPEG, PNG, WebP, GIF, BMP or TIFF.",
  422: "Try another image.",
  500: "Try again; the log of the service tells more.",
  503: "Wait a moment, then try again.",
  504: "Try again, or try a smaller image.",
};

const TITLES = {
  401: "No access",
  413: "The image is too large",
  415: "This is not an image",
  429: "The service is busy",
};

const PASSING = [0, 401, 408, 429, 500, 503, 504];

/** An answer that is none, or none at all: `title`, `message` (sentences) and `status`. */
export class Failure extends Error {
  constructor(status, title, message) {
    super(message);
    this.status = status;
    this.title = title;
  }

  /** Whether another try may end better. */
  get passing() {
    return PASSING.includes(this.status);
  }
}

export function unreachable() {
  return new Failure(
    0,
    "The service does not answer",
    "Is it running? Start it with “make serve”, or check the network, then try again.",
  );
}

/** What was thrown, if it is for people; anything else is a bug, which the console tells. */
export function failureFrom(error) {
  if (error instanceof Failure) return error;
  console.error(error);
  return new Failure(500, "Something went wrong", "The page failed. Reload it, then try again.");
}

export function tooLarge(bytes, most) {
  const size = (value) => `${(value / 1e6).toFixed(1)} MB`;
  return new Failure(413, TITLES[413], `It has ${size(bytes)}, at most ${size(most)} are read here. ${ADVICE[413]}`);
}

/** The failure that a response tells, by its problem document if it has one. */
export async function failureOf(response) {
  const problem = await response.json().catch(() => ({}));
  const status = response.status;
  // The advice below says when.
  const detail = (problem.detail ?? `the service answered ${status}`).replace(/; try again in .*$/, "");
  const title = TITLES[status] ?? problem.title ?? "Something went wrong";
  return new Failure(status, title, `${sentence(detail)} ${advice(response)}`.trim());
}

function advice(response) {
  if (response.status !== 429) return ADVICE[response.status] ?? "";
  const seconds = Number(response.headers.get("Retry-After")) || 1;
  return `Try again in ${seconds} ${seconds === 1 ? "second" : "seconds"}.`;
}

function sentence(text) {
  const ended = /[.!?]$/.test(text) ? text : `${text}.`;
  return ended[0].toUpperCase() + ended.slice(1);
}
