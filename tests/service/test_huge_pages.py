"""Large pages, in a process of their own."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT

PROGRAM = """
from pathlib import Path
from service.huge_pages import join_pages

kept = [bytes([number % 251]) * 1000 for number in range(20_000)]
before = list(kept)
joined = join_pages()
assert kept == before
rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
(huge,) = (row for row in rows if row.startswith("AnonHugePages"))
print(joined, int(huge.split()[1]) // 2048)
"""

ALLOWED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def test_joined_pages_are_large_ones_and_hold_what_was_there() -> None:
    release = tuple(map(int, platform.release().split(".")[:2])) if ALLOWED.exists() else (0, 0)
    if release < (6, 1) or "[never]" in ALLOWED.read_text():
        pytest.skip("this kernel joins no pages on demand, or gives no large ones")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=ROOT
    )
    joined, found = map(int, done.stdout.split())
    assert found >= joined
    assert joined > 0
