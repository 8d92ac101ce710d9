"""`python -m trainer predict` as a whole, beside the engine in a loop."""

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from service.engine import Codes, Engine, EngineConfig, ImageError
from service.engine.arrays import Float64Array, IntpArray
from service.engine.config import CodesConfig, ViewConfig
from service.engine.fixedpoint import Descriptors
from tests.support import bundles, opened_files, pictures
from tests.support.messy_folder import make_messy_folder
from tests.support.processes import DEADLINE_SECONDS, ROOT, children_of, is_alive, until
from trainer.cli import main
from trainer.parallel import one_blas_thread

STRIDE = 2
CONFIG = replace(
    EngineConfig.of_codes(
        ViewConfig(depth=4), CodesConfig(n_atoms=32, nonzeros=3, stride=STRIDE), max_side=120
    ),
    known_threshold=-1000.0,  # only blank images are not known
)

Row = dict[str, Any]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundles.write_model(tmp_path_factory.mktemp("models"), config=CONFIG)


@pytest.fixture(scope="module")
def engine(bundle: Path) -> Engine:
    return Engine.load(bundle)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that is odd, a blank image, and a pipe that nobody writes to."""
    folder = make_messy_folder(tmp_path_factory.mktemp("messy") / "photos")
    (folder / "blank.png").write_bytes(pictures.png(pictures.blank()))
    os.mkfifo(folder / "pipe.jpg")
    return folder


def rows(out: Path) -> list[Row]:
    """The table as any reader of Parquet takes it."""
    found: list[Row] = pq.read_table(out).to_pylist()
    return found


def path_of(row: Row, folder: Path) -> Path:
    """The file of a row, whatever bytes its name has."""
    return folder / (os.fsdecode(row["path_bytes"]) if row["path_bytes"] else row["path"])


@pytest.fixture(scope="module")
def summary(bundle: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What predict says of a table with all columns."""
    out = tmp_path_factory.mktemp("table") / "labels.parquet"
    options = ["--top-k", "3", "--pooled-vectors", "--codes", "--json"]
    with pytest.MonkeyPatch.context() as patch, (out.parent / "out").open("w") as file:
        patch.setattr("sys.stdout", file)
        assert main(["predict", str(bundle), str(photos), "--out", str(out), *options]) == 0
    found: dict[str, Any] = json.loads((out.parent / "out").read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def table(summary: dict[str, Any]) -> list[Row]:
    return rows(Path(summary["table"]))


def expected(engine: Engine, path: Path) -> tuple[object, ...]:
    """Labels, probabilities and whether the image is known, as the engine tells them."""
    try:
        data = path.read_bytes()
        with one_blas_thread():
            ranked, scored = engine.classify(data, 3), engine.score(data)
    except ImageError:
        return (None, None, None)
    names = [each.label for each in ranked]
    return names, [each.probability for each in ranked], engine.is_known(scored)


def test_every_row_is_what_the_engine_says_of_the_file(
    engine: Engine, photos: Path, table: list[Row]
) -> None:
    readable = [row for row in table if row["problem"] is None]
    assert len(readable) >= 34
    for row in readable:
        found = row["labels"], row["probabilities"], row["known"]
        assert found == expected(engine, path_of(row, photos)), row["path"]
        assert row["label"] == row["labels"][0]
        assert row["probability"] == row["probabilities"][0]
    assert [row["path"] for row in readable if not row["known"]] == ["blank.png"]


def test_files_that_cannot_be_read_have_the_reason_and_nothing_else(
    engine: Engine, photos: Path, table: list[Row]
) -> None:
    problems = {row["path"]: row["problem"] for row in table if row["problem"] is not None}
    assert problems.pop("squares/gone.png") == "cannot be read: No such file or directory"
    assert problems.pop("pipe.jpg") == "cannot be read: it is not a regular file"
    assert set(problems) >= {
        *(f"🔵 discs/{name}" for name in ("cut.jpg", "text.png", "empty.gif")),
        r"caf\xe9/dot.png",
    }
    for row in table:
        if row["path"] in problems:
            with pytest.raises(ImageError) as error:
                engine.classify(path_of(row, photos).read_bytes())
            assert row["problem"] == str(error.value)
        if row["problem"] is not None:
            empty = set(row) - {"path", "path_bytes", "problem"}
            assert {row[name] for name in empty} == {None}


def test_rows_are_in_the_order_of_the_files_and_names_are_kept(
    photos: Path, table: list[Row]
) -> None:
    names = [os.fsencode(os.path.relpath(path_of(row, photos), photos)) for row in table]
    assert len(set(names)) == len(table) == 41
    assert b"caf\xe9/0.png" in names
    assert "кресты/2020/май/1.png".encode() in names
    assert all(os.path.lexists(photos / os.fsdecode(name)) for name in names)


def test_pooled_vectors_are_those_of_the_engine(
    engine: Engine, photos: Path, table: list[Row]
) -> None:
    for row in table:
        if row["problem"] is None:
            with one_blas_thread():
                pooled = engine.pooled_vector(path_of(row, photos).read_bytes())
            assert np.array_equal(np.array(row["pooled_vector"], np.float32), pooled)


def _every(stride: int, rows: int, cols: int) -> IntpArray:
    """Places of every `stride`-th descriptor of a grid, in each direction."""
    return np.arange(rows * cols).reshape(rows, cols)[::stride, ::stride].reshape(-1)


def codes_of(engine: Engine, data: bytes) -> tuple[tuple[int, int], Codes, Float64Array]:
    """The grid of an image's codes and the codes, by way of its descriptors.

    A descriptor that is too long is cut to its length before it is rounded, here, or after, in
    an image; how far these lengths may be apart, as a part of them, comes third.
    """
    descriptors = engine.describe(engine.decode(data))
    n_rows, n_cols, width = descriptors.shape
    laid_out, places = descriptors.reshape(-1, width), _every(STRIDE, n_rows, n_cols)
    grid = -(-n_rows // STRIDE), -(-n_cols // STRIDE)
    half_steps = 0.5 * np.sqrt(width)
    norms = Descriptors.of(laid_out[places]).fixed(wide=False).norms
    rounding: Float64Array = half_steps / np.maximum(norms, 1).astype(np.float64)
    return grid, engine.encode(laid_out).at(places), rounding


def test_codes_are_those_of_the_descriptors(engine: Engine, photos: Path, table: list[Row]) -> None:
    for row in table:
        if row["problem"] is None:
            grid, codes, rounding = codes_of(engine, path_of(row, photos).read_bytes())
            assert (row["grid_rows"], row["grid_cols"]) == grid
            assert row["leaf_ids"] == codes.leaf_ids.tolist()
            assert row["atom_ids"] == codes.atom_ids.tolist()
            differences = np.abs(np.array(row["values"]) - codes.values)
            assert (differences <= rounding[:, None] * np.abs(codes.values) + 1e-5).all()


def test_the_summary_counts_what_is_in_the_table(summary: dict[str, Any], table: list[Row]) -> None:
    labels = [row["label"] for row in table if row["label"] is not None]
    assert summary["images"] == summary["classified"] == len(table)
    assert summary["unreadable"] == sum(summary["problems"].values()) == len(table) - len(labels)
    assert summary["unknown"] == 1
    assert summary["labels"] == {label: labels.count(label) for label in set(labels)}
    assert summary["model"]["name"] == "tiny"


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A hundred images, one of them such that opening it has a consequence."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(100):
        (folder / f"{number:03d}.png").write_bytes(pictures.png(pictures.noise(seed=number)))
    return folder


def command(bundle: Path, photos: Path, *options: str) -> list[str]:
    out = photos.parent / "labels.parquet"
    return ["predict", str(bundle), str(photos), "--out", str(out), *options]


def is_right(engine: Engine, photos: Path, table: list[Row]) -> bool:
    """Whether a table has a row for every image, with the engine's label."""
    names = [row["path"] for row in table]
    data = [(photos / name).read_bytes() for name in names]
    labels = [engine.classify(each)[0].label for each in data]
    return names == sorted(path.name for path in photos.iterdir()) and labels == [
        row["label"] for row in table
    ]


def test_an_image_that_kills_its_process_costs_its_own_row_only(
    engine: Engine,
    bundle: Path,
    many: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(many / "005.png", many / opened_files.DEADLY)
    for name, value in opened_files.environment(many.parent / "hook").items():
        monkeypatch.setenv(name, value)
    assert main(command(bundle, many, "--processes", "1")) == 0
    table = rows(many.parent / "labels.parquet")
    bad = [row for row in table if row["problem"]]
    assert [(row["path"], row["label"]) for row in bad] == [(opened_files.DEADLY, None)]
    assert bad[0]["problem"] == "the process that read it ended with signal 9"
    (many / opened_files.DEADLY).unlink()
    assert is_right(engine, many, [row for row in table if not row["problem"]])
    files = [path.name for path in (many.parent / "labels.parquet").iterdir()]
    assert [name for name in files if name.startswith(".")] == []
    assert "1  the process that read it ended with signal …" in capsys.readouterr().out


class Stuck:
    """The command in a process of its own, in which one image never ends."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "trainer", *arguments],
            cwd=ROOT,
            env={**os.environ, **opened_files.environment(folder)},
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; exit code and log, once no process is left."""
        below = children_of(self.process.pid)
        assert below
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=DEADLINE_SECONDS)
        until(lambda: not any(map(is_alive, below)))
        return self.process.returncode, log


def test_what_is_interrupted_or_killed_goes_on_and_ends_with_the_same_table(
    engine: Engine, bundle: Path, models: Path, many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(many / "005.png", many / opened_files.STUCK)  # the last one
    arguments, out = command(bundle, many, "--processes", "1"), many.parent / "labels.parquet"
    last = "part-000006.parquet"

    stuck = Stuck(arguments, many.parent / "hook")
    until(lambda: len(list(out.glob("part-*"))) == 6)
    code, log = stuck.end(signal.SIGINT)
    assert code == 130
    assert "interrupted; the same command with --resume goes on" in log
    assert "Traceback" not in log
    written = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    next(iter(written)).unlink()

    assert main(arguments) == 2
    assert "with --resume the same command goes on with it" in capsys.readouterr().err
    other = command(models / "apples" / "1", many, "--resume", "--processes", "1")
    assert main(other) == 2
    assert "was begun otherwise: the digest of the model was" in capsys.readouterr().err

    stuck = Stuck([*command(bundle, many, "--processes", "2"), "--resume"], many.parent / "hook")
    until(lambda: len(list(out.glob("part-*"))) == 6)
    code, log = stuck.end(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert not (out / last).exists()

    assert main([*arguments, "--resume", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["images"], found["classified"]) == (101, 101 - 6 * 16)
    assert is_right(engine, many, rows(out))
    again = [path.stat().st_mtime_ns == time for path, time in written.items()]
    assert again.count(False) == 1  # the one that was removed


def test_a_damaged_bundle_is_told_in_one_sentence(
    bundle: Path, many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bundles.copy_model(bundle, many.parent / "models" / "1")
    bundles.flip_byte(damaged / "tensors.safetensors", 2000)
    assert main(command(damaged, many, "--processes", "1")) == 1
    error = capsys.readouterr().err
    assert "SHA-256 is" in error
    assert "Traceback" not in error


def test_images_that_can_all_not_be_read_are_an_error(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "empty.png").touch()
    assert main(command(bundle, tmp_path / "photos", "--processes", "1")) == 1
    printed = capsys.readouterr()
    assert "1 cannot be read:" in printed.out
    assert "not one of the 1 images can be read" in printed.err
