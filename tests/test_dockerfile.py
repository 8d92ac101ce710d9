"""What the image is made of, as far as that can be read; `make image-test` builds and runs it."""

import re
import subprocess

import pytest

from service import __version__
from service.settings import Settings
from tests.support.processes import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
IGNORED = (ROOT / ".dockerignore").read_text("utf-8").splitlines()


def test_the_context_is_an_allow_list_of_what_is_copied() -> None:
    rules = [line for line in IGNORED if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == allowed
    assert [name for name in allowed if not (ROOT / name).exists()] == []


def test_the_label_has_the_version_of_the_release() -> None:
    assert f"ARG VERSION={__version__}\n" in DOCKERFILE


def test_every_setting_of_the_image_exists() -> None:
    names = re.findall(r"\bLEAFCODE_(\w+)=", DOCKERFILE)
    assert "HOST" in names
    assert {name.lower() for name in names} <= set(Settings.model_fields)


def test_the_last_stage_is_the_service_and_not_root() -> None:
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]
    assert last.startswith("\nFROM runtime AS service\n")
    assert re.findall(r"^USER (.*)$", last, re.MULTILINE) == ["10001:10001"]
    assert "RUN" not in last


@pytest.mark.parametrize("script", ["prepare", "train-as-owner"])
def test_a_script_of_the_image_is_a_shell_script(script: str) -> None:
    subprocess.run(["sh", "-n", ROOT / "docker" / script], check=True)


def test_the_health_check_is_a_command_of_ours() -> None:
    assert 'CMD ["python", "-m", "service", "health"]' in DOCKERFILE
