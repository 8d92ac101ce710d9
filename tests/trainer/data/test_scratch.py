"""Descriptors in mapped files: the same bits, and really not in memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from service.engine.arrays import Float32Array, frozen
from tests.support.processes import environment
from trainer.data.scratch import copied, joined, reordered
from trainer.given.codes import learn_given_codes
from trainer.given.greedy import GreedyGroups, available_in
from trainer.given.groups import given_groups
from trainer.learn.algorithm2 import CodeSettings, learn_codes, learn_groups
from trainer.learn.hashing import HashSettings, build_hash
from trainer.learn.tree import TreeSettings, build_tree

SETTINGS = {
    "plain": CodeSettings(24, 3, 3),
    "glued": CodeSettings(24, 3, 3, groups=7),
    "K-SVD": CodeSettings(24, 3, 3, dictionary_update="ksvd"),
    "most atoms unused": CodeSettings(100, 3, 3, groups=7, dictionary_update="ksvd"),
}


def _rows(n: int = 500) -> Float32Array:
    return np.abs(np.random.default_rng(0).normal(size=(n, 128))).astype(np.float32)


def _is_mapped(rows: Float32Array) -> bool:
    return isinstance(rows, np.memmap) or isinstance(rows.base, np.memmap)


def test_what_is_made_of_mapped_rows_is_mapped_even_through_a_view(tmp_path: Path) -> None:
    rows, order = _rows(), np.random.default_rng(1).permutation(500)
    mapped = joined(iter([rows[:100], rows[100:]]), tmp_path)
    for view in (mapped, frozen(mapped), frozen(mapped)[:]):
        for made, expected in ((reordered(view, order), rows[order]), (copied(view), rows)):
            assert _is_mapped(made)
            np.testing.assert_array_equal(made, expected)


def test_rows_in_memory_stay_in_memory() -> None:
    rows = _rows()
    assert not _is_mapped(reordered(rows, np.arange(500)))
    assert not _is_mapped(copied(rows))


def test_a_copy_can_be_written_and_its_source_stays(tmp_path: Path) -> None:
    mapped = joined(iter([_rows()]), tmp_path)
    copied(mapped)[:] = 0
    np.testing.assert_array_equal(mapped, _rows())


def test_mapped_files_have_no_name_so_that_nothing_is_left_behind(tmp_path: Path) -> None:
    mapped = joined(iter([_rows()]), tmp_path)
    kept = reordered(mapped, np.arange(500)), copied(mapped)
    assert not list(tmp_path.iterdir())
    assert all(rows.any() for rows in kept)


def test_no_rows_are_no_file(tmp_path: Path) -> None:
    assert joined(iter([]), tmp_path).shape == (0, 128)
    assert not list(tmp_path.iterdir())
    mapped = joined(iter([_rows()]), tmp_path)
    assert reordered(mapped, np.arange(0)).shape == (0, 128)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_mapped_descriptors_learn_the_same_bits(settings: CodeSettings, tmp_path: Path) -> None:
    rows = _rows()
    coders = []
    for descriptors in (rows, joined(iter([rows]), tmp_path)):
        tree = build_tree(descriptors, TreeSettings(depth=4))
        learned = learn_codes(descriptors, tree, settings, np.random.default_rng(0))
        coders.append(learned.coder)
    np.testing.assert_array_equal(coders[0].table, coders[1].table)
    np.testing.assert_array_equal(coders[0].dictionary, coders[1].dictionary)


def test_mapped_descriptors_without_a_hash_learn_the_same_bits(tmp_path: Path) -> None:
    rows, settings = _rows(), CodeSettings(24, 3, 3, groups=9, dictionary_update="ksvd")
    learned, again = (
        learn_groups(descriptors, settings, np.random.default_rng(0))
        for descriptors in (rows, joined(iter([rows]), tmp_path))
    )
    np.testing.assert_array_equal(learned.coder.dictionary, again.coder.dictionary)
    np.testing.assert_array_equal(learned.group_ids, again.group_ids)


@pytest.mark.parametrize("greedy", ["exhaustive", "greedy"])
def test_mapped_descriptors_learn_the_same_bits_for_given_groups(
    tmp_path: Path, greedy: str
) -> None:
    rows, groups = _rows(), given_groups([[0, 1, 2], [2, 3, 4], [5, 6, 7], [1, 6]])
    structure = groups if greedy == "exhaustive" else GreedyGroups(available_in(groups), 3)
    coders = []
    for descriptors in (rows, joined(iter([rows]), tmp_path)):
        tree = build_tree(descriptors, TreeSettings(depth=4))
        learned = learn_given_codes(
            descriptors, tree, structure, CodeSettings(8, 3, 3), np.random.default_rng(0)
        )
        coders.append(learned.coder)
    np.testing.assert_array_equal(coders[0].table, coders[1].table)
    np.testing.assert_array_equal(coders[0].dictionary, coders[1].dictionary)


def test_mapped_descriptors_hash_the_same(tmp_path: Path) -> None:
    rows = _rows()
    hashes = [
        build_hash(descriptors, HashSettings(5), np.random.default_rng(0))
        for descriptors in (rows, joined(iter([rows]), tmp_path))
    ]
    np.testing.assert_array_equal(hashes[0].directions, hashes[1].directions)


# What a process may take from the system besides mapped files is limited to three quarters of the
# descriptors once everything is compiled. Pages of files are not counted: they can go.
# One thread, and an allocator that gives back what was freed, make it the same every time.
FRUGAL = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
LIMITED = """
import os, resource, sys
from pathlib import Path
import numpy as np
from trainer.data.scratch import joined
from trainer.given.codes import learn_given_codes
from trainer.given.greedy import GreedyGroups, available_in
from trainer.given.groups import disjoint_groups
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.hashing import HashSettings, build_hash
from trainer.learn.tree import TreeSettings, build_tree

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

