"""The command line: in real processes, or in this one where the command ends by itself."""

import json
import socket
from pathlib import Path

import pytest

from service.cli import _parser
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
