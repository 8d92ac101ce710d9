"""`reproduce caltech101` on drawn images: what it measures, keeps, finds again and reports."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from service.engine import sift
from service.examples import shapes
from trainer.cli import main
from trainer.config import FitConfig
from trainer.data.dataset import scan
from trainer.errors import DataError
from trainer.fit import fit
from trainer.reproduce.benchmarks import CALTECH101, foreign_images
from trainer.reproduce.cache import Cache, Entry

TINY = (
    *("--samples", "1500", "--iterations", "1", "--depth", "4", "--train-per-class", "4"),
    *("--folds", "2", "--regularisation", "10", "--nonzeros", "2", "--max-side", "60"),
)

Run = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def drawn_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two drawn data sets; read only."""
    data = tmp_path_factory.mktemp("data")
    shapes.write_dataset(data / "caltech101", per_class=6)
    shapes.write_dataset(data / "scenes15", per_class=3, seed=1)
    return data


@pytest.fixture(scope="session")
def first_run(drawn_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of a run with 16 atoms on split 0; read only."""
    cache = tmp_path_factory.mktemp("cache") / "c"
    command = ["reproduce", "caltech101", "--data", str(drawn_data), "--cache", str(cache)]
    assert main([*command, *TINY, "--atoms", "16", "--splits", "0"]) == 0
    return cache


@pytest.fixture
def run(drawn_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command with a cache of its own and returns what it printed."""

    def run(*options: str, data: Path = drawn_data, code: int = 0) -> dict[str, Any]:
        command = ["reproduce", "caltech101", "--data", str(data), "--cache", str(tmp_path / "c")]
        assert main([*command, *TINY, "--json", *options]) == code
        printed: dict[str, Any] = json.loads(capsys.readouterr().out or "{}")
        return printed

    return run


@pytest.fixture
def first_kept(first_run: Path, tmp_path: Path) -> None:
    """The cache of the test starts with what the first run left."""
    shutil.copytree(first_run, tmp_path / "c")


def files(folder: Path, kind: str = "*") -> dict[str, int]:
    """When each file of the cache was written, by name."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "c").glob(f"{kind}/*")}


def test_cells_are_measured_on_every_split(run: Run) -> None:
    report = run("--atoms", "16,24", "--splits", "0-1")
    assert [cell["atoms"] for cell in report["cells"]] == [16, 24]
    for cell in report["cells"]:
        accuracies = [cell["splits"][seed]["mean_class_accuracy"] for seed in ("0", "1")]
        assert cell["ours"]["mean"] == pytest.approx(np.mean(accuracies))
        assert cell["ours"]["deviation"] == pytest.approx(np.std(accuracies, ddof=1))
        assert min(accuracies) > 0.5
        assert {split["n_test"] for split in cell["splits"].values()} == {8}
        assert cell["dictionary_of"] == "training images of the split"


def test_a_gram_matrix_on_disk_has_the_split_images_as_columns(
    run: Run, drawn_data: Path, tmp_path: Path
) -> None:
    run("--atoms", "16", "--splits", "3")
    dataset = scan(drawn_data / "caltech101")
    train = set(dataset.split(4, seed=3).train)
    places = [place for place, image in enumerate(dataset.images) if image in train]
    (path,) = (tmp_path / "c" / "grams").iterdir()
    gram = np.load(path)["gram"]
    assert gram.shape == (24, 16)
    np.testing.assert_allclose(gram[places], gram[places].T, atol=1e-6)
    np.testing.assert_allclose(np.diag(gram[places]), 1, atol=1e-5)


@pytest.mark.usefixtures("first_kept")
def test_a_second_run_computes_only_what_is_new(run: Run, tmp_path: Path) -> None:
    first = run("--atoms", "16", "--splits", "0")
    before = files(tmp_path)
    again = run("--atoms", "16,24", "--splits", "0-1")
    after = files(tmp_path)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert again["cells"][0]["splits"]["0"] == first["cells"][0]["splits"]["0"]


def test_a_recipe_is_a_whole_fit_that_is_not_repeated(
    run: Run, drawn_data: Path, tmp_path: Path
) -> None:
    (cell,) = run("--atoms", "16", "--recipe", "fast", "--splits", "1")["cells"]
    config = FitConfig(
        recipe="fast",
        samples=1500,
        iterations=1,
        depth=4,
        atoms=16,
        nonzeros=2,
        folds=2,
        regularisation=10.0,
        max_side=60,
        train_per_class=4,
        split_seed=1,
    )
    quality: Any = fit(scan(drawn_data / "caltech101"), config, "fast").manifest.quality
    assert cell["recipe"] == "fast"
    assert cell["paper"] is None
    found = cell["splits"]["1"]["mean_class_accuracy"]
    assert found == quality["test"]["mean_class_accuracy"]
    before = files(tmp_path)
    (again,) = run("--atoms", "16", "--recipe", "fast", "--splits", "1")["cells"]
    assert (again, files(tmp_path)) == (cell, before)


def test_an_interrupted_run_goes_on_with_what_was_learned(
    run: Run, drawn_data: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(drawn_data, data)
    victim = scan(data / "caltech101").split(4, seed=0).test[-1].path
    whole = victim.read_bytes()
    victim.write_bytes(bytes(len(whole)))  # the run ends here, after it learned
    run("--atoms", "16", "--splits", "0", data=data, code=1)
    learned = files(tmp_path, "models")
    assert len(learned) == 2
    assert not files(tmp_path, "grams")
    victim.write_bytes(whole)
    assert run("--atoms", "16", "--splits", "0", data=data)["cells"][0]["ours"]
    assert files(tmp_path, "models") == learned


def test_an_interruption_says_where_to_go_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sift, "locate", interrupt)
    with pytest.raises(SystemExit, match="130"):
        run("--atoms", "16", "--splits", "0")
    assert f"the same command goes on from {tmp_path / 'c'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "new"),
    [
        (("--samples", "1600"), {"models", "grams", "results"}),
        (("--iterations", "2"), {"models", "grams", "results"}),
        (("--seed", "1"), {"models", "grams", "results"}),
        (("--depth", "3"), {"models", "grams", "results"}),
        (("--sign-rule", "split"), {"grams", "results"}),
        (("--regularisation", "1"), {"results"}),
        (("--classifier", "logistic"), {"results"}),
        ((), set()),
    ],
)
@pytest.mark.usefixtures("first_kept")
def test_what_is_kept_is_found_by_everything_that_made_it(
    run: Run, tmp_path: Path, options: tuple[str, ...], new: set[str]
) -> None:
    kinds = ("models", "grams", "results")
    before = {kind: files(tmp_path, kind) for kind in kinds}
    run("--atoms", "16", "--splits", "0", *options)
    assert {kind for kind in kinds if files(tmp_path, kind) != before[kind]} == new


def test_other_images_make_another_gram_matrix(run: Run, drawn_data: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(drawn_data, data)
    run("--atoms", "16", "--splits", "0", data=data)
    before = {kind: len(files(tmp_path, kind)) for kind in ("models", "grams")}
    test_image = scan(data / "caltech101").split(4, seed=0).test[0].path
    Image.new("L", (50, 50), 90).save(test_image)
    run("--atoms", "16", "--splits", "0", data=data)
    assert {kind: len(files(tmp_path, kind)) for kind in before} == {
        "models": before["models"],  # learned without that image
        "grams": before["grams"] + 1,
    }


@pytest.mark.usefixtures("first_kept")
def test_an_engine_with_other_answers_makes_all_pooled_vectors_anew(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learned = files(tmp_path, "models")
    monkeypatch.setattr(sift, "NORM_THRESHOLD", 0.2)
    run("--atoms", "16", "--splits", "0")
    assert len(files(tmp_path, "grams")) == len(files(tmp_path, "results")) == 2
    assert files(tmp_path, "models") == learned


@pytest.mark.parametrize("kind", ["models", "grams", "results"])
@pytest.mark.usefixtures("first_kept")
def test_a_damaged_file_is_computed_again(
    run: Run, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = run("--atoms", "16", "--splits", "0")
    for path in (tmp_path / "c" / kind).iterdir():
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content[:-3] if kind == "results" else content)
    if kind == "grams":
        shutil.rmtree(tmp_path / "c" / "results")
    assert run("--atoms", "16", "--splits", "0")["cells"] == first["cells"]
    assert "is damaged and computed again" in caplog.text


def test_a_foreign_dictionary_has_one_gram_matrix_for_all_splits(run: Run, tmp_path: Path) -> None:
    report = run("--atoms", "16", "--splits", "0-1", "--dictionary", "foreign")
    assert report["cells"][0]["dictionary_of"] == "other data sets: scenes15"
    assert set(report["cells"][0]["splits"]) == {"0", "1"}
    (path,) = (tmp_path / "c" / "grams").iterdir()
    assert np.load(path)["gram"].shape == (24, 24)


@pytest.mark.usefixtures("first_kept")
def test_results_on_disk_are_shown_without_computing(run: Run, tmp_path: Path) -> None:
    before = files(tmp_path)
    report = run("--atoms", "16,24", "--splits", "0-1", "--finished")
    assert [list(cell["splits"]) for cell in report["cells"]] == [["0"], []]
    assert report["cells"][1]["ours"] is None
    assert files(tmp_path) == before


def test_omp_takes_the_place_of_the_tree(run: Run) -> None:
    pytest.importorskip("spams", reason="needs spams-bin of the extra bench, absent here")
    report = run("--coder", "omp", "--atoms", "16", "--splits", "0")
    assert report["cells"][0]["coder"] == "omp"
    assert report["cells"][0]["ours"]["mean"] > 0.5


def test_table_section_and_picture_say_that_splits_are_few(
    drawn_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib of the extra bench, absent here")
    page, picture = tmp_path / "RESULTS.md", tmp_path / "accuracy.png"
    page.write_text("# Results\n\n## Accuracy: Caltech 101\n\nold\n\n## Speed\n\nfast\n", "utf-8")
    command = ["reproduce", "caltech101", "--data", str(drawn_data), "--cache", str(tmp_path / "c")]
    outputs = ["--markdown", str(page), "--plot", str(picture)]
    assert main([*command, *TINY, "--atoms", "16", "--splits", "2", *outputs]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.startswith("Caltech 101 cell K ours paper difference reached splits")
    for text in (printed, page.read_text("utf-8")):
        assert "only 2" in text
        assert "Fewer than the protocol's ten splits" in " ".join(text.split())
        assert "training images of the split" in text
    assert page.read_text("utf-8").startswith("# Results\n\n## Accuracy: Caltech 101\n\n`python")
    assert " --atoms 16 --nonzeros 2 --" in page.read_text("utf-8")
    assert page.read_text("utf-8").endswith("ten splits.\n\n## Speed\n\nfast\n")
    with Image.open(picture) as drawn:
        assert drawn.format == "PNG"


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--train-per-class", "6"), 1, "class cross has no images beyond the 6 that train"),
        (("--splits", "x"), 2, "splits is 'x', expected whole numbers"),
        (("--coder", "lasso"), 2, "coder is 'lasso', expected a list of tree, omp"),
        (("--folds", "1"), 2, "folds is 1, expected a whole number from 2 to 20"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    drawn_data: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    assert main(["reproduce", "caltech101", "--data", str(drawn_data), *TINY, *options]) == code
    assert message in capsys.readouterr().err


def test_a_missing_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no folder caltech101"):
        CALTECH101.scan(tmp_path)
    (tmp_path / "caltech101").mkdir()
    with pytest.raises(DataError, match="has no images beside caltech101"):
        foreign_images(tmp_path, CALTECH101)


def test_the_background_is_a_class_only_when_asked_for(tmp_path: Path) -> None:
    shapes.write_dataset(tmp_path / "caltech101", per_class=1)
    shutil.copytree(tmp_path / "caltech101/disc", tmp_path / "caltech101/BACKGROUND_Google")
    assert len(CALTECH101.scan(tmp_path).labels) == 4
    assert len(CALTECH101.with_background().scan(tmp_path).labels) == 5


def test_an_entry_of_another_fingerprint_is_not_taken(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.keep_facts(Entry("results", "x", "a" * 64), {"n": 1})
    assert cache.facts(Entry("results", "x", "a" * 64)) == {"n": 1}
    assert cache.facts(Entry("results", "x", "a" * 16 + "b" * 48)) is None
