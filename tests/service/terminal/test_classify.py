"""The command `classify`: in this process where it ends by itself, else in a real one."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from service.cli import main
from service.engine import Engine
from tests.support import bundles, pictures
from tests.support.clients import web
from tests.support.commands import run_here
from tests.support.processes import DEADLINE_SECONDS, Server, children_of, environment, is_alive

PNG = pictures.png()
MISSING = "cannot be read: No such file or directory"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    path.write_bytes(PNG)
    return path


def complaints(ended: subprocess.CompletedProcess[bytes]) -> list[str]:
    """The lines of standard error; a slow machine says first that it compiles."""
    return [line for line in ended.stderr.decode().splitlines() if " INFO " not in line]


def test_classify_prints_a_table(models: Path, image: Path) -> None:
    ended = run_here("classify", str(image), "--models", str(models), "--top-k", "3")
    best, *others = Engine.load(models / "apples" / "2").classify(PNG, 3)
    head, row, last = ended.stdout.decode().splitlines()
    further = ", ".join(f"{item.label} {item.probability:.1%}" for item in others)
    assert ended.returncode == 0
    assert head.split() == ["image", "label", "prob.", "further", "labels"]
    assert row.split("  ", 1)[0] == str(image)
    assert row.split(maxsplit=3)[1:] == [best.label, f"{best.probability:.1%}", further]
    assert re.fullmatch(r"1 image, [\d.]+ a second, by apples version 2", last)


def test_a_mark_is_behind_the_label_of_an_image_like_none_of_the_classes(
    models: Path, image: Path, tmp_path: Path
) -> None:
    blank = tmp_path / "blank.png"
    blank.write_bytes(pictures.png(pictures.blank()))
    arguments = ("classify", str(blank), str(image), "--models", str(models))
    head, marked, plain, last = run_here(*arguments).stdout.decode().splitlines()
    best, *_ = Engine.load(models / "apples" / "2").classify(blank.read_bytes())
    assert marked.split(maxsplit=3)[1:3] == [best.label, "?"]
    assert "?" not in plain
    assert marked.index("%") == plain.index("%") == head.index("prob.") + len("prob")
    assert last.startswith("2 images, 1 like none of the classes (?), ")
    lines = run_here(*arguments, "--json").stdout.splitlines()
    assert [json.loads(line)["known"] for line in lines] == [False, True]


def test_the_table_is_as_wide_as_the_terminal(models: Path, image: Path) -> None:
    wide = image.with_name(f"{'写真' * 30}.png")
    wide.hardlink_to(image)
    arguments = ("classify", str(image), str(wide), "--models", str(models))
    ended = run_here(*arguments, COLUMNS="60")
    *rows, _ = ended.stdout.decode().splitlines()
    starts = {re.sub("[写真]", "xx", row).index("%") for row in rows[1:]}
    assert ended.returncode == 0
    assert len(starts) == 1
    assert all(len(re.sub("[写真]", "xx", row)) <= 60 for row in rows)


def test_classify_answers_with_the_default_model_of_the_setting(models: Path, image: Path) -> None:
    arguments = ("classify", str(image), "--json", "--models", str(models))
    ended = run_here(*arguments, LEAFCODE_DEFAULT_MODEL="tiny")
    assert json.loads(ended.stdout)["model"]["name"] == "tiny"


def test_classify_gives_the_same_as_http_and_imports_nothing_that_only_compiling_needs(
    server: Server, models: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "service", "classify", "-", "--json", "--models", str(models)],
        input=PNG,
        capture_output=True,
        check=True,
        timeout=DEADLINE_SECONDS,
        env=environment(PYTHONPROFILEIMPORTTIME="1"),
    )
    answer = web.post(f"{server.url}/v1/classify", content=PNG).json()
    imported = set(re.findall(r"\| +(\S+)$", ended.stderr.decode(), re.MULTILINE))
    assert json.loads(ended.stdout) == {"image": "-", **answer}
    assert {"numba", "service.engine.description"} <= imported
    assert imported.isdisjoint({"scipy.linalg", "numba.np.arraymath", "fastapi", "multiprocessing"})


def test_classify_names_bad_files_and_goes_on(models: Path, image: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.jpg"
    truncated.write_bytes(pictures.truncated_jpeg())
    empty = tmp_path / "folder"
    empty.mkdir()
    files = [str(truncated), str(tmp_path / "missing.jpg"), str(empty), str(image)]
    ended = run_here("classify", *files, "--models", str(models))
    told = complaints(ended)
    _, row, last = ended.stdout.decode().splitlines()
    assert ended.returncode == 1
    assert told[0].startswith(f"{truncated}: the image is damaged or truncated")
    assert told[1].endswith(f"missing.jpg: {MISSING}")
    assert told[2].startswith(f"{empty}: no images below it, expected files that end in .")
    assert row.startswith(f"{image} ")
    assert last.startswith("4 images, 3 failed, ")


def test_classify_prints_one_line_of_json_an_image_bad_ones_among_them(
    models: Path, image: Path
) -> None:
    ended = run_here("classify", "/nowhere", str(image), "--json", "--models", str(models))
    bad, good = map(json.loads, ended.stdout.splitlines())
    assert ended.returncode == 1
    assert complaints(ended) == []
    assert bad == {"image": "/nowhere", "error": MISSING}
    assert set(good) == {"image", "model", "known", "predictions"}
    assert set(good["model"]) == {"name", "version", "digest"}
    assert len(good["predictions"]) == len(bundles.LABELS)


def test_classify_says_once_that_an_image_has_too_many_pixels(models: Path, tmp_path: Path) -> None:
    image = tmp_path / "large.png"
    image.write_bytes(pictures.png_header(10_000, 10_000))
    ended = run_here("classify", str(image), "--models", str(models))
    sentence = "the image is 10000x10000 pixels, expected at most 50000000 pixels"
    assert len(complaints(ended)) == 1
    assert complaints(ended)[0].startswith(f"{image}: {sentence}")
    assert ended.returncode == 1


def test_classify_reads_no_more_of_a_file_than_the_limit(models: Path) -> None:
    arguments = ("classify", "/dev/zero", "--models", str(models))
    ended = run_here(*arguments, LEAFCODE_MAX_BODY_BYTES="100000")
    assert complaints(ended) == [
        "/dev/zero: the image has more bytes than 100000 (LEAFCODE_MAX_BODY_BYTES)"
    ]


def test_classify_rejects_an_unknown_model(models: Path, image: Path) -> None:
    ended = run_here("classify", str(image), "--models", str(models), "--model", "pears")
    assert ended.returncode == 1
    assert b"model 'pears' is not loaded, expected one of: apples, tiny" in ended.stderr


def test_classify_checks_the_tensors_of_its_model_and_of_no_other(
    models: Path, image: Path, tmp_path: Path
) -> None:
    bundles.copy_model(models / "apples" / "2", tmp_path / "models" / "apples" / "2")
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "models" / "tiny" / "1")
    bundles.flip_byte(folder / "tensors.safetensors", 500)
    arguments = ("classify", str(image), "--models", str(tmp_path / "models"), "--model")
    assert run_here(*arguments, "apples").returncode == 0
    ended = run_here(*arguments, "tiny")
    assert ended.returncode == 1
    assert f"{folder / 'tensors.safetensors'}: SHA-256 is " in ended.stderr.decode()


def test_classify_ends_quietly_when_nobody_reads_its_output(
    models: Path, image: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output, redirect_stdout(output):
        code = main(["classify", str(image), "--json", "--models", str(models)])
    assert code == 128 + signal.SIGPIPE
    assert [line for line in capfd.readouterr().err.splitlines() if " INFO " not in line] == []


@pytest.fixture
def interrupted(models: Path, image: Path) -> Iterator[subprocess.Popen[str]]:
    """The command with more images than it can finish: one of them is a pipe that stays empty."""
    pipe = image.with_name("pipe.png")
    os.mkfifo(pipe)
    files = [*[str(image), "/nowhere"] * 8, str(pipe)]
    command = [sys.executable, "-m", "service", "classify", *files, "--json"]
    process = subprocess.Popen(
        [*command, "--models", str(models)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(LEAFCODE_WORKERS="2"),
    )
    with process:
        yield process
        process.kill()


def test_many_images_are_told_in_order_as_they_come_and_ctrl_c_leaves_no_process(
    models: Path, interrupted: subprocess.Popen[str]
) -> None:
    best = Engine.load(models / "apples" / "2").classify(PNG, 5)
    assert isinstance(interrupted.stdout, io.TextIOWrapper)
    assert isinstance(interrupted.stderr, io.TextIOWrapper)
    lines = [json.loads(interrupted.stdout.readline()) for _ in range(16)]
    workers = children_of(interrupted.pid)
    interrupted.send_signal(signal.SIGINT)
    assert interrupted.wait(DEADLINE_SECONDS) == 130
    assert [line["predictions"][0]["label"] for line in lines[::2]] == [best[0].label] * 8
    assert [line["error"] for line in lines[1::2]] == [MISSING] * 8
    assert len(workers) == 2
    assert not any(map(is_alive, workers))
    assert interrupted.stdout.read() == ""
    assert "Traceback" not in interrupted.stderr.read()
