"""The trainer in a container, from a folder of photographs to a service that knows them."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from service.examples import shapes
from tests.image.containers import TRAINER, Container, run_once
from tests.support.processes import ROOT

CHEAP = ("--samples", "3000", "--atoms", "64", "--iterations", "2")
OWNER = 4321


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    return shapes.write_dataset(folder / "photos", per_class=8)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of some user of the host's."""
    folder = tmp_path / "models"
    folder.mkdir()
    os.chown(folder, OWNER, OWNER)
    return folder


def readme_line(start: str) -> list[str]:
    """The arguments of a line of the README that runs a container."""
    (line,) = re.findall(
        rf"^docker run (.*{start}.*)$", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    return shlex.split(line)


def test_the_line_of_the_readme_trains_what_is_then_served(photos: Path, models: Path) -> None:
    places = {"./photos:/data": f"{photos}:/data", "./models:/models": f"{models}:/models"}
    line = [places.get(word, word) for word in readme_line("leafcode-trainer")]
    image = line.index(TRAINER)
    ended = run_once(TRAINER, *line[image + 1 :], *CHEAP, options=tuple(line[:image]))
    assert "mean per-class accuracy" in ended.stdout
    assert "compiled again" not in ended.stderr
    written = [models / "photos" / "1", *(models / "photos" / "1").iterdir()]
    assert {(path.stat().st_uid, path.stat().st_gid) for path in written} == {(OWNER, OWNER)}
    with Container("--volume", f"{models}:/models:ro") as started:
        image_file = next((photos / "disc").iterdir())
        answer = started.classify(image_file)
    assert answer["model"]["name"] == "photos"
    assert answer["predictions"][0]["label"] == "disc"


def test_it_trains_as_any_user_with_nothing_to_write_to_but_the_models(
    photos: Path, models: Path
) -> None:
    options = (
        *("--volume", f"{photos}:/data:ro", "--volume", f"{models}:/models"),
        *("--user", f"{OWNER}:{OWNER}", "--read-only", "--cap-drop", "ALL"),
        *("--security-opt", "no-new-privileges"),
    )
    fit = ("fit", "/data", "--out", "/models/photos", *CHEAP, "--json")
    json.loads(run_once(TRAINER, *fit, options=options).stdout)
    assert (models / "photos" / "1" / "manifest.json").stat().st_uid == OWNER


def test_it_says_what_it_can_do() -> None:
    assert "usage: python -m trainer" in run_once(TRAINER).stdout
