"""`python -m trainer warm`: what a fit needs is compiled ahead of it."""

import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from service.examples import shapes
from tests.support.processes import DEADLINE_SECONDS, ROOT, environment

# In processes of their own, because other tests call kernels too.
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

NEW_AFTER_WARMING = """
import importlib, pkgutil, sys
import service.engine.kernels, trainer.learn.kernels
from trainer.cli import main

def signatures():
    return {
        (name, signature)
        for package in (service.engine.kernels, trainer.learn.kernels)
        for found in pkgutil.iter_modules(package.__path__, package.__name__ + ".")
        for name, value in vars(importlib.import_module(found.name)).items()
        for signature in getattr(value, "signatures", ())
    }

assert main(["warm"]) == 0
known = signatures()
assert main(["fit", *sys.argv[1:]]) == 0
print(sorted({name for name, _ in signatures() - known}))
"""


def lines_of(script: str, *arguments: str) -> list[str]:
    """What a script prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=DEADLINE_SECONDS,
        env=environment(),
        cwd=ROOT,
    )
    return done.stdout.splitlines()


def test_warming_compiles_every_kernel_that_a_fit_calls() -> None:
    first, *rows = lines_of(KERNELS_AFTER_WARMING)
    assert first.startswith("kernels ready after ")
    compiled = {name: int(count) for name, count in map(str.split, rows)}
    assert len(compiled) >= 10
    assert [name for name, count in compiled.items() if not count] == []


@pytest.mark.parametrize("recipe", ["best", "fast", "paper"])
def test_a_fit_after_warming_compiles_nothing(recipe: str, tmp_path: Path) -> None:
    photos = shapes.write_dataset(tmp_path / "photos", per_class=8)
    for path in photos.rglob("*.png"):
        gray = Image.open(path).convert("L")
        Image.merge("RGB", [gray, gray.rotate(90), gray.rotate(180)]).save(path)
    options = ["--recipe", recipe, "--samples", "3000", "--atoms", "64", "--iterations", "2"]
    arguments = [str(photos), "--out", str(tmp_path / "models" / "photos"), *options, "--no-cache"]
    assert lines_of(NEW_AFTER_WARMING, *arguments)[-1] == "[]"
