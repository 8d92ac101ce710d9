"""The page as a whole: one HTML file that asks nobody for anything and runs nothing."""

import base64
import hashlib
import os
from functools import cache
from pathlib import Path

from service.engine import Engine, Manifest
from trainer.data.files import replacing
from trainer.errors import ConfigError
from trainer.page.findings import Findings
from trainer.page.markup import Markup, name, tag
from trainer.page.model_sections import model_sections
from trainer.page.quality_sections import quality_sections
from trainer.repeat import RepeatCommand

__all__ = ["REPORT_FILE", "check_report_target", "render", "write_report"]

REPORT_FILE = "report.html"
"""What a report is called in the folder of a version; nothing but people reads it there."""

_STYLE = Path(__file__).with_name("style.css")

_LINKS = {
    "accuracy": "Accuracy",
    "confusion": "Confusion matrix",
    "classes": "Classes",
    "mistakes": "Worst mistakes",
    "labels": "Doubtful labels",
    "probabilities": "Probabilities",
    "learned": "What was learned",
    "stages": "Time and memory",
    "repeat": "To repeat it",
    "provenance": "Provenance",
}


def check_report_target(path: Path) -> None:
    """Reject a file that cannot be written, before images are read."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder, expected a file or a new name for the report")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise ConfigError(f"{path} cannot be written: {path.parent} is not a writable folder")


def write_report(
    path: Path, engine: Engine, manifest: Manifest, findings: Findings, command: RepeatCommand
) -> None:
    """Write the page to `path`, whole or not at all."""
    data = render(engine, manifest, findings, command).encode()
    try:
        with replacing(path) as file:
            file.write(data)
        path.chmod(0o644)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def render(engine: Engine, manifest: Manifest, findings: Findings, command: RepeatCommand) -> str:
    """The page as text; an engine that is not published yet has another manifest."""
    learned = model_sections(engine, manifest, findings.leaf_use, command)
    sections = [*quality_sections(manifest, findings), *learned]
    body = tag("body", _header(manifest, sections), tag("main", *sections))
    return "<!doctype html>\n" + tag("html", _head(manifest), body, lang="en") + "\n"


def _head(manifest: Manifest) -> Markup:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{manifest.name} version {manifest.version}: report"),
        tag("style", Markup(_style())),
    )


@cache
def _style() -> str:
    return _STYLE.read_text("utf-8")


def _policy() -> str:
    """Pictures that are in the page, this one style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(_style().encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _header(manifest: Manifest, sections: list[Markup]) -> Markup:
    trained = manifest.provenance.get("n_train")
    images = "" if trained is None else f", {trained} training images"
    words = f"{len(manifest.labels)} classes{images}, {_moment(manifest.created)}"
    there = [
        key for key in _LINKS if any(part.startswith(f'<section id="{key}"') for part in sections)
    ]
    links = [tag("li", tag("a", _LINKS[key], href=f"#{key}")) for key in there]
    return tag(
        "header",
        tag("h1", name(manifest.name), f" version {manifest.version}"),
        tag("p", words, class_="muted"),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )


def _moment(created: str) -> str:
    """An ISO time as people write it."""
    return created.replace("T", " ").replace("+00:00", " UTC")
