"""How a server is set up before it answers anything, and why it may not be."""

import subprocess
import sys
from pathlib import Path

import pytest

from service.engine import BundleError, LeafcodeError
from service.errors import SettingsError
from service.pool.fork_server_process import ForkServerProcess
from service.server import serve
from service.settings import load_settings
from tests.support import bundles
from tests.support.processes import DEADLINE_SECONDS, environment


def start(folder: Path, soft: int, hard: int) -> str:
    """The log of a service that has no model, where the system allows so many open files."""
    serve = f"exec {sys.executable} -m service serve --port 0 --models {folder}"
    return subprocess.run(
        ["sh", "-c", f"ulimit -Sn {soft}; ulimit -Hn {hard}; {serve} --max-connections 1000"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
        env=environment(),
    ).stderr


def test_fewer_open_files_are_fewer_connections(tmp_path: Path) -> None:
    log = start(tmp_path, 256, 1_200)
    assert "no bundle found" in log
    assert "at most 444 connections, not 1000: the system allows 1200 open files" in log


def rejection(models: Path, **settings: object) -> LeafcodeError:
    """Why it does not serve; its fork server is of no use then."""
    with ForkServerProcess(1, None) as fork_server, pytest.raises(LeafcodeError) as caught:
        serve(load_settings(**{"models": models, "port": 0, **settings}), fork_server)
    return caught.value


@pytest.mark.parametrize(
    ("setting", "value", "sentence"),
    [
        ("host", "192.0.2.1", "cannot listen on port 0 of '192.0.2.1'"),
        ("default_model", "pears", "(--default-model) is 'pears', expected one of the models in"),
        ("pid_file", "/nowhere/service.pid", "is '/nowhere/service.pid', which cannot be written"),
        ("pid_file", "/", "(--pid-file) is '/', which cannot be written"),
    ],
)
def test_what_it_cannot_find_or_write_or_listen_on_is_rejected(
    models: Path, setting: str, value: str, sentence: str
) -> None:
    error = rejection(models, **{setting: value})
    assert isinstance(error, SettingsError)
    assert sentence in str(error)


def test_a_manifest_with_one_flipped_byte_is_rejected(models: Path, tmp_path: Path) -> None:
    folder = bundles.copy_model(models / "tiny" / "1", tmp_path / "tiny" / "1")
    bundles.flip_byte(folder / "manifest.json", 500)
    error = rejection(tmp_path)
    assert isinstance(error, BundleError)
    assert str(error).startswith(f"{folder / 'manifest.json'}: ")
