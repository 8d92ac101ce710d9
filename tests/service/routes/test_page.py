"""`GET /` and `/web/…`: the page's files over HTTP, and what they consist of."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from service.app import create_app
from service.examples import draw
from service.settings import Settings
from tests.support.clients import client_of, problem_of
from tests.support.processes import ROOT

WEB = ROOT / "service" / "web"
FILES = sorted(file.name for file in WEB.iterdir() if file.suffix != ".html")
EXAMPLES = [f"examples/{file.name}" for file in Path(draw.__file__).parent.glob("*.png")]
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".png": "image/png"}
KEY = "page-key-0123456789"


def ask(settings: Settings, *paths: str) -> list[httpx.Response]:
    """Ask an application that is not started: the page needs neither pool nor models."""

    async def run() -> list[httpx.Response]:
        async with client_of(create_app(settings)) as client:
            return [await client.get(path) for path in paths]

    return asyncio.run(run())


def test_the_root_is_the_page(client: httpx.Client) -> None:
    response = client.get("/")
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.content == (WEB / "index.html").read_bytes()


@pytest.mark.parametrize("name", [*FILES, *EXAMPLES])
def test_every_file_is_served_with_its_type(client: httpx.Client, name: str) -> None:
    response = client.get(f"/web/{name}")
    folder = WEB if name in FILES else WEB.parent
    assert response.content == (folder / name).read_bytes()
    assert response.headers["content-type"].startswith(TYPES[Path(name).suffix])


def test_the_browser_is_told_to_run_and_to_ask_nothing_of_others(client: httpx.Client) -> None:
    headers = client.get("/").headers
    policy = dict(
        item.strip().partition(" ")[::2] for item in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/web/main.js"])
def test_whoever_has_a_file_is_told_so(client: httpx.Client, path: str) -> None:
    first = client.get(path)
    assert first.headers["cache-control"] == "no-cache"
    again = client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert client.get(path, headers={"If-None-Match": '"older"'}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/web/style.css"])
def test_head_answers_without_the_content(client: httpx.Client, path: str) -> None:
    response = client.head(path)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["content-length"] == str(len(client.get(path).content))


@pytest.mark.parametrize(
    "path",
    [
        "/web/",
        "/web/index.html",
        "/web/nothing.js",
        "/web/../app.py",
        "/web/..%2fapp.py",
        "/web/%2e%2e/app.py",
        "/web/examples/draw.py",
        "/web//etc/passwd",
        "/web/main.js%00",
    ],
)
def test_no_other_path_is_served(client: httpx.Client, path: str) -> None:
    request = client.build_request("GET", "/")
    request.url = request.url.copy_with(raw_path=path.encode())
    problem_of(client.send(request), 404)


def test_the_page_is_not_an_operation_of_the_api(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert [path for path in paths if path == "/" or path.startswith("/web")] == []


def test_one_setting_turns_the_page_off(models: Path) -> None:
    root, file = ask(Settings(models=models, page=False), "/", "/web/main.js")
    assert (root.status_code, root.headers["location"]) == (307, "/docs")
    problem_of(file, 404)


def test_the_page_needs_no_key_and_what_it_calls_does(models: Path) -> None:
    settings = Settings(models=models, api_keys=SecretStr(KEY))
    paths = ("/", "/web/main.js", "/web/examples/yin_yang.png", "/web/nothing.js", "/v1/models")
    statuses = [answer.status_code for answer in ask(settings, *paths)]
    assert statuses == [200, 200, 200, 401, 401]


def test_a_page_that_is_turned_off_needs_a_key_like_any_other_path(models: Path) -> None:
    settings = Settings(models=models, api_keys=SecretStr(KEY), page=False)
    assert [answer.status_code for answer in ask(settings, "/", "/web/main.js")] == [401, 401]


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    html = (WEB / "index.html").read_text("utf-8")
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", html) == []


@pytest.mark.parametrize("name", ["index.html", *FILES])
def test_a_file_of_the_page_names_no_other_host(name: str) -> None:
    text = (WEB / name).read_text("utf-8").replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?://", text) == []


def test_everything_that_the_page_loads_is_there() -> None:
    html = (WEB / "index.html").read_text("utf-8")
    loaded = re.findall(r'(?:src|href)="web/([^"]+)"', html)
    imported = [
        name
        for file in WEB.glob("*.js")
        for name in re.findall(r'from "\./([^"]+)"', file.read_text("utf-8"))
    ]
    assert {*loaded, *imported} <= {*FILES, *EXAMPLES}
    assert {name for name in FILES if name.endswith(".js")} <= {*loaded, *imported}


def test_every_element_that_a_script_looks_for_is_in_the_page() -> None:
    html = (WEB / "index.html").read_text("utf-8")
    wanted = {
        name
        for file in WEB.glob("*.js")
        for name in re.findall(r'find\("([^"]+)"\)', file.read_text("utf-8"))
    }
    assert wanted - set(re.findall(r'\sid="([^"]+)"', html)) == set()
