"""The page as a whole: what a browser may load, what it shows, how large it gets."""

import base64
import hashlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine import Engine, Manifest
from tests.support import pictures
from tests.support.bundles import random_bundle
from tests.support.html_pages import Element, parse, references
from trainer.evaluate import evaluate_scores
from trainer.page.document import render, write_report
from trainer.page.elements import between, share
from trainer.page.examples import Doubts, Example, small_jpeg
from trainer.page.findings import Findings, JudgedPart
from trainer.page.leaf_use import LeafUse
from trainer.repeat import RepeatCommand

COMMAND = RepeatCommand("python -m trainer fit a --out b", "As it was typed.")
HOSTILE = (
    "<script>alert(1)</script>",
    "\"' onerror=alert(1) x='",
    "</style><img src=http://evil.example/x.png>",
    "photo\u202egpj.exe",
    "caf\udce9\x00\x1b[31m",
    "שלום",
)


@pytest.fixture(scope="module")
def fitted_page(trained_bundle: Path) -> Element:
    """The report that `fit` wrote."""
    return parse((trained_bundle / "report.html").read_text("utf-8"))


def _rows(table: Element) -> dict[str, list[str]]:
    """The cells of each row by its first one."""
    rows = [
        [cell.text for cell in row.elements() if cell.name in {"th", "td"}]
        for row in table.all("tr")
    ]
    return {row[0]: row[1:] for row in rows}


def _findings(count: int, names: tuple[str, ...], picture: bytes) -> Findings:
    """Judged test images with random scores, and images that stand out."""
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(count, len(names))), rng.integers(0, len(names), count)
    figures = evaluate_scores(scores, labels, names, 1.0).to_json()
    examples = tuple(
        Example(f"{name}/{name}.jpg", name, names[-1], 0.9, 0.05, picture, picture)
        for name in (names * 12)[:12]
    )
    doubts = Doubts(examples[:12], examples, len(examples))
    parts = tuple(JudgedPart(part, "new", figures, doubts) for part in ("test", "folds"))
    use = LeafUse(1, np.arange(16), np.ones(32))
    return Findings(parts, use)


def _page(names: tuple[str, ...], count: int = 200, picture: bytes | None = None) -> str:
    bundle = random_bundle(labels=names)
    manifest = replace(
        bundle.manifest,
        name="tiny",
        provenance={"settings": {name: name for name in names[:40]}, "card": {"licence": names[0]}},
    )
    engine = Engine(bundle)
    return render(engine, manifest, _findings(count, names, picture or pictures.jpeg()), COMMAND)


def test_report_of_a_fit_is_well_formed_and_its_links_lead_somewhere(fitted_page: Element) -> None:
    assert fitted_page.attributes == {"lang": "en"}
    ids = [each.attributes["id"] for each in fitted_page.elements() if "id" in each.attributes]
    assert len(ids) == len(set(ids))
    links = [link.attributes["href"] for link in fitted_page.all("a")]
    assert {f"#{each.attributes['id']}" for each in fitted_page.all("section")} == set(links)
    assert all(image.attributes["alt"] for image in fitted_page.all("img"))
    assert all(
        svg.attributes.get("aria-label") or svg.attributes.get("aria-hidden")
        for svg in fitted_page.all("svg")
    )
    assert all(
        table.children[0].name == "caption"
        for table in fitted_page.all("table")
        if isinstance(table.children[0], Element)
    )


def _check_isolation(page: Element) -> None:
    assert all(re.match(r"#[a-z]+$|data:image/jpeg;base64,", each) for each in references(page))
    names = {each.name for each in page.elements()}
    assert not names & {
        "script",
        "link",
        "iframe",
        "object",
        "embed",
        "base",
        "form",
        "foreignobject",
    }
    keys = {key for each in page.elements() for key in each.attributes}
    assert not [key for key in keys if key.startswith("on") or key == "style"]
    (style,) = page.all("style")
    assert not re.search(r"@import|url\(|expression|</", style.text)


