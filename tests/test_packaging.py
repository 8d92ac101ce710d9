"""What `pip install` brings, by the installed package's metadata, and what runs with it."""

import tomllib

import pytest

from tests.support.installs import closure, requirements, run_module_with, run_with
from tests.support.processes import ROOT

NEVER_OF_THE_CLIENT = {"fastapi", "llvmlite", "numba", "pillow", "pydantic", "starlette", "uvicorn"}


def test_the_installed_package_is_the_one_described_here() -> None:
    """Else the tests below would judge an older pyproject.toml; `make setup` installs it again."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert requirements() == {line.partition(">=")[0] for line in project["dependencies"]}


@pytest.mark.parametrize("extras", [(), ("client",)])
def test_the_client_brings_httpx_and_numpy_alone(extras: tuple[str, ...]) -> None:
    assert requirements(*extras) == {"httpx", "numpy"}
    assert closure(*extras).isdisjoint(NEVER_OF_THE_CLIENT)


def test_the_trainer_brings_the_engine_but_no_web_framework() -> None:
    brought = closure("trainer")
    assert {"numba", "pillow", "safetensors", "scikit-learn"} <= brought
    assert brought.isdisjoint({"fastapi", "uvicorn"})


def test_the_server_brings_no_training_and_no_client_of_tests() -> None:
    brought = closure("server")
    assert {"fastapi", "numba", "pillow", "uvicorn"} <= brought
    assert brought.isdisjoint({"scikit-learn", "scipy", "pytest"})


def test_tests_and_benchmarks_bring_the_server_and_the_trainer() -> None:
    for extra in ("test", "bench"):
        assert closure("server", "trainer") <= closure(extra)


def test_the_client_works_with_what_it_brings() -> None:
    statement = """
import httpx
from service.client import Client
transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"models": []}))
print(Client("http://test", transport=transport).models())
"""
    done = run_with(["client"], statement)
    assert done.stderr == ""
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("extra", "module", "arguments"),
    [
        ("client", "service", ("serve",)),
        ("client", "trainer", ("fit", "photos", "--out", "models/photos")),
        ("server", "trainer", ("fit", "photos", "--out", "models/photos")),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_sentence(
    extra: str, module: str, arguments: tuple[str, ...]
) -> None:
    done = run_module_with([extra], module, *arguments)
    needed = {"service": "server", "trainer": "trainer"}[module]
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "is not installed" in line
    assert line.endswith(f"make setup, or pip install 'leafcode[{needed}]'")


@pytest.mark.parametrize(
    ("extra", "module", "arguments"),
    [
        ("server", "service", ("serve", "--help")),
        ("trainer", "trainer", ("fit", "--help")),
        ("server", "trainer", ("fit", "--help")),
    ],
)
def test_help_needs_no_extra_but_one_with_the_engine(
    extra: str, module: str, arguments: tuple[str, ...]
) -> None:
    done = run_module_with([extra], module, *arguments)
    assert done.returncode == 0, done.stderr
    assert f"usage: python -m {module}" in done.stdout
