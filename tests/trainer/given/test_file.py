"""Files of groups: what is read from them, and what is refused."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.given_groups import write_json
from trainer.errors import ConfigError
from trainer.given.file import GroupsFile, read_groups


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([[0, 8]], "group 0 names atom 8, expected ids from 0 to 7 for 8 atoms"),
        ([[0], [0, 1, 2, 3]], "group 1 has 4 atoms, expected at most the 3 nonzeros"),
        ([[0, 0]], r"group 0 is \[0, 0\], expected different atom ids"),
        ([[-1]], "group 0 is"),
        ([], "0 groups"),
        ([[]], "group 0 is"),
        ([[0.5]], "does not hold lists of whole numbers"),
        ([[True]], "does not hold lists of whole numbers"),
        ([0, 1], "does not hold lists of whole numbers"),
        ("text", "does not hold lists of whole numbers"),
        ({"grups": [[0]]}, r"has the members \['grups'\], expected a JSON list"),
        ({"groups": [[0]], "costs": 3}, "'costs' is not a list of lists of numbers"),
        ({"groups": [[0]], "costs": [[1, 2]]}, "costs of group 0 are"),
        ({"groups": [[0]], "costs": [[-1]]}, "costs of group 0 are"),
    ],
)
def test_groups_that_do_not_fit_are_refused(tmp_path: Path, document: object, message: str) -> None:
    path = write_json(tmp_path / "g.json", document)
    with pytest.raises(ConfigError, match=message) as caught:
        read_groups(GroupsFile(path, 8, 3))
    assert str(path) in str(caught.value)


def test_costs_and_greed_do_not_go_together(tmp_path: Path) -> None:
    path = write_json(tmp_path / "g.json", {"groups": [[0]], "costs": [[1]]})
    with pytest.raises(ConfigError, match="greedy search of groups does not know"):
        read_groups(GroupsFile(path, 8, 3, "greedy"))


@pytest.mark.parametrize("name", ["g.json", "g.npy"])
def test_files_that_are_no_groups_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_groups(GroupsFile(tmp_path / name, 8, 3))
    (tmp_path / name).write_bytes(b"[[1, 2")
    with pytest.raises(ConfigError, match="cannot be read as groups"):
        read_groups(GroupsFile(tmp_path / name, 8, 3))


def test_an_array_of_fractions_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "g.npy", np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="whole numbers"):
        read_groups(GroupsFile(tmp_path / "g.npy", 8, 3))


def test_atoms_in_no_group_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_groups(GroupsFile(write_json(tmp_path / "g.json", [[0, 1], [2]]), 8, 3))
    assert "5 of the 8 atoms are in no group and stay unused" in caplog.text
