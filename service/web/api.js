// The calls of the service. The key is held here, in memory, and nowhere else.

import { failureOf, unreachable } from "./errors.js";
import { readNpy } from "./npy.js";

// The service looks at the bytes; any image type says that it is one.
const IMAGE = { "Content-Type": "image/png" };

let key = "";

export function setKey(value) {
  key = value;
}

export const hasKey = () => key !== "";

/** Addresses are relative, so that the page works behind a proxy that adds a prefix. */
export function address(path, query = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null) url.searchParams.set(name, value);
  }
  return url;
}

const chosen = (model) => (model ? { model: model.name, version: model.version } : {});

export async function classify(blob, model) {
  const start = performance.now();
  const query = { ...chosen(model), explain: true };
  const response = await post("v1/classify", query, blob);
  const answer = await response.json();
  const stages = readTiming(response.headers.get("Server-Timing") ?? "");
  return { answer, stages, elapsed: performance.now() - start };
}

export async function explain(blob, model, label, against) {
  const response = await post("v1/explain", { ...chosen(model), label, against }, blob);
  return response.json();
}

export async function codes(blob, model) {
  const response = await post("v1/codes", chosen(model), blob);
  return response.json();
}

export async function dictionary(model) {
  const path = `v1/models/${encodeURIComponent(model.name)}/versions/${model.version}/dictionary`;
  return readNpy(await (await request(path)).arrayBuffer());
}

export async function models() {
  return (await (await request("v1/models")).json()).models;
}

export const ready = async () => (await request("readyz")).json();

export const metrics = async () => (await request("metrics")).text();

export async function example(name) {
  return (await request(`web/examples/${name}.png`)).blob();
}

const post = (path, query, body) => request(path, { query, method: "POST", headers: IMAGE, body });

async function request(path, { query = {}, headers = {}, ...options } = {}) {
  const authorization = key ? { Authorization: `Bearer ${key}` } : {};
  const all = { ...options, headers: { ...headers, ...authorization }, cache: "no-cache" };
  let response;
  try {
    response = await fetch(address(path, query), all);
  } catch {
    throw unreachable();
  }
  if (!response.ok) throw await failureOf(response);
  return response;
}

/** `Server-Timing` as a list of `[stage, milliseconds]`. */
export function readTiming(header) {
  return header
    .split(",")
    .map((item) => item.trim().match(/^([\w-]+);dur=([\d.]+)/))
    .filter(Boolean)
    .map(([, stage, duration]) => [stage, Number(duration)]);
}
