"""The suite is the same wherever and whenever it is collected.

pytest-xdist refuses to run when its processes have collected different tests, which
happens by luck if the id of a test depends on the clock or on the order of a set.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import conftest
from tests.support import processes

# Python runs a module of the name `sitecustomize` at its start.
AN_HOUR_LATER = """
import time

now, now_ns = time.time, time.time_ns
time.time = lambda: now() + 3600
time.time_ns = lambda: now_ns() + 3600 * 10**9
"""


def collect(arguments: list[str], **variables: str) -> set[str]:
    """The ids of the tests that another process collects."""
    options = ("--collect-only", "--quiet", "-p", "no:cacheprovider")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        check=False,
        cwd=processes.ROOT,
        env=processes.environment(**variables),
        stdout=subprocess.PIPE,
        text=True,
        timeout=2 * processes.DEADLINE_SECONDS,
    )
    assert ended.returncode == 0, ended.stdout
    return {line for line in ended.stdout.splitlines() if "::" in line}


@pytest.mark.skipif(
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1,
    reason="pytest-xdist has compared what its processes collected, one of them an hour later",
)
def test_another_process_an_hour_later_collects_the_same_tests(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(AN_HOUR_LATER)
    path = f"{tmp_path}{os.pathsep}{processes.ROOT}"
    # Ours is some number that differs from process to process, unless it was set.
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    ours = {item.nodeid for item in request.session.items}
    theirs = collect(request.config.args, PYTHONHASHSEED=seed, PYTHONPATH=path)
    # Some of theirs may be missing here, if this run selects tests by an expression.
    assert ours - theirs == set()


@pytest.mark.parametrize("file", conftest.LONGEST)
def test_a_file_that_begins_early_is_there(file: str) -> None:
    assert (processes.ROOT / file).is_file()
