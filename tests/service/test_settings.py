"""Settings come from the environment or from arguments, and wrong ones are refused."""

import os
from collections.abc import Callable
from functools import cache

import pytest
from pydantic import ValidationError

from service.errors import SettingsError
from service.settings import EMBEDDED_MODELS, Settings, load_settings
from tests.support.processes import run


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("LEAFCODE_"):
            monkeypatch.delenv(name)


def test_defaults_serve_the_embedded_models_to_this_machine_only() -> None:
    settings = load_settings()
    assert (settings.models, settings.host, settings.port) == (EMBEDDED_MODELS, "127.0.0.1", 8000)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAFCODE_MAX_IMAGES", "3")
    assert load_settings().max_images == 3


def test_arguments_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAFCODE_PORT", "1")
    assert load_settings(port="2", host=None).port == 2


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "http", "a whole number from 0 to 65535"),
        ("threads", "0", "a whole number from 1 to 1024"),
        ("workers", "0", "a whole number from 1 to 1024"),
        ("queue_size", "0", "a whole number from 1 to 100000"),
        ("deadline_seconds", "0.5", "a whole number from 1 to 3600"),
        ("poll_seconds", "-1", "a whole number from 0 to 86400"),
        ("max_body_bytes", "1e6", "a whole number from 1000 to 1000000000"),
        ("log_level", "loud", "one of debug, info, warning, error"),
        ("default_model", "", "the name of a model"),
        ("pin", "yes", "one of auto, always, never"),
        ("log_format", "xml", "one of auto, json, text"),
        ("header_timeout_seconds", "0", "a whole number from 1 to 3600"),
        ("body_timeout_seconds", "-1", "a whole number from 1 to 3600"),
        ("min_body_rate", "0", "a whole number from 1 to 1000000000"),
        ("keep_alive_seconds", "", "a whole number from 1 to 3600"),
        ("max_header_bytes", "999", "a whole number from 1000 to 1000000"),
        ("open_paths", "healthz", "paths, separated by commas"),
        (
            "cors_origins",
            "example.org",
            "origins such as https://example.org, separated by commas, or *",
        ),
        ("otlp_endpoint", "localhost", "a URL such as http://localhost:4318/v1/traces"),
        ("host", "", "the address to listen on"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_range(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(f"LEAFCODE_{name.upper()}", value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    flag = "--" + name.replace("_", "-")
    assert (
        str(caught.value) == f"LEAFCODE_{name.upper()} ({flag}) is {value!r}, expected {expected}"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LEAFCODE_PROT", "is unknown, did you mean LEAFCODE_PORT?"),
        ("LEAFCODE_MAX_IMAGE", "is unknown, did you mean LEAFCODE_MAX_IMAGES?"),
        ("leafcode_prot", "is unknown, did you mean LEAFCODE_PORT?"),
        ("LEAFCODE_", "is unknown; python -m service serve --help lists the settings"),
        ("LEAFCODE_XYZZY", "is unknown; python -m service serve --help lists the settings"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: str
) -> None:
    monkeypatch.setenv(name, "9000")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value) == f"{name} {expected}"


def test_all_unknown_variables_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAFCODE_PROT", "9000")
    monkeypatch.setenv("LEAFCODE_HOTS", "0.0.0.0")
    with pytest.raises(SettingsError, match=r"^LEAFCODE_HOTS is .* LEAFCODE_PROT is .*PORT\?$"):
        load_settings()


@pytest.mark.parametrize("spelling", [str.lower, str.upper])
def test_variables_are_known_in_small_letters_too(
    monkeypatch: pytest.MonkeyPatch, spelling: Callable[[str], str]
) -> None:
    monkeypatch.setenv(spelling("LEAFCODE_MAX_IMAGES"), "3")
    assert load_settings().max_images == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEAFCODE_SERVICE_HOST", "10.0.0.7"),
        ("LEAFCODE_SERVICE_PORT", "80"),
        ("LEAFCODE_SERVICE_PORT_HTTP", "80"),
        ("LEAFCODE_PORT_80_TCP", "tcp://10.0.0.7:80"),
        ("LEAFCODE_PORT_80_TCP_ADDR", "10.0.0.7"),
        ("LEAFCODE_CANARY_SERVICE_HOST", "10.0.0.8"),
        ("LEAFCODE_CANARY_PORT", "tcp://10.0.0.8:80"),
    ],
)
def test_what_kubernetes_sets_for_services_of_our_name_is_no_mistake(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    load_settings()


def test_a_port_that_kubernetes_set_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEAFCODE_PORT", "tcp://10.0.0.7:80")
    with pytest.raises(SettingsError, match="enableServiceLinks: false"):
        load_settings()
    assert load_settings(port="8000").port == 8000


def test_settings_do_not_change() -> None:
    settings = load_settings()
    with pytest.raises(ValidationError):
        settings.port = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_every_setting_says_what_it_is_for(name: str) -> None:
    assert Settings.model_fields[name].description


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_the_help_lists_every_setting(name: str) -> None:
    assert f"LEAFCODE_{name.upper()}" in serve_help()


@cache
def serve_help() -> str:
    return run("serve", "--help").stdout.decode()