def test_nothing_comes_from_elsewhere_and_nothing_runs(fitted_page: Element) -> None:
    _check_isolation(fitted_page)
    (style,) = fitted_page.all("style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode()).digest()).decode()
    (policy,) = (
        each.attributes["content"]
        for each in fitted_page.all("meta")
        if each.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; ")


def test_figures_are_those_of_the_manifest(trained_bundle: Path, fitted_page: Element) -> None:
    quality: Any = Engine.load(trained_bundle).manifest.quality
    shown = _rows(next(fitted_page.by_id("accuracy").all("table")))
    assert shown["figure"] == ["Test images", "Folds of the training images"]
    for place, part in enumerate(("test", "folds")):
        figures = quality[part]
        column = {key: values[place] for key, values in shown.items()}
        assert column["mean per-class accuracy"] == share(figures["mean_class_accuracy"])
        assert column["with 95 % confidence"] == between(tuple(figures["interval"]))
        assert column["calibration error"] == f"{figures['calibration_error']:.3f}"
        assert column["images"] == str(figures["n_test"])
        matrix = [
            _rows(table)
            for table in fitted_page.by_id("confusion").all("table")
            if table.attributes.get("class") == "matrix"
        ][place]
        labels = list(figures["classes"])
        for row, label in enumerate(labels):
            expected = [figures["mistakes"].get(label, {}).get(other, 0) for other in labels]
            expected[row] = figures["classes"][label]["right"]
            assert matrix[label] == [str(count or "·") for count in expected]


def test_provenance_stages_and_the_command_are_shown(
    trained_bundle: Path, fitted_page: Element
) -> None:
    manifest = Engine.load(trained_bundle).manifest
    stages: Any = manifest.provenance["stages"]
    shown = _rows(next(fitted_page.by_id("stages").all("table")))
    assert list(shown) == ["stage", *stages, "together"]
    assert manifest.digest in fitted_page.by_id("provenance").text
    assert "--train-per-class 8" in next(fitted_page.by_id("repeat").all("pre")).text
    assert fitted_page.by_id("learned").text.count("atom ") > 10


def test_hostile_names_are_text_and_nothing_else() -> None:
    text = _page(HOSTILE)
    text.encode()
    page = parse(text)
    _check_isolation(page)
    assert "\u202e" not in text
    for label in ("<script>alert(1)</script>", "caf\\xe9\\x00\\x1b[31m", "photo\\u202egpj.exe"):
        assert any(each.text == label for each in page.all("bdi"))


def test_many_classes_with_long_names_and_large_pictures_stay_below_three_megabytes() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (176, 176, 3), dtype=np.uint8)
    picture = small_jpeg(noise)
    assert len(picture) < 10_000
    names = tuple(f"{number} " + "<&\"'>" * 60 for number in range(700))
    page = _page(names, 8_000, picture)
    assert len(page.encode()) < 3_000_000
    assert "The rarest mistakes are not drawn." in parse(page).by_id("confusion").text


@pytest.mark.parametrize("count", [2, 12, 13, 30, 31, 151])
def test_every_number_of_classes_gives_a_matrix_with_all_images(count: int) -> None:
    names = tuple(f"class {number}" for number in range(count))
    part = parse(_page(names, 500)).by_id("confusion").children[1]
    assert isinstance(part, Element)
    tables = [each for each in part.all("table") if each.attributes.get("class") == "matrix"]
    if tables:
        cells = [cell.text for row in tables[0].all("tr") for cell in row.all("td")][1:]
        counted = sum(int(text) for text in cells if text != "·")
    else:
        titles = [cell.text for rect in part.all("rect") for cell in rect.all("title")]
        counted = sum(int(title.split(": ")[1].split()[0]) for title in titles)
    assert counted == 500


def test_a_page_without_any_figures_says_so() -> None:
    bundle = random_bundle()
    page = parse(render(Engine(bundle), bundle.manifest, Findings((), None), COMMAND))
    assert "no class has a second image" in page.by_id("accuracy").text


def test_writing_that_is_interrupted_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = random_bundle()
    old = tmp_path / "report.html"
    old.write_text("old", "utf-8")

    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _write(old, bundle.manifest, Engine(bundle))
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert old.read_text("utf-8") == "old"


def test_a_report_is_for_everybody_to_read(tmp_path: Path) -> None:
    bundle = random_bundle()
    path = tmp_path / "report.html"
    _write(path, bundle.manifest, Engine(bundle))
    assert path.stat().st_mode & 0o777 == 0o644
    parse(path.read_text("utf-8"))


def _write(path: Path, manifest: Manifest, engine: Engine) -> None:
    write_report(path, engine, manifest, Findings((), None), COMMAND)
