"""API keys and CORS: who may ask, and what nobody may see."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from service.app import create_app
from service.errors import SettingsError
from service.http.auth import Keys, read_keys
from service.settings import Settings, load_settings
from tests.support import pictures
from tests.support.clients import client_of, problem_of, web
from tests.support.processes import Server, children_of, environment, until

PNG = pictures.png()
FIRST, SECOND, FILED = "first-key-0123456789", "second-key-!#$%&/()", "filed-key-9876543210"
NEXT = "next-key-0011223344"


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"# for the nightly job\n\n  {FILED}\n")
    return file


@pytest.fixture(scope="module")
def locked(models: Path, keys_file: Path) -> Iterator[Server]:
    """A server with three keys from two sources."""
    env = environment(LEAFCODE_API_KEYS=f"{FIRST}, {SECOND}", LEAFCODE_API_KEYS_FILE=str(keys_file))
    with Server("--models", str(models), "--log-level", "debug", env=env) as running:
        yield running


# Named, because pytest puts the name of a test into the environment of its processes.
@pytest.mark.parametrize("key", [FIRST, SECOND, FILED], ids=["first", "second", "filed"])
@pytest.mark.parametrize(
    ("name", "prefix"),
    [("Authorization", "Bearer "), ("Authorization", "bearer "), ("X-API-Key", "")],
)
def test_every_key_opens_by_every_header(locked: Server, key: str, name: str, prefix: str) -> None:
    url, headers = f"{locked.url}/v1/classify", {name: prefix + key}
    assert web.post(url, content=PNG, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X-API-Key": ""},
        {"X-API-Key": FIRST[:-1]},
        {"X-API-Key": FIRST + "x"},
        {"X-API-Key": f"{FIRST}, {SECOND}"},
        {"Authorization": f"Basic {FIRST}"},
        {"Authorization": FIRST},
        {"Authorization": "Bearer"},
    ],
)
@pytest.mark.parametrize("path", ["/v1/classify", "/v1/models", "/docs", "/healthz/", "/nowhere"])
def test_anything_else_is_answered_401(locked: Server, path: str, headers: dict[str, str]) -> None:
    response = web.post(locked.url + path, content=PNG, headers=headers)
    problem_of(response, 401)
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.headers["x-request-id"]
    assert FIRST[:8] not in response.text


@pytest.mark.parametrize(
    "path", ["/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"]
)
def test_probes_and_metrics_need_no_key(locked: Server, path: str) -> None:
    assert web.get(locked.url + path).status_code == 200


def test_no_key_is_logged_or_handed_to_a_worker(locked: Server) -> None:
    for key in (FIRST, FILED, "wrong-key-0123456789"):
        web.get(f"{locked.url}/v1/models", headers={"X-API-Key": key})
        web.get(f"{locked.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    log = "".join(locked.log)
    assert '"reason":"unauthorized"' in log
    assert not [key for key in (FIRST, SECOND, FILED, "wrong-key") if key in log]
    for pid in children_of(locked.process.pid):
        assert FIRST.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_open_paths_can_be_changed(models: Path) -> None:
    async def ask() -> list[int]:
        app = create_app(Settings(models=models, api_keys=SecretStr(FIRST), open_paths="/docs"))
        async with client_of(app) as client:
            return [(await client.get(path)).status_code for path in ("/docs", "/healthz")]

    assert asyncio.run(ask()) == [200, 401]


@pytest.mark.parametrize(
    "value", ["", "short", "x" * 513, f"{FIRST},", f"{FIRST},with space 0123456"]
)
def test_a_key_that_cannot_be_used_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(SettingsError, match=r"LEAFCODE_API_KEYS: key . of .*16 to 512") as caught:
        read_keys(load_settings(api_keys=value))
    assert "short" not in str(caught.value)
    assert FIRST not in str(caught.value)


def test_a_file_without_keys_locks_nobody_in_by_accident(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("# none yet\n")
    with pytest.raises(SettingsError, match="has no key"):
        read_keys(load_settings(api_keys_file=str(file)))
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_keys(load_settings(api_keys_file=str(tmp_path / "missing")))


def test_settings_never_show_their_keys() -> None:
    settings = load_settings(api_keys=FIRST)
    assert FIRST not in repr(settings) + str(settings) + str(settings.model_dump())


def test_without_settings_there_are_no_keys() -> None:
    assert read_keys(load_settings()) is None


def test_keys_of_any_characters_can_be_asked_for() -> None:
    assert not Keys(lambda: [FIRST]).accept("ÿ\x80")


def test_a_hangup_reads_the_keys_again_and_keeps_them_if_that_fails(
    locked: Server, keys_file: Path
) -> None:
    def may_ask(key: str) -> bool:
        headers = {"X-API-Key": key}
        return web.get(f"{locked.url}/v1/models", headers=headers).status_code == 200

    before = keys_file.read_text()
    assert (may_ask(FILED), may_ask(NEXT)) == (True, False)
    keys_file.write_text(f"{NEXT}\n")
    locked.process.send_signal(signal.SIGHUP)
    until(lambda: may_ask(NEXT))
    assert not may_ask(FILED)
    keys_file.write_text("short\n")
    locked.process.send_signal(signal.SIGHUP)
    until(lambda: any("the same 3 keys are accepted" in line for line in locked.log))
    assert may_ask(NEXT)
    assert not any("short" in line for line in locked.log)
    keys_file.write_text(before)
    locked.process.send_signal(signal.SIGHUP)
    until(lambda: may_ask(FILED))


def answers(settings: Settings, method: str, **headers: str) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with client_of(create_app(settings)) as client:
            return await client.request(method, "/v1/classify", headers=headers)

    return asyncio.run(ask())


PREFLIGHT = {
    "Origin": "https://example.org",
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization",
}


def test_other_pages_are_not_allowed_unless_configured(models: Path) -> None:
    response = answers(Settings(models=models), "OPTIONS", **PREFLIGHT)
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    ("origins", "allowed"),
    [
        ("https://example.org", "https://example.org"),
        ("http://a.test:81,https://example.org", "https://example.org"),
        ("*", "*"),
        ("https://example.com", None),
    ],
)
def test_configured_pages_may_ask_with_a_key(
    models: Path, origins: str, allowed: str | None
) -> None:
    settings = Settings(models=models, cors_origins=origins, api_keys=SecretStr(FIRST))
    response = answers(settings, "OPTIONS", **PREFLIGHT)
    assert response.headers.get("access-control-allow-origin") == allowed
    assert response.status_code == (400 if allowed is None else 200)
    refused = answers(settings, "POST", Origin="https://example.org")
    assert refused.status_code == 401
    assert refused.headers.get("access-control-allow-origin") == allowed
