"""The command `explain`."""

import json
import os
import signal
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.cli import main
from service.engine import Engine
from tests.support import bundles, pictures
from tests.support.commands import run_here

PNG = pictures.png()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    path.write_bytes(PNG)
    return path


def test_explain_tells_what_a_score_is_made_of_and_draws_it(models: Path, image: Path) -> None:
    out = image.with_name("overlay.png")
    ended = run_here("explain", str(image), "--models", str(models), "--out", str(out))
    expected = Engine.load(models / "apples" / "2").explain(PNG)
    assert ended.returncode == 0
    assert ended.stdout.decode().splitlines() == [
        f"{image}: {expected.label}, score {expected.score:.3f}",
        f"  {expected.blocks[0].contribution:+.3f}  codes of fast-sift",
        f"  {expected.bias:+.3f}  bias",
    ]
    assert f"{out}: red is for the label" in ended.stderr.decode()
    with Image.open(out) as picture, Image.open(image) as original:
        assert picture.size == original.size
    assert sorted(image.parent.iterdir()) == [image, out]


def test_explain_draws_and_ends_quietly_when_nobody_reads_its_output(
    models: Path, image: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = image.with_name("overlay.png")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output, redirect_stdout(output):
        code = main(["explain", str(image), "--models", str(models), "--out", str(out)])
    assert code == 128 + signal.SIGPIPE
    assert "Traceback" not in capfd.readouterr().err
    assert out.exists()


def test_explain_prints_the_answer_of_the_service_as_json(models: Path, image: Path) -> None:
    label, other = bundles.LABELS[2:]
    choice = ("--label", label, "--against", other, "--model", "apples", "--version", "1")
    ended = run_here("explain", str(image), "--models", str(models), *choice, "--json")
    found = json.loads(ended.stdout)
    assert (found["image"], found["label"], found["against"]) == (str(image), label, other)
    assert found["model"]["version"] == 1
    assert np.sum(found["cells"]) + found["bias"] == pytest.approx(found["score"], abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("missing.png",), 1, "missing.png: cannot be read: No such file or directory"),
        (("IMAGE", "--label", "wasp"), 1, "label 'wasp' is unknown to apples"),
        (("IMAGE", "--out", "nowhere/overlay.png"), 2, "nowhere is no folder"),
        (("BROKEN",), 1, "the image is damaged or truncated"),
    ],
)
def test_what_cannot_be_explained_is_told_in_a_sentence(
    models: Path, image: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    broken = image.with_name("broken.jpg")
    broken.write_bytes(pictures.truncated_jpeg())
    names = {"IMAGE": str(image), "BROKEN": str(broken)}
    own = [names.get(argument, argument) for argument in arguments]
    ended = run_here("explain", *own, "--models", str(models))
    assert ended.returncode == code
    assert words in ended.stderr.decode()
    assert ended.stdout == b""


def test_a_picture_that_cannot_be_written_leaves_nothing_behind(models: Path, image: Path) -> None:
    out = image.with_name("taken.png")
    out.mkdir()
    ended = run_here("explain", str(image), "--models", str(models), "--out", str(out))
    assert ended.returncode == 1
    assert f"{out}: cannot be written: Is a directory" in ended.stderr.decode()
    assert sorted(image.parent.iterdir()) == [image, out]
