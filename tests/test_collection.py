"""The suite is the same wherever and whenever it is collected.

pytest-xdist refuses to run when its processes have collected different tests, which
happens by luck if the id of a test depends on the clock or on the order of a set.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import processes

# Python runs a module of the name `sitecustomize` at its start.
AN_HOUR_LATER = """
import time

now, now_ns = time.time, time.time_ns
time.time = lambda: now() + 3600
time.time_ns = lambda: now_ns() + 3600 * 10**9
"""

# As `make test` starts xdist's processes, which leave schemathesis to a process of its own.
OPTIONS = (
    *("--collect-only", "--quiet", "-p", "no:cacheprovider", "-p", "no:schemathesis"),
    *("--ignore", "tests/service/test_schemathesis.py"),
)


def collect(**variables: str) -> "subprocess.Popen[str]":
    """A process that writes the ids of all tests, one a line."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS],
        cwd=processes.ROOT,
        env=processes.environment(**variables),
        stdout=subprocess.PIPE,
        text=True,
    )


def ids_from(process: "subprocess.Popen[str]") -> list[str]:
    output, _ = process.communicate(timeout=2 * processes.DEADLINE_SECONDS)
    assert process.returncode == 0, output
    return [line for line in output.splitlines() if "::" in line]


def test_another_process_an_hour_later_collects_the_same_tests(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(AN_HOUR_LATER)
    path = f"{tmp_path}{os.pathsep}{processes.ROOT}"
    now = collect(PYTHONHASHSEED="1")
    later = collect(PYTHONHASHSEED="2", PYTHONPATH=path)
    expected, found = ids_from(now), ids_from(later)
    assert len(expected) > 1000
    assert found == expected
