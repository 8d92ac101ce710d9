// The lines that do the same from a terminal and from Python. A key is never written into them.

import { address, hasKey } from "./api.js";
import { find, make } from "./dom.js";

export function showCommands(image, model, isDefault) {
  const path = image?.path ?? "photo.jpg";
  const query = isDefault || !model ? {} : { model: model.name, version: model.version };
  const shown = image?.shown;
  const rows = [
    ["curl", curl(path, "v1/classify", query)],
    ["Python", python(path, query)],
  ];
  if (shown) rows.push(["heat map", heatMap(path, { ...query, label: shown.label, against: shown.against })]);
  find("commands").replaceChildren(...rows.map(([name, text]) => line(name, text)));
}

function curl(path, call, query, options = "") {
  const key = hasKey() ? ' -H "Authorization: Bearer $LEAFCODE_KEY"' : "";
  return `curl${key}${options} --data-binary @${quoted(path)} ${quoted(address(call, query).href)}`;
}

const heatMap = (path, query) => curl(path, "v1/explain", query, " -H 'Accept: image/png' -o map.png");

function python(path, query) {
  const text = JSON.stringify;
  const base = text(address(".").href.replace(/\/$/, ""));
  const key = hasKey() ? ', os.environ["LEAFCODE_KEY"]' : "";
  const choice = query.model ? `, model=${text(query.model)}, version=${query.version}` : "";
  return [
    `${hasKey() ? "import os\n" : ""}from pathlib import Path`,
    "from service.client import Client",
    `print(Client(${base}${key}).classify(Path(${text(path)})${choice}))`,
  ].join("\n");
}

/** For a shell: in quotes, unless there is nothing to quote. */
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`);

function line(name, text) {
  const code = make("pre", { tabIndex: 0, role: "region", "aria-label": `${name} command` }, make("code", {}, text));
  const head = make("div", { className: "command-head" }, make("h3", {}, name));
  if (navigator.clipboard) head.append(copyButton(name, text));
  return make("div", { className: "command" }, head, code);
}

function copyButton(name, text) {
  const properties = { type: "button", className: "quiet", "aria-label": `Copy the ${name} command` };
  const button = make("button", properties, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed: select and copy";
    }
  });
  return button;
}
