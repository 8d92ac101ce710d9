"""Memory that was freed is used again, without new pages from the system."""

import platform
import subprocess
import sys

import pytest

_CYCLES = 20
_ARRAYS = 16
_BYTES = 1_000_000

_SCRIPT = f"""
import resource
from service.engine.freed_memory import keep_freed_memory

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({_CYCLES}):
        [bytearray(b"x") * {_BYTES} for _ in range({_ARRAYS})]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
print(faults() * resource.getpagesize())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no mallopt")
def test_arrays_that_follow_one_another_take_the_same_memory() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    assert int(made.stdout) < 2 * _ARRAYS * _BYTES
