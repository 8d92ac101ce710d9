"""What is in the images, and what is not."""

import platform

import pytest

from service import __version__
from tests.image.containers import SERVICE, TRAINER, inspect_image, run_python

BASE = "docker.io/library/python:3.11-slim"
LEVEL = {"x86_64": "x86-64-v3", "aarch64": "generic"}[platform.machine()]

FILES = """
import json, os
print(json.dumps([os.path.join(folder, name)
    for root in ("/opt", "/src", "/etc", "/root", "/tmp", "/models", "/usr/local")
    for folder, _, names in os.walk(root) for name in names
    if os.path.getsize(os.path.join(folder, name))]))
"""
TOOLS = """
import json, shutil
print(json.dumps(list(filter(shutil.which, ("gcc", "cc", "ld", "make", "git", "curl")))))
"""
WRITABLE = """
import json, os
print(json.dumps([folder for folder, _, _ in os.walk("/opt") if os.access(folder, os.W_OK)]))
"""
PACKAGES = """
import json
from importlib.metadata import distributions
print(json.dumps([found.metadata["Name"].lower() for found in distributions(path=[
    "/opt/leafcode/lib/python3.11/site-packages"])]))
"""
TARGET = """
import json
from numba.core.registry import cpu_target
print(json.dumps(cpu_target.target_context.codegen().magic_tuple()))
"""


def test_the_service_is_at_most_600_mb(figures: list[str]) -> None:
    base = inspect_image(BASE)["Size"]
    for image in (SERVICE, TRAINER):
        size = inspect_image(image)["Size"]
        figures.append(
            f"{image}: {size / 1e6:.0f} MB, {(size - base) / 1e6:.0f} MB of them on top of the base"
        )
    assert inspect_image(SERVICE)["Size"] <= 600e6


def test_the_image_describes_itself() -> None:
    described = inspect_image(SERVICE)
    config = described["Config"]
    labels = {name.rpartition(".")[2]: value for name, value in config["Labels"].items()}
    assert (labels["title"], labels["licenses"]) == ("Leafcode", "MIT")
    assert labels["version"] == __version__
    assert (config["User"], config["StopSignal"]) == ("10001:10001", "SIGTERM")
    assert list(config["ExposedPorts"]) == ["8000/tcp"]
    assert described["Healthcheck"]["Test"] == ["CMD", "python", "-m", "service", "health"]


@pytest.mark.parametrize("image", [SERVICE, TRAINER])
def test_no_sources_tests_data_or_settings_of_the_builder_are_left(image: str) -> None:
    files = run_python(image, FILES, "--user", "0", "--workdir", "/")
    # Files that were mounted while it was built are empty, which is to say none.
    left = ("/src/", "/root/.cache", "/root/.config", "/etc/pip.conf", "/tmp/", "/models/")
    assert [name for name in files if name.startswith(left)] == []
    assert [name for name in files if "/tests/" in name] == []


def test_no_tools_of_building_or_training_are_in_the_service() -> None:
    packages = set(run_python(SERVICE, PACKAGES))
    assert {"leafcode", "numba", "uvicorn"} <= packages
    assert packages.isdisjoint(
        {"pip", "setuptools", "hatchling", "pytest", "scikit-learn", "scipy"}
    )
    assert run_python(SERVICE, TOOLS) == []


def test_no_web_framework_is_in_the_trainer() -> None:
    packages = set(run_python(TRAINER, PACKAGES))
    assert {"leafcode", "numba", "scikit-learn"} <= packages
    assert packages.isdisjoint({"pip", "fastapi", "uvicorn", "pytest"})


@pytest.mark.parametrize("image", [SERVICE, TRAINER])
@pytest.mark.parametrize("user", ["10001:10001", "4321:0"])
def test_only_root_can_write_code_and_kernels(image: str, user: str) -> None:
    assert run_python(image, WRITABLE, "--user", user) == []


@pytest.mark.parametrize("image", [SERVICE, TRAINER])
def test_kernels_are_for_a_stated_level_of_cpus_whatever_cpu_this_is(image: str) -> None:
    _, level, features = run_python(image, TARGET)
    assert (level, features) == (LEVEL, "")
