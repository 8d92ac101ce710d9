"""`fit --from-bundle`: the features of one model, the classifier of other images."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from tests.support import pictures
from trainer.cli import main


@pytest.fixture
def more_images(drawn_images: Path, tmp_path: Path) -> Path:
    """The drawn classes, one more, and a file that cannot be read."""
    folder = tmp_path / "more"
    shutil.copytree(drawn_images, folder)
    (folder / "noise").mkdir()
    for seed in range(12):
        pixels = np.random.default_rng(seed).integers(0, 256, (60, 60), np.uint8)
        Image.fromarray(pixels).save(folder / "noise" / f"{seed}.png")
    (folder / "noise" / "broken.jpg").write_bytes(pictures.truncated_jpeg())
    return folder


def test_a_class_is_added_to_the_features_of_another_model(
    trained_bundle: Path,
    more_images: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    out = tmp_path / "models" / "more"
    command = ["fit", str(more_images), "--out", str(out)]
    assert main([*command, "--from-bundle", str(trained_bundle)]) == 0
    before, after = Engine.load(trained_bundle), Engine.load(out / "1")
    assert after.labels == tuple(sorted((*before.labels, "noise")))
    old, new = before.tensors(), after.tensors()
    assert old.keys() == new.keys()
    for name, tensor in old.items():
        np.testing.assert_array_equal(new[name], tensor)
    provenance = after.manifest.provenance
    assert provenance["from_bundle"] == {
        "name": "drawn",
        "version": 1,
        "digest": before.manifest.digest,
    }
    assert provenance["n_unreadable"] == 1
    assert "broken.jpg" in caplog.text
    settings = before.manifest.provenance["settings"]
    assert isinstance(settings, dict)
    assert provenance["settings"]["atoms"] == settings["atoms"]  # type: ignore[index]
    for path in sorted((more_images / "noise").glob("*.png"))[:3]:
        assert after.classify(path.read_bytes())[0].label == "noise"


def test_a_setting_of_the_features_is_rejected(
    trained_bundle: Path, drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(drawn_images), "--out", str(tmp_path / "models" / "more"), "--atoms", "9"]
    assert main([*command, "--from-bundle", str(trained_bundle)]) == 2
    assert "atoms is given beside --from-bundle" in capsys.readouterr().err
    assert not (tmp_path / "models").exists() or not list((tmp_path / "models").rglob("*.json"))


def test_a_folder_that_is_no_bundle_is_rejected(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["fit", str(drawn_images), "--out", str(tmp_path / "models" / "more")]
    assert main([*command, "--from-bundle", str(tmp_path)]) == 1
    assert "manifest.json" in capsys.readouterr().err
