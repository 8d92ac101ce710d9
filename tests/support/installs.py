"""Interpreters that find only what some requirements of Leafcode bring, as after pip install."""

import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.processes import DEADLINE_SECONDS, ROOT, environment

_PROGRAM = """
import runpy, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        known = top in sys.stdlib_module_names or top.startswith("_sysconfigdata")
        if not known and top not in {allowed}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
{statement}
"""


def requirements(*extras: str) -> set[str]:
    """The distributions that Leafcode requires directly, with some extras."""
    return _required("leafcode", extras)


def closure(*extras: str) -> set[str]:
    """All distributions that pip installs for Leafcode with some extras."""
    found: set[str] = set()
    waiting = [("leafcode", extras)]
    while waiting:
        name, wanted = waiting.pop()
        new = _required(name, wanted) - found
        found |= new
        waiting += [(item, ()) for item in new]
    return found


@cache
def _packages() -> Mapping[str, list[str]]:
    """The distributions of every package that can be imported; to find them takes a while."""
    return metadata.packages_distributions()


def _required(name: str, extras: Iterable[str]) -> set[str]:
    """The distributions that one requires directly."""
    wanted = [{"extra": extra} for extra in ("", *extras)]
    return {
        canonicalize_name(item.name)
        for item in map(Requirement, metadata.requires(name) or ())
        if item.marker is None or any(map(item.marker.evaluate, wanted))
    }


def run_with(extras: Iterable[str], statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement where only the packages of Leafcode with some extras can be imported."""
    installed = closure(*extras)
    allowed = {"service", "trainer"} | {
        package
        for package, distributions in _packages().items()
        if installed.intersection(map(canonicalize_name, distributions))
    }
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(allowed=allowed, statement=statement)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )


def run_module_with(
    extras: Iterable[str], module: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """`python -m module …` where only some extras are installed."""
    statement = (
        f"sys.argv[1:] = {list(arguments)}; runpy.run_module({module!r}, None, '__main__', True)"
    )
    return run_with(extras, statement)
