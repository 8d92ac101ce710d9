"""The manifests, put together by kubectl and judged by kubernetes-validate."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docker import kubernetes_schemas
from tests.image.debian import FOLDER, program
from tests.support.processes import ROOT

# From one that most clusters have left behind to the newest that the package knows.
VERSIONS = ("1.27", "1.32", "1.37")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `kubectl apply -k` would send."""
    kubectl = program("kubernetes-client", "kubectl")
    command = (kubectl, "kustomize", ROOT / "docker" / "kubernetes")
    file = tmp_path_factory.mktemp("kubernetes") / "built.yaml"
    file.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    return file


@pytest.fixture(scope="module")
def with_validator() -> dict[str, str]:
    """An environment with the package; 17 000 files, which nothing else needs."""
    packages = FOLDER / "kubernetes-validate"
    if not packages.exists():
        command = (sys.executable, "-m", "pip", "install", "--quiet", "--no-compile")
        where = ("--target", packages, "--constraint", ROOT / "constraints.txt")
        subprocess.run((*command, *where, "kubernetes-validate"), check=True)
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}"}


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_the_manifests(
    version: str, built: Path, with_validator: dict[str, str]
) -> None:
    command = (sys.executable, "-m", "kubernetes_validate", "--strict", "-k", version, built)
    done = subprocess.run(command, env=with_validator, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("INFO") == len(kubernetes_schemas.KINDS)


def test_the_schemas_of_the_other_tests_are_those_of_the_package(
    with_validator: dict[str, str],
) -> None:
    statement = "import json; from tests.docker import kubernetes_schemas as schemas; "
    statement += "print(json.dumps(schemas.gather()))"
    command = [sys.executable, "-c", statement]
    done = subprocess.run(command, env=with_validator, capture_output=True, check=True)
    assert json.loads(done.stdout) == json.loads(kubernetes_schemas.FILE.read_text())
