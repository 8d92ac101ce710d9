"""The scripts for Locust and k6: Locust sends images for real, k6's script runs in Node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pictures
from tests.support.processes import DEADLINE_SECONDS, ROOT, Server, environment
from tests.support.scripted_server import listening

SCRIPTS = ROOT / "docker" / "loadtest"

# What of k6 the script uses, in Node: requests go out through curl, because k6 answers at once
# and not by a promise.
K6_IN_NODE = {
    "package.json": '{"type": "module", "exports": {".": "./index.js", "./http": "./http.js"}}',
    "index.js": """
        export const failed = [];
        export function check(value, checks) {
          for (const [name, passes] of Object.entries(checks)) {
            if (!passes(value)) failed.push(name);
          }
          return !failed.length;
        }
    """,
    "http.js": """
        import { execFileSync } from 'node:child_process';
        function post(url, body, { headers }) {
          if (!(body instanceof ArrayBuffer)) throw new Error('expected an ArrayBuffer');
          const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
          const flags = lines.flatMap((line) => ['-H', line]);
          const command = ['-s', '-w', '\\n%{http_code}', '--data-binary', '@-', ...flags, url];
          const text = execFileSync('curl', command, { input: Buffer.from(body) }).toString();
          const end = text.lastIndexOf('\\n');
          const status = Number(text.slice(end + 1));
          return { status, json: (name) => JSON.parse(text.slice(0, end))[name] };
        }
        export default { post };
    """,
}
RUN_IN_NODE = """
import { readFileSync } from 'node:fs';
globalThis.__ENV = process.env;
globalThis.open = (path, mode) => {
  const bytes = readFileSync(path);
  return mode === 'b'
    ? bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length)
    : bytes.toString();
};
const { failed } = await import('k6');
const script = await import('./script.js');
script.default();
script.default();
console.log(JSON.stringify({ failed, options: script.options }));
"""

needs_node_and_curl = pytest.mark.skipif(
    not (shutil.which("node") and shutil.which("curl")), reason="needs node and curl, absent here"
)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    (folder / "one.png").write_bytes(pictures.png())
    (folder / "notes.txt").write_text("no image")
    return folder


def locust(images: Path, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """One user for a moment; it has time to wait for its last answer."""
    command = [sys.executable, "-m", "locust", "-f", str(SCRIPTS / "locustfile.py"), "--headless"]
    flags = ["--users", "1", "--run-time", "1s", "--stop-timeout", "60", "--json", "--only-summary"]
    return subprocess.run(
        [*command, "--host", url, *flags],
        env=environment(IMAGES=str(images), **variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )


def test_locust_sends_images_to_a_real_service(server: Server, images: Path) -> None:
    done = locust(images, server.url)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)
    assert (report["method"], report["name"]) == ("POST", "/v1/classify")
    assert report["num_requests"] > 0
    assert report["num_failures"] == 0


def test_make_hands_k6_a_list_of_the_images(images: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "k6").write_text('#!/bin/sh\necho "$@"\ncat "${3#IMAGE_LIST=}"\n')
    (tools / "k6").chmod(0o755)
    done = subprocess.run(
        ["make", "k6", f"IMAGES={images}", "URL=http://host", "DURATION=3", "MAX_P99=50"],
        cwd=ROOT,
        env=environment(PATH=f"{tools}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    command, *listed = done.stdout.splitlines()
    assert "-e URL=http://host -e CLIENTS=8 -e DURATION=3s -e RATE= -e MAX_P99=50" in command
    assert command.endswith(" docker/loadtest/k6.js")
    assert listed == [str(images / "one.png")]


def run_k6_script(folder: Path, **variables: str) -> dict[str, object]:
    """Two requests of the script, and its options."""
    package = folder / "node_modules" / "k6"
    package.mkdir(parents=True)
    for name, text in K6_IN_NODE.items():
        (package / name).write_text(text)
    (folder / "package.json").write_text('{"type": "module"}')
    shutil.copy(SCRIPTS / "k6.js", folder / "script.js")
    (folder / "run.js").write_text(RUN_IN_NODE)
    done = subprocess.run(
        ["node", "run.js"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, object] = json.loads(done.stdout)
    return document


@needs_node_and_curl
def test_what_k6_runs_sends_images_that_the_service_answers(
    server: Server, images: Path, tmp_path: Path
) -> None:
    (tmp_path / "list.txt").write_text(f"{images / 'one.png'}\n")
    ran = run_k6_script(
        tmp_path, URL=server.url, IMAGE_LIST=str(tmp_path / "list.txt"), CLIENTS="3"
    )
    assert ran["failed"] == []
    options = ran["options"]
    assert isinstance(options, dict)
    assert options["scenarios"]["images"] == {
        "executor": "constant-vus",
        "vus": 3,
        "duration": "10s",
    }


@needs_node_and_curl
def test_what_k6_runs_counts_rejections_and_takes_a_rate_a_limit_and_a_key(
    images: Path, tmp_path: Path
) -> None:
    heads: list[bytes] = []

    def respond(head: bytes, _: bytes) -> list[bytes]:
        heads.append(head)
        return [b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}"]

    (tmp_path / "list.txt").write_text(f"{images / 'one.png'}\n")
    with listening(respond) as (host, port):
        variables = {"URL": f"http://{host}:{port}", "IMAGE_LIST": str(tmp_path / "list.txt")}
        ran = run_k6_script(tmp_path, **variables, RATE="200", MAX_P99="50", API_KEY="a secret key")
    assert ran["failed"] == ["status is 200", "has predictions"] * 2
    options = ran["options"]
    assert isinstance(options, dict)
    assert options["scenarios"]["images"]["executor"] == "constant-arrival-rate"
    assert options["scenarios"]["images"]["rate"] == 200
    assert options["thresholds"]["http_req_duration"] == ["p(99)<50"]
    assert b"\r\nAuthorization: Bearer a secret key\r\n" in heads[0]
