"""Containers of the images that `docker/image-test` has built, run by podman.

`--network host`, runc and both limits are what podman needs where there is neither systemd nor
a bridge, as in a virtual machine of a CI; a service then chooses no port of its own.
"""

import contextlib
import itertools
import json
import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.processes import ROOT, until

SERVICE, TRAINER = "leafcode", "leafcode-trainer"
EXAMPLE = ROOT / "service" / "examples" / "yin_yang.png"
_RUN = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
_CGROUPS = Path("/sys/fs/cgroup")
_numbers = itertools.count()

Ended = subprocess.CompletedProcess[str]


def podman(*arguments: str, check: bool = True, stdin: str = "") -> Ended:
    """Run podman until it ends; what it says about a failure is part of the test's."""
    ended = subprocess.run(
        ["podman", "--runtime", "runc", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not check or ended.returncode == 0, f"{shlex.join(ended.args)}:\n{ended.stderr}"
    return ended


def run_once(image: str, *command: str, options: tuple[str, ...] = (), check: bool = True) -> Ended:
    """Run a container until it ends by itself."""
    network = () if "--network" in options else ("--network", "host")
    options = ("--rm", "--no-healthcheck", *network, *_RUN, *options)
    return podman("run", *options, image, *command, check=check)


@contextlib.contextmanager
def starting(
    image: str, *command: str, options: tuple[str, ...] = (), network: str = "host"
) -> Iterator[str]:
    """The name of a container that has just been started; it is removed after the block."""
    name = _new_name()
    options = ("--no-healthcheck", "--network", network, *_RUN, *options)
    podman("run", "--detach", "--name", name, *options, image, *command)
    try:
        yield name
    finally:
        podman("rm", "--force", "--time", "1", name)


def exit_code(name: str) -> int:
    """How a container ended."""
    return int(podman("wait", name).stdout)


def _new_name() -> str:
    return f"leafcode-image-test-{os.getpid()}-{next(_numbers)}"


def run_python(image: str, program: str, *options: str) -> Any:
    """The JSON that a program prints in a container of its own."""
    entry = ("--entrypoint", '["python", "-c"]')
    return json.loads(run_once(image, program, options=(*entry, *options)).stdout)


def inspect_image(image: str) -> dict[str, Any]:
    """What the image says about itself."""
    described: list[dict[str, Any]] = json.loads(podman("image", "inspect", image).stdout)
    return described[0]


class Container:
    """A service in a container, on a free port; ready within the block, stopped after it.

    `started` is the moment before `podman run`, on the clock of `time.monotonic`.
    """

    def __init__(self, *options: str, command: tuple[str, ...] = ()) -> None:
        self.name = _new_name()
        self._options = options
        self._command = command
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.started = 0.0

    def __enter__(self) -> Self:
        port = ("--env", f"LEAFCODE_PORT={self.port}")
        self.started = time.monotonic()
        podman(
            *("run", "--detach", "--name", self.name, "--network", "host", *_RUN, *port),
            *(*self._options, SERVICE, *self._command),
        )
        try:
            until(self._is_ready_or_gone)
            assert self.is_running(), self.log()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    def _is_ready_or_gone(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/readyz").status_code == httpx.codes.OK
        return not self.is_running()

    def classify(self, image: Path = EXAMPLE) -> dict[str, Any]:
        """What the service answers to an image."""
        answer = httpx.post(f"{self.url}/v1/classify", content=image.read_bytes(), timeout=60)
        assert answer.status_code == httpx.codes.OK, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def workers(self) -> list[dict[str, Any]]:
        """The workers as `/readyz` names them; none while it is not ready."""
        answer = httpx.get(f"{self.url}/readyz").json()
        found: list[dict[str, Any]] = answer.get("workers", [])
        return found

    def cpu_seconds(self) -> float:
        """How long its processes have used a core, in the layout of either version of cgroups."""
        group = str(self.state()["CgroupPath"]).lstrip("/")
        try:
            return int((_CGROUPS / "cpuacct" / group / "cpuacct.usage").read_text()) / 1e9
        except OSError:
            lines = (_CGROUPS / group / "cpu.stat").read_text().splitlines()
            return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6

    def python(self, program: str) -> Any:
        """The JSON that a program prints inside the container."""
        command = ("exec", "--interactive", self.name, "python", "-")
        return json.loads(podman(*command, stdin=program).stdout)

    def log(self) -> str:
        """All that was written to standard output and standard error."""
        ended = podman("logs", self.name)
        return ended.stdout + ended.stderr

    def state(self) -> dict[str, Any]:
        """What podman knows about it."""
        found: dict[str, Any] = json.loads(podman("inspect", self.name).stdout)[0]["State"]
        return found

    def is_running(self) -> bool:
        return bool(self.state()["Running"])

    def stop(self) -> int:
        """`podman stop`, as an operator does it; the exit code of the service."""
        podman("stop", "--time", "30", self.name)
        return int(self.state()["ExitCode"])

    def remove(self) -> None:
        """End it and all that is left of it."""
        podman("rm", "--force", self.name)


def free_port() -> int:
    """A port of this machine that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
