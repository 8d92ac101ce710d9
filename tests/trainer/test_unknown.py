"""`--unknown`: images of none of the classes, to learn from and to count."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from service.engine.arrays import Float64Array
from tests.support import pictures
from trainer.cli import main


def best_scores(engine: Engine, folder: Path) -> Float64Array:
    """Of every image below a folder, in any order."""
    return np.array([engine.scores(path.read_bytes()).max() for path in folder.rglob("*.png")])


def write_noise(folder: Path, count: int, first: int = 0) -> Path:
    """Blotches that look like none of the drawn classes."""
    folder.mkdir(parents=True)
    for seed in range(first, first + count):
        pictures.noise(80, 90, seed).save(folder / f"{seed}.png")
    return folder


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nested folders of noise, a file that is no image, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("unknown") / "noise"
    write_noise(folder / "some" / "deep", 12)
    write_noise(folder / "more", 12, first=12)
    (folder / "broken.jpg").write_bytes(pictures.truncated_jpeg())
    (folder / "notes.txt").write_text("no image")
    return folder


@pytest.fixture(scope="module")
def other_noise(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More of it, that nothing is learned from."""
    return write_noise(tmp_path_factory.mktemp("unknown") / "other", 20, first=100)


@pytest.fixture(scope="module")
def bundle(
    drawn_images: Path, noise: Path, trained_bundle: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A model of the drawn classes that has seen noise."""
    out = tmp_path_factory.mktemp("models") / "shapes"
    command = ["fit", str(drawn_images), "--out", str(out), "--train-per-class", "8"]
    known = ["--from-bundle", str(trained_bundle)]
    assert main([*command, *known, "--unknown", str(noise)]) == 0
    return out / "1"


def test_held_out_images_of_both_kinds_are_told_in_the_manifest(
    bundle: Path, trained_bundle: Path
) -> None:
    manifest, plain = Engine.load(bundle).manifest, Engine.load(trained_bundle).manifest
    assert manifest.labels == plain.labels
    assert manifest.provenance["n_train"] == plain.provenance["n_train"] == 32
    assert manifest.provenance["n_unknown"] == 24
    folds, plain_folds = manifest.quality["folds"], plain.quality["folds"]
    assert isinstance(folds, dict)
    assert isinstance(plain_folds, dict)
    assert folds["kept"] >= 0.9
    assert folds["rejected"] >= 0.9
    assert folds["auroc"] >= 0.95
    assert plain_folds["kept"] >= 0.95
    assert {"rejected", "auroc"}.isdisjoint(plain_folds)
    assert "n_unknown" not in plain.provenance


def test_new_images_of_both_kinds_are_told_apart(
    bundle: Path, drawn_images: Path, other_noise: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["evaluate", str(bundle), str(drawn_images), "--split-seed", "0", "--json"]
    folders = ["--unknown", str(other_noise), "--unknown", str(drawn_images)]
    assert main([*command, *folders]) == 0
    figures = json.loads(capsys.readouterr().out)
    engine = Engine.load(bundle)
    threshold = engine.config.known_threshold
    assert threshold is not None
    noise, shapes = figures["unknown"]
    assert (noise["folder"], noise["n_images"]) == (str(other_noise), 20)
    assert noise["auroc"] >= 0.95
    assert figures["kept"] >= 0.75  # 16 images
    found = best_scores(engine, other_noise)
    assert noise["rejected"] == (found < threshold).mean() >= 0.75
    found = best_scores(engine, drawn_images)
    assert shapes["rejected"] == (found < threshold).mean()


def test_examples_of_other_images_help(
    bundle: Path, trained_bundle: Path, drawn_images: Path, other_noise: Path
) -> None:
    """With them, other images are further below those of the classes than without."""

    def gap(engine: Engine) -> float:
        return float(np.median(best_scores(engine, drawn_images))) - float(
            np.median(best_scores(engine, other_noise))
        )

    assert gap(Engine.load(bundle)) > gap(Engine.load(trained_bundle))


@pytest.mark.parametrize("learned_from_others", [True, False])
def test_a_trained_model_does_not_know_an_image_of_one_colour(
    bundle: Path, trained_bundle: Path, *, learned_from_others: bool
) -> None:
    engine = Engine.load(bundle if learned_from_others else trained_bundle)
    assert engine.config.known_threshold is not None
    for colour in ("black", "white", "grey", "red"):
        data = pictures.jpeg(Image.new("RGB", (120, 90), colour))
        assert not engine.is_known(engine.score(data))


def test_evaluate_says_in_words_what_is_known(
    trained_bundle: Path,
    drawn_images: Path,
    other_noise: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["evaluate", str(trained_bundle), str(drawn_images)]
    assert main([*command, "--unknown", str(other_noise)]) == 0
    printed = capsys.readouterr().out
    assert "taken for known " in printed
    assert f"{other_noise}: 20 unknown images, rejected " in printed
    assert "where 95 % of the tested are kept; AUROC " in printed


def test_files_that_cannot_be_learned_from_are_named(
    drawn_images: Path,
    noise: Path,
    trained_bundle: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    command = ["fit", str(drawn_images), "--out", str(tmp_path / "shapes")]
    known = ["--from-bundle", str(trained_bundle), "--mirroring", "always"]
    assert main([*command, *known, "--unknown", str(noise)]) == 0
    assert "broken.jpg" in caplog.text
    assert "notes.txt" in caplog.text
    manifest = Engine.load(tmp_path / "shapes" / "1").manifest
    assert manifest.provenance["mirrored"] is True
    assert manifest.config.known_threshold is not None


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (["--unknown", "{nowhere}"], 1, "is not a folder"),
        (["--unknown", "{empty}"], 1, "has no images"),
        (["--unknown", "{images}/disc"], 1, "is of the class disc and among the images of --unk"),
        (["--unknown", "{bad}"], 1, "none of the 1 images of --unknown is readable"),
        (["--unknown", "{noise}", "--classifier", "logistic"], 2, "expected 'svm'"),
    ],
    ids=["nowhere", "empty", "class", "unreadable", "logistic"],
)
def test_fit_says_why_other_images_cannot_be_learned_from(
    drawn_images: Path,
    noise: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    status: int,
    sentence: str,
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "image.png").write_bytes(b"no image")
    places = {name: tmp_path / name for name in ("nowhere", "empty", "bad")}
    given = [item.format(images=drawn_images, noise=noise, **places) for item in options]
    out = tmp_path / "models" / "shapes"
    assert main(["fit", str(drawn_images), "--out", str(out), *given]) == status
    assert sentence in capsys.readouterr().err
    assert not out.exists()


def test_a_class_that_is_excluded_may_be_an_example_of_others(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path
) -> None:
    command = ["fit", str(drawn_images), "--out", str(tmp_path / "shapes"), "--exclude", "disc"]
    known = ["--from-bundle", str(trained_bundle), "--unknown", str(drawn_images / "disc")]
    assert main([*command, *known]) == 0
    manifest = Engine.load(tmp_path / "shapes" / "1").manifest
    assert manifest.labels == ("cross", "square", "stripes")
    assert manifest.provenance["n_unknown"] == 12
