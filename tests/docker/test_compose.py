"""`docker/compose.yaml` by the published schema, and what a schema cannot say."""

import argparse
import importlib.resources
import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from service.loadtest.options import add_loadtest
from service.settings import Settings
from tests.support.processes import ROOT

FILE = ROOT / "docker" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
# Each has been seen to be missing from compose files.
PRECAUTIONS = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges:true"],
}


@pytest.fixture(scope="module")
def schema() -> jsonschema_rs.Validator:
    vendored = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    text = (vendored / "compose-spec.json").read_text("utf-8")
    return jsonschema_rs.validator_for(json.loads(text))


def test_the_file_follows_the_published_schema(schema: jsonschema_rs.Validator) -> None:
    schema.validate(yaml.safe_load(FILE.read_text()))


def test_a_mistake_would_be_found(schema: jsonschema_rs.Validator) -> None:
    file = yaml.safe_load(FILE.read_text())
    file["services"]["leafcode"]["read-only"] = True
    assert not schema.is_valid(file)


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_can_change_nothing_and_has_no_privilege(name: str) -> None:
    assert {key: SERVICES[name].get(key) for key in PRECAUTIONS} == PRECAUTIONS


@pytest.mark.parametrize("name", ["leafcode", "prometheus", "grafana"])
def test_a_container_that_stays_has_limits_and_listens_on_this_machine_only(name: str) -> None:
    limits = SERVICES[name]["deploy"]["resources"]["limits"]
    assert {"cpus", "memory"} <= set(limits)
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name]["ports"])


@pytest.mark.parametrize("name", ["prometheus", "grafana"])
def test_an_image_of_others_has_a_version(name: str) -> None:
    _, _, tag = SERVICES[name]["image"].rpartition(":")
    assert tag[0] in "v0123456789"


def test_what_is_mounted_is_there() -> None:
    sources = [
        Path(volume.partition(":")[0])
        for service in SERVICES.values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    ]
    assert sources
    assert [source for source in sources if not (FILE.parent / source).is_dir()] == []


def test_settings_are_settings_of_the_service() -> None:
    names = {f"LEAFCODE_{name.upper()}" for name in Settings.model_fields}
    assert set(SERVICES["leafcode"]["environment"]) <= names


def test_the_load_test_is_a_command_of_the_service() -> None:
    command, url, *options = SERVICES["loadtest"]["command"]
    parser = argparse.ArgumentParser()
    add_loadtest(parser.add_subparsers())
    assert parser.parse_args([command, url, *options]).url == "http://leafcode:8000"


def test_a_container_is_killed_only_after_the_service_has_had_its_time_to_stop() -> None:
    grace = int(SERVICES["leafcode"]["stop_grace_period"].removesuffix("s"))
    assert grace > Settings().shutdown_seconds
