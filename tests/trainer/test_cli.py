"""The trainer's commands as a person types them, good and bad."""

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine
from service.engine.bundle import TENSORS_FILE, read_bundle
from service.examples import shapes
from tests.support import parsers
from tests.support.processes import environment
from tests.support.training import SMALL
from trainer.cli import _parser, main


def _files(folder: Path) -> list[str]:
    return [str(path.relative_to(folder)) for path in sorted(folder.rglob("*"))]


def test_fit_tells_drawn_shapes_apart(trained_bundle: Path) -> None:
    quality = Engine.load(trained_bundle).manifest.quality
    assert isinstance(quality["test"], dict)
    assert quality["test"]["mean_class_accuracy"] > 0.9


def test_fit_of_the_same_seed_gives_the_same_tensors_bit_for_bit_on_one_core(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path
) -> None:
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-m", "trainer", "fit", str(drawn_images)]
    out = ["--out", str(tmp_path / "again"), *SMALL, "--train-per-class", "8"]
    subprocess.run([*command, *out], check=True, env=environment(), timeout=120)
    again = (tmp_path / "again" / "1" / TENSORS_FILE).read_bytes()
    assert again == (trained_bundle / TENSORS_FILE).read_bytes()


def test_fit_writes_the_next_version(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "drawn"
    shutil.copytree(trained_bundle, out / "4")
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["bundle"] == str(out / "5")
    assert read_bundle(out / "5").manifest.version == 5
    assert printed["digest"] == read_bundle(out / "5").manifest.digest


@pytest.mark.parametrize(
    "options",
    [
        ("--classifier", "logistic", "--sign-rule", "split"),
        ("--sign-rule", "raw", "--depth", "2", "--radius", "0.2", "--seed", "3"),
        ("--groups", "20", "--dictionary-update", "ksvd"),
        ("--refinements", "1"),
        ("--hash", "tanh"),
        ("--hash", "sine", "--directions", "random", "--smallest-bucket", "5"),
    ],
    ids=" ".join,
)
def test_fit_options_give_bundles_that_load(
    drawn_images: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out = tmp_path / "drawn"
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL, *options]) == 0
    image = (drawn_images / "disc" / "000.png").read_bytes()
    assert Engine.load(out / "1").classify(image)[0].label == "disc"