def rows(parts):
    for number in range(parts):
        yield np.abs(np.random.default_rng(number).normal(size=(4000, 128))).astype(np.float32)

def learn(descriptors):
    build_hash(descriptors, HashSettings(4), np.random.default_rng(0))
    tree = build_tree(descriptors, TreeSettings(depth=5))
    for groups in (1, 16):
        settings = CodeSettings(16, 2, 1, groups, "ksvd")
        learn_codes(descriptors, tree, settings, np.random.default_rng(0))
    groups = disjoint_groups(8, 2)
    for structure in (groups, GreedyGroups(available_in(groups), 2)):
        rng = np.random.default_rng(0)
        learn_given_codes(descriptors, tree, structure, CodeSettings(16, 2, 1), rng)

def held():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if "VmData" in line)

def learn_in_little_memory(scratch):
    descriptors = joined(rows(16), scratch)
    unlimited = resource.getrlimit(resource.RLIMIT_DATA)
    limit = held() + descriptors.nbytes * 3 // 4
    resource.setrlimit(resource.RLIMIT_DATA, (limit, unlimited[1]))
    try:
        learn(descriptors)
        return "learned from {} bytes".format(descriptors.nbytes)
    except MemoryError:
        return "out of memory"
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, unlimited)

scratch = Path(sys.argv[1])
learn(joined(rows(1), scratch))
print("mapped:", learn_in_little_memory(scratch))
print("in memory:", learn_in_little_memory(None))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What became of learning with little memory, from mapped files and from memory."""
    if sys.platform != "linux":
        pytest.skip("needs Linux's limit on private memory")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path_factory.mktemp("scratch"))],
        env=environment(**FRUGAL),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mapped_descriptors_are_learned_from_in_less_memory_than_they_would_take(
    outcomes: str,
) -> None:
    assert "mapped: learned from 32768000 bytes" in outcomes


def test_without_a_scratch_folder_that_memory_does_not_suffice(outcomes: str) -> None:
    assert "in memory: out of memory" in outcomes
