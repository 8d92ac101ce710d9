"""`python -m trainer warm`: what a fit needs is compiled ahead of it."""

import subprocess
import sys

from tests.support.processes import DEADLINE_SECONDS, ROOT, environment

# In a process of its own, because other tests call kernels too.
KERNELS_AFTER_WARMING = """
import importlib, pkgutil
from trainer.cli import main
from trainer.learn import kernels

assert main(["warm"]) == 0
for found in pkgutil.iter_modules(kernels.__path__):
    module = importlib.import_module(f"{kernels.__name__}.{found.name}")
    for name, value in vars(module).items():
        # Parts are compiled into the kernels that call them.
        if hasattr(value, "signatures") and value.targetoptions.get("inline") != "always":
            print(name, len(value.signatures))
"""


def test_warming_compiles_every_kernel_that_a_fit_calls() -> None:
    done = subprocess.run(
        [sys.executable, "-c", KERNELS_AFTER_WARMING],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    first, *rows = done.stdout.splitlines()
    assert first.startswith("kernels ready after ")
    compiled = {name: int(count) for name, count in map(str.split, rows)}
    assert len(compiled) >= 10
    assert [name for name, count in compiled.items() if not count] == []
