"""The command line: in real processes, or in this one where the command ends by itself."""

import json
import socket
from pathlib import Path

import pytest

from service.cli import _parser
from service.engine import Engine
from tests.support import bundles, parsers, pictures
from tests.support.clients import web
from tests.support.commands import run_here
from tests.support.processes import Server, run

PNG = pictures.png()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    path.write_bytes(PNG)
    return path


def test_classify_prints_a_table(models: Path, image: Path) -> None:
    ended = run_here("classify", str(image), "--models", str(models), "--top-k", "2")
    best = Engine.load(models / "apples" / "2").classify(PNG, 2)
    lines = ended.stdout.decode().splitlines()
    assert ended.returncode == 0
    assert lines[:2] == ["labels by apples version 2", str(image)]
    assert [line.split()[-1] for line in lines[2:]] == [item.label for item in best]


def test_classify_answers_with_the_default_model_of_the_setting(models: Path, image: Path) -> None:
    arguments = ("classify", str(image), "--json", "--models", str(models))
    ended = run_here(*arguments, LEAFCODE_DEFAULT_MODEL="tiny")
    assert json.loads(ended.stdout)["model"]["name"] == "tiny"


def test_classify_gives_the_same_as_http(server: Server, models: Path) -> None:
    ended = run("classify", "-", "--json", "--models", str(models), stdin=PNG)
    answer = web.post(f"{server.url}/v1/classify", content=PNG).json()
    printed = json.loads(ended.stdout)
    assert printed["model"] == answer["model"]
    assert printed["results"] == [{"image": "-", "predictions": answer["predictions"]}]


def test_classify_names_bad_files_and_goes_on(models: Path, image: Path, tmp_path: Path) -> None:
    truncated = tmp_path / "truncated.jpg"
    truncated.write_bytes(pictures.truncated_jpeg())
    files = [str(truncated), str(tmp_path / "missing.jpg"), str(tmp_path), str(image)]
    ended = run_here("classify", *files, "--models", str(models))
    # A slow machine says first that it compiles.
    complaints = [line for line in ended.stderr.decode().splitlines() if " INFO " not in line]
    assert ended.returncode == 1
    assert complaints[0].startswith(f"{truncated}: the image is damaged or truncated")
    assert complaints[1].endswith("missing.jpg: cannot be read: No such file or directory")
    assert complaints[2] == f"{tmp_path}: cannot be read: Is a directory"
    assert ended.stdout.decode().startswith(f"labels by apples version 2\n{image}\n")


def test_classify_puts_errors_into_its_json(models: Path, image: Path) -> None:
    ended = run_here("classify", "/nowhere", str(image), "--json", "--models", str(models))
    bad, good = json.loads(ended.stdout)["results"]
    assert ended.returncode == 1
    assert bad == {"image": "/nowhere", "error": "cannot be read: No such file or directory"}
    assert len(good["predictions"]) == len(bundles.LABELS)


def test_classify_says_once_that_an_image_has_too_many_pixels(models: Path, tmp_path: Path) -> None:
    image = tmp_path / "large.png"
    image.write_bytes(pictures.png_header(10_000, 10_000))
    ended = run_here("classify", str(image), "--models", str(models))
    sentence = "the image is 10000x10000 pixels, expected at most 50000000 pixels"
    assert ended.stderr.decode().startswith(f"{image}: {sentence}")
    assert ended.returncode == 1


def test_classify_refuses_an_unknown_model(models: Path, image: Path) -> None:
    ended = run_here("classify", str(image), "--models", str(models), "--model", "pears")
    assert ended.returncode == 1
    assert b"model 'pears' is not loaded, expected one of: apples, tiny" in ended.stderr


def test_an_empty_folder_stands_for_the_embedded_model_where_the_setting_says_so(
    image: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    (models / "lost+found").mkdir(parents=True)
    (models / ".hidden").touch()
    variables = {"LEAFCODE_MODELS": str(models), "LEAFCODE_EMPTY_MODELS": "embedded"}
    ended = run_here("classify", str(image), "--json", **variables)
    assert json.loads(ended.stdout)["model"]["name"] == "caltech101"


@pytest.mark.parametrize(("setting", "inside"), [("reject", "lost+found"), ("embedded", "1")])
def test_no_other_folder_stands_for_the_embedded_model(
    image: Path, tmp_path: Path, setting: str, inside: str
) -> None:
    models = tmp_path / "models"
    (models / inside).mkdir(parents=True)
    variables = {"LEAFCODE_MODELS": str(models), "LEAFCODE_EMPTY_MODELS": setting}
    ended = run_here("classify", str(image), **variables)
    assert ended.returncode == 1
    assert f"{models}: no bundle found" in ended.stderr.decode()


@pytest.mark.parametrize("arguments", [["serve", "--port", "x"], ["classify"], ["fly"], []])
def test_wrong_arguments_end_with_code_two(arguments: list[str]) -> None:
    ended = run_here(*arguments)
    assert ended.returncode == 2
    assert b"Traceback" not in ended.stderr


def test_a_wrong_setting_is_refused_in_one_sentence() -> None:
    ended = run_here("serve", LEAFCODE_THREADS="none")
    assert ended.returncode == 2
    assert ended.stderr == (
        b"leafcode: LEAFCODE_THREADS (--threads) is 'none', "
        b"expected a whole number from 1 to 1024\n"
    )


def test_a_misspelt_variable_is_refused_in_one_sentence() -> None:
    ended = run_here("serve", LEAFCODE_PROT="9000")
    assert ended.returncode == 2
    assert ended.stderr == b"leafcode: LEAFCODE_PROT is unknown, did you mean LEAFCODE_PORT?\n"


def test_no_option_may_be_abbreviated() -> None:
    assert [item.prog for item in parsers.all_of(_parser()) if item.allow_abbrev] == []
    with pytest.raises(SystemExit):
        _parser().parse_args(["classify", "photo.jpg", "--top", "3"])


def test_serve_refuses_a_bundle_with_one_flipped_byte(models: Path, tmp_path: Path) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    tensors = folder / "tensors.safetensors"
    bundles.flip_byte(tensors, 500)
    ended = run("serve", "--port", "0", "--models", str(tmp_path))
    assert ended.returncode == 1
    *_, line = map(json.loads, ended.stderr.splitlines())
    assert line["level"] == "error"
    assert line["message"].startswith(f"cannot serve: {tensors}: ")
    assert b"Traceback" not in ended.stderr
    assert b"ready" not in ended.stderr


def test_serve_refuses_a_port_in_use(models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run("serve", "--port", port, "--models", str(models))
    assert ended.returncode == 2
    assert f"port {port} of 127.0.0.1 is in use" in ended.stderr.decode()
    assert b"Traceback" not in ended.stderr


def test_serve_stops_cleanly(models: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "service.pid"
    pid_file.write_text("1\n")  # left by a service that was killed
    arguments = ("--models", str(models), "--pid-file", str(pid_file), "--default-model", "tiny")
    with Server(*arguments) as server:
        assert web.get(f"{server.url}/readyz").status_code == 200
        assert pid_file.read_text() == f"{server.process.pid}\n"
        assert any(f"(pid {server.process.pid}, " in line for line in server.log)
        assert any("requests that name no model get tiny version 1" in line for line in server.log)
        cards = web.get(f"{server.url}/v1/models").json()["models"]
        assert [card["name"] for card in cards if card["default"]] == ["tiny"]
        assert server.stop() == 0
    assert not list(tmp_path.iterdir())
    assert "stopped" in server.log[-1]
    assert "Traceback" not in "".join(server.log)
