"""Threads of BLAS, in a process of its own: what is loaded and how many threads it has."""

import subprocess
import sys

from tests.support.processes import environment

_PROGRAM = """
from threadpoolctl import threadpool_info
from trainer.parallel import one_blas_thread

with one_blas_thread():
    import scipy.linalg
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
print(*(library["num_threads"] for library in libraries))
"""


def test_blas_of_a_library_that_is_imported_later_has_one_thread_too() -> None:
    # SciPy brings a BLAS of its own, and the trainer imports it where it is called.
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**environment(), "OPENBLAS_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert set(done.stdout.split()) == {"1"}
