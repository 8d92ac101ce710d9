"""Settings come from the environment or from arguments, and wrong ones are refused."""

import os
from functools import cache

import pytest
from pydantic import ValidationError

from service.cores import usable_cores
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


@pytest.mark.parametrize("threads", [1, 2, 1024])
def test_there_is_one_worker_for_each_share_of_usable_cores(threads: int) -> None:
    settings = load_settings(threads=threads)
    assert settings.workers == max(1, len(usable_cores()) // threads)


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
