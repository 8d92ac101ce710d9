"""The file with the process id: there while the service runs, and only its own."""

import os
from pathlib import Path

import pytest

from service.errors import SettingsError
from service.pid_file import pid_file


def test_the_process_id_is_in_the_file_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "service.pid"
    with pid_file(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not list(tmp_path.iterdir())


def test_a_file_that_was_left_behind_is_replaced_whole(tmp_path: Path) -> None:
    path, other = tmp_path / "service.pid", tmp_path / "other"
    path.write_text("4194304\n")
    other.hardlink_to(path)
    with pid_file(path):
        assert path.read_text() == f"{os.getpid()}\n"
    assert other.read_text() == "4194304\n"  # never written to in place


def test_a_file_that_another_service_took_over_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "service.pid"
    with pid_file(path):
        path.write_text("7\n")
    assert path.read_text() == "7\n"


def test_a_folder_in_its_place_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    (tmp_path / "service.pid").mkdir()
    with (
        pytest.raises(SettingsError, match="which cannot be written: "),
        pid_file(tmp_path / "service.pid"),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["service.pid"]


def test_no_path_is_no_file() -> None:
    with pid_file(None):
        pass