@pytest.mark.parametrize(
    "options",
    [(), ("--group-search", "greedy"), ("--hash", "tanh", "--depth", "4")],
    ids=["tree", "greedy", "hash"],
)
def test_fit_with_given_groups_gives_a_bundle_whose_leaves_use_them(
    drawn_images: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    out, file = tmp_path / "drawn", tmp_path / "groups.json"
    groups = np.arange(63).reshape(21, 3)  # K-flats
    file.write_text(json.dumps(groups.tolist()), "utf-8")
    arguments = ["fit", str(drawn_images), "--out", str(out), *SMALL, *options]
    assert main([*arguments, "--given-groups", str(file)]) == 0
    engine = Engine.load(out / "1")
    assert {tuple(sorted(row)) for row in engine.coder.table.tolist()} <= set(map(tuple, groups))
    image = (drawn_images / "disc" / "000.png").read_bytes()
    assert engine.classify(image)[0].label == "disc"


def test_fit_refuses_given_groups_that_do_not_fit_before_it_trains(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "groups.json"
    file.write_text("[[0, 64]]", "utf-8")
    arguments = ["fit", str(drawn_images), "--out", str(tmp_path / "drawn"), *SMALL]
    assert main([*arguments, "--given-groups", str(file)]) == 2
    assert "group 0 names atom 64, expected ids from 0 to 63" in capsys.readouterr().err
    assert not (tmp_path / "drawn").exists()


def test_fit_with_lazebniks_sift_gives_a_bundle_that_classifies_by_it(
    drawn_images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "drawn"
    options = ("--descriptor", "lazebnik-sift", "--train-per-class", "8")
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL, *options]) == 0
    engine = Engine.load(out / "1")
    assert engine.config.view.descriptor == "lazebnik-sift"
    assert isinstance(engine.manifest.quality["test"], dict)
    assert engine.manifest.quality["test"]["mean_class_accuracy"] > 0.9
    image = (drawn_images / "disc" / "000.png").read_bytes()
    assert engine.classify(image)[0].label == "disc"


def test_evaluate_gives_the_figures_that_fit_recorded(
    drawn_images: Path, trained_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["evaluate", str(trained_bundle), str(drawn_images), "--split-seed", "0", "--json"]
    assert main(arguments) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures.pop("trained_on") == 0
    assert figures.pop("unknown") == []
    recorded = Engine.load(trained_bundle).manifest.quality["test"]
    assert isinstance(recorded, dict)
    classes = recorded.pop("classes")
    assert {name: figures[name] for name in recorded} == recorded
    for label, counts in classes.items():
        assert {name: figures["classes"][label][name] for name in counts} == counts
    assert (figures["n_test"], figures["n_classes"]) == (16, 4)


def test_evaluate_leaves_out_unknown_folders_and_says_so(
    drawn_images: Path,
    trained_bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    images = tmp_path / "images"
    shutil.copytree(drawn_images, images)
    shutil.copytree(images / "disc", images / "BACKGROUND")
    assert main(["evaluate", str(trained_bundle), str(images), "--split-seed", "0"]) == 0
    assert "left out, not among the bundle's labels: BACKGROUND" in caplog.text
    assert "the training images left out are exactly those of the bundle" in caplog.text
    assert "16 images of 4 classes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param((), 32, id="all images"),
        pytest.param(("--split-seed", "5"), 9, id="another split"),
        pytest.param(("--split-seed", "0", "--train-per-class", "6"), 8, id="a smaller part"),
    ],
)
def test_evaluate_says_how_many_images_the_bundle_was_trained_on(
    drawn_images: Path,
    trained_bundle: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    options: tuple[str, ...],
    expected: int,
) -> None:
    arguments = ["evaluate", str(trained_bundle), str(drawn_images), *options]
    assert main(arguments) == 0
    assert re.search(f"trained on, of these +{expected} images", capsys.readouterr().out)
    assert f"the bundle was trained on {expected} of these" in caplog.text
    assert "--split-seed 0 leaves the training images out" in caplog.text
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trained_on"] == expected


def test_evaluate_says_so_when_all_images_of_the_folder_were_trained_on(
    drawn_images: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    out = tmp_path / "drawn"
    assert main(["fit", str(drawn_images), "--out", str(out), *SMALL]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(out / "1"), str(drawn_images), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trained_on"] == 48
    assert "the bundle was trained on 48 of these 48 images" in caplog.text


def test_evaluate_on_other_files_cannot_tell_what_the_bundle_was_trained_on(
    trained_bundle: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    images = shapes.write_dataset(tmp_path / "images", per_class=2, seed=1)
    assert main(["evaluate", str(trained_bundle), str(images), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trained_on"] is None
    assert "trained on other files than these" in caplog.text


def test_inspect_prints_what_is_in_a_bundle(
    trained_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(trained_bundle)]) == 0
    text = capsys.readouterr().out
    assert "drawn version 1" in text
    assert "cross, disc, square, stripes" in text
    assert "2 probes agree" in text
    assert re.search("mirrored +False", text)


def test_inspect_prints_the_same_as_json(
    trained_bundle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(trained_bundle), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["labels"] == list(shapes.CLASSES)
    assert facts["hash"]["nodes"] == 2 ** facts["config"]["views"][0]["depth"] - 1


def _empty(_: Path) -> None:
    pass


def _one_class(root: Path) -> None:
    shapes.write_dataset(root)
    for kind in shapes.CLASSES[1:]:
        shutil.rmtree(root / kind)


def _one_image(root: Path) -> None:
    _one_class(root)
    for path in sorted((root / "cross").iterdir())[1:]:
        path.unlink()


def _flat_images(root: Path) -> None:
    for kind in ("black", "white"):
        (root / kind).mkdir()
        Image.new("L", (80, 80), 255 * (kind == "white")).save(root / kind / "0.png")


def _two_classes_without_images(root: Path) -> None:
    for kind in ("nothing", "void"):
        (root / kind).mkdir()
        (root / kind / "notes.txt").write_text("no image", "utf-8")


def _class_of_unreadable_files(root: Path) -> None:
    shapes.write_dataset(root)
    for path in (root / "disc").iterdir():
        path.write_bytes(b"no image")


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (_empty, (), "has no sub-folders"),
        (_one_class, (), "has one class (cross)"),
        (_one_image, (), "has one class (cross)"),
        (_flat_images, (), "no descriptors: not one of the images is readable and shows anything"),
        (_two_classes_without_images, (), "has no class with images, expected at least two"),
        (_class_of_unreadable_files, (), "no readable training image for the classes disc"),
        (shapes.write_dataset, ("--depth", "16"), "are fewer than the 65536 leaves"),
        (shapes.write_dataset, ("--atoms", "7000"), "are fewer than the 7000 atoms"),
    ],
)
def test_fit_on_useless_data_says_why_and_writes_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make: Callable[[Path], object],
    options: tuple[str, ...],
    message: str,
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    make(images)
    out = tmp_path / "models" / "drawn"
    assert main(["fit", str(images), "--out", str(out), *SMALL, *options]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_fit_on_one_image_a_class_gives_a_bundle_that_knows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = shapes.write_dataset(tmp_path / "images", per_class=1)
    out = tmp_path / "drawn"
    assert main(["fit", str(images), "--out", str(out), *SMALL]) == 0
    assert "accuracy unknown: no class has a second image" in capsys.readouterr().out
    engine = Engine.load(out / "1")
    for kind in shapes.CLASSES:
        data = (images / kind / "000.png").read_bytes()
        assert engine.classify(data)[0].label == kind


def _with_one_image(root: Path, kind: str) -> Path:
    """Drawings of four classes, but of one class a single one."""
    shapes.write_dataset(root)
    for path in sorted((root / kind).iterdir())[1:]:
        path.unlink()
    return root


def test_fit_counts_a_class_of_one_image_as_missed_on_folds_and_names_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    images = _with_one_image(tmp_path / "images", "disc")
    assert main(["fit", str(images), "--out", str(tmp_path / "drawn"), *SMALL]) == 0
    told = "one training image, or near-duplicates of one, so that folds cannot test: disc"
    assert told in caplog.text
    folds = Engine.load(tmp_path / "drawn" / "1").manifest.quality["folds"]
    assert isinstance(folds, dict)
    assert folds["untested"] == ["disc"]
    assert 0.5 < folds["mean_class_accuracy"] <= 0.75  # of four classes, three can be right
    accuracy = f"accuracy {folds['mean_class_accuracy']:.4f} on folds of the training images"
    missed = "one image only, or near-duplicates of one, counted as missed: disc"
    assert f"{accuracy}; {missed}" in capsys.readouterr().out


def test_fit_and_evaluate_name_a_class_that_a_split_leaves_untested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = _with_one_image(tmp_path / "images", "disc")
    out = tmp_path / "drawn"
    options = ("--train-per-class", "8")
    assert main(["fit", str(images), "--out", str(out), *SMALL, *options]) == 0
    assert "held-out images; no image left to test, not counted: disc" in capsys.readouterr().out
    evaluation = ["evaluate", str(out / "1"), str(images), "--split-seed", "0"]
    assert main(evaluation) == 0
    text = capsys.readouterr().out
    assert "12 images of 3 classes" in text
    assert re.search("not tested +disc", text)
    assert main([*evaluation, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert (figures["n_classes"], figures["untested"]) == (3, ["disc"])


def test_fit_names_an_empty_class_folder_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    images = shapes.write_dataset(tmp_path / "images")
    (images / "clouds").mkdir()
    out = tmp_path / "drawn"
    assert main(["fit", str(images), "--out", str(out), *SMALL, "--train-per-class", "8"]) == 0
    assert "left out, no images in the folder: clouds" in caplog.text
    assert Engine.load(out / "1").labels == shapes.CLASSES
    assert main(["evaluate", str(out / "1"), str(images), "--split-seed", "0"]) == 0
    assert "the training images left out are exactly those of the bundle" in caplog.text


def test_fit_names_and_counts_unreadable_files_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    images = shapes.write_dataset(tmp_path / "images")
    (images / "disc" / "000.png").write_bytes(b"no image")
    (images / "cross" / "001.png").write_bytes((images / "cross" / "002.png").read_bytes()[:300])
    out = tmp_path / "models" / "drawn"
    assert main(["fit", str(images), "--out", str(out), *SMALL]) == 0
    assert str(images / "disc" / "000.png") in caplog.text
    assert str(images / "cross" / "001.png") in caplog.text
    assert "2 unreadable files left out" in caplog.text
    assert read_bundle(out / "1").manifest.provenance["n_unreadable"] == 2


def test_interrupted_fit_leaves_nothing_behind(drawn_images: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer", "fit", str(drawn_images), *SMALL]
    cache = ["--cache", str(tmp_path / "cache")]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "models" / "drawn"), "--iterations", "1000", *cache],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        assert any("iteration 1/1000" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == 130
    assert "interrupted; nothing was written; the same command with --resume goes on" in said
    assert not (tmp_path / "models").exists()


def test_fit_with_descriptors_in_files_gives_the_same_tensors(
    drawn_images: Path, trained_bundle: Path, tmp_path: Path
) -> None:
    out, scratch = tmp_path / "models" / "drawn", tmp_path / "scratch"
    scratch.mkdir()
    arguments = ["fit", str(drawn_images), "--out", str(out), *SMALL, "--train-per-class", "8"]
    assert main([*arguments, "--scratch", str(scratch)]) == 0
    assert (out / "1" / TENSORS_FILE).read_bytes() == (trained_bundle / TENSORS_FILE).read_bytes()
    assert not list(scratch.iterdir())


def test_fit_by_ksvd_with_glued_leaves_in_files_gives_the_same_tensors(
    drawn_images: Path, tmp_path: Path
) -> None:
    options = (*SMALL, "--groups", "20", "--dictionary-update", "ksvd")
    for name in ("memory", "files"):
        scratch = ("--scratch", str(tmp_path)) if name == "files" else ()
        out = str(tmp_path / "models" / name)
        assert main(["fit", str(drawn_images), "--out", out, *options, *scratch]) == 0
    first, second = (
        (tmp_path / "models" / name / "1" / TENSORS_FILE).read_bytes()
        for name in ("memory", "files")
    )
    assert first == second


def _kill_after(line: str, arguments: list[str]) -> None:
    """Start a fit, and kill it when it says a line."""
    with subprocess.Popen(
        [sys.executable, "-m", "trainer", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        assert any(line in said for said in process.stderr)
        process.kill()


@pytest.mark.parametrize(
    ("line", "resumed"),
    [
        ("iteration 2/3", "resuming after iteration"),
        ("pooled vectors of", "resuming after trees and dictionaries"),
    ],
)
def test_killed_fit_goes_on_to_the_same_tensors(
    drawn_images: Path,
    trained_bundle: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    line: str,
    resumed: str,
) -> None:
    caplog.set_level(logging.INFO)
    cache, out = tmp_path / "cache", tmp_path / "models" / "drawn"
    arguments = ["fit", str(drawn_images), "--out", str(out), *SMALL, "--train-per-class", "8"]
    arguments += ["--cache", str(cache), "--resume"]
    _kill_after(line, arguments)
    assert not out.exists()
    assert main(arguments) == 0
    assert resumed in caplog.text
    assert not list((cache / "fits").iterdir())
    assert (out / "1" / TENSORS_FILE).read_bytes() == (trained_bundle / TENSORS_FILE).read_bytes()


class _OtherFit(logging.Handler):
    """Publishes a version, as another fit would, when this one has begun to learn."""

    def __init__(self, bundle: Path, out: Path) -> None:
        super().__init__()
        self.bundle, self.out = bundle, out

    def emit(self, record: logging.LogRecord) -> None:
        if "iteration 1/3" in record.getMessage():
            shutil.copytree(self.bundle, self.out / "1")


def test_fit_takes_the_next_version_when_another_fit_was_faster(
    drawn_images: Path,
    trained_bundle: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO)
    out, other = tmp_path / "drawn", _OtherFit(trained_bundle, tmp_path / "drawn")
    logging.getLogger("trainer").addHandler(other)
    try:
        assert main(["fit", str(drawn_images), "--out", str(out), *SMALL]) == 0
    finally:
        logging.getLogger("trainer").removeHandler(other)
    assert str(out / "2") in capsys.readouterr().out
    assert Engine.load(out / "2").manifest.version == 2
    assert read_bundle(out / "1").manifest == read_bundle(trained_bundle).manifest


@pytest.mark.parametrize(
    ("out", "message"),
    [(".hidden", "expected a model name"), ("file/model", "is not a writable folder")],
)
def test_fit_refuses_a_useless_target_before_it_trains(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str, message: str
) -> None:
    (tmp_path / "file").touch()
    assert main(["fit", str(drawn_images), "--out", str(tmp_path / out)]) == 2
    assert message in capsys.readouterr().err


def test_no_option_may_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert [item.prog for item in parsers.all_of(_parser()) if item.allow_abbrev] == []
    with pytest.raises(SystemExit):
        main(["fit", "photos", "--out", "models/photos", "--atom", "100"])
    assert "unrecognized arguments: --atom 100" in capsys.readouterr().err


def test_evaluate_and_inspect_refuse_what_is_no_bundle(
    drawn_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(tmp_path)]) == 1
    assert "manifest.json: cannot be read" in capsys.readouterr().err
    assert main(["evaluate", str(tmp_path), str(drawn_images)]) == 1


def test_trained_bundle_records_the_scores_of_the_weights_that_it_stores(
    trained_bundle: Path,
) -> None:
    engine = Engine.load(trained_bundle)
    assert engine.manifest.tensors["classifier_weights"].dtype == "int8"
    for probe in engine.manifest.probes:
        np.testing.assert_array_equal(engine.scores(probe.image), probe.scores)


def test_trained_bundle_holds_probes_that_other_scores_fail(trained_bundle: Path) -> None:
    engine = Engine.load(trained_bundle)
    for probe in engine.manifest.probes:
        np.testing.assert_allclose(engine.scores(probe.image), probe.scores, atol=1e-6)
    assert len(engine.manifest.probes) == 2
