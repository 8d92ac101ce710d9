"""The service in containers: as whom and with what it runs, and how it starts and stops."""

import contextlib
import os
import platform
import re
import signal
import statistics
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.image.containers import (
    EXAMPLE,
    SERVICE,
    TRAINER,
    Container,
    exit_code,
    free_port,
    podman,
    run_once,
    run_python,
    starting,
)
from tests.support import bundles, pictures
from tests.support.persistent_clients import PersistentClient
from tests.support.processes import DEADLINE_SECONDS, until

LOCKED = (
    *("--read-only", "--read-only-tmpfs=false", "--tmpfs", "/tmp"),
    *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
)
OLD_CPU = "processor\t: 0\nmodel name\t: Old\nflags\t\t: fpu sse2 pni ssse3 cx16 popcnt lahf_lm\n"
PROCESSES = """
import json, os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        state, parent = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[:2]
        command = open(f"/proc/{pid}/cmdline").read()
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        continue
    if int(pid) != os.getpid():
        found.append({"pid": int(pid), "parent": int(parent), "state": state,
                      "command": command, "owner": owner})
print(json.dumps(found))
"""


def best_label(container: Container) -> str:
    label: str = container.classify()["predictions"][0]["label"]
    return label


def test_it_is_ready_in_3_seconds_and_answers_in_4(figures: list[str]) -> None:
    load = os.getloadavg()[0]
    ready, labels, cpu = [], [], []
    for _ in range(5):
        with Container() as started:
            ready.append(time.monotonic() - started.started)
            cpu.append(started.cpu_seconds())
            assert best_label(started) == "yin_yang"
            labels.append(time.monotonic() - started.started)
    figures += [
        f"podman run to ready: {_spread(ready)}, {_spread(cpu)} of CPU; load average {load:.1f}",
        f"podman run to the first label: {_spread(labels)}",
    ]
    if load > 0.75 * len(os.sched_getaffinity(0)) and min(ready) >= 3:
        # Elapsed time says nothing then; that much CPU is left to wait for on a quiet machine.
        figures.append(
            "The machine was busy: not the elapsed time to ready was judged but the CPU."
        )
        assert min(cpu) < 3
        return
    # Whatever else the machine does makes it longer, never shorter.
    assert min(ready) < 3
    assert min(labels) < 4


def _spread(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} – {max(seconds):.2f})"


def test_the_page_and_its_files_are_in_the_image(container: Container) -> None:
    page = httpx.get(f"{container.url}/").text
    loaded = re.findall(r'(?:src|href)="(web/[^"]+)"', page)
    assert len(loaded) >= 5
    for path in loaded:
        assert httpx.get(f"{container.url}/{path}").status_code == httpx.codes.OK


def test_nothing_is_compiled_at_the_start(container: Container) -> None:
    container.classify()
    log = container.log()
    assert "ready at" in log
    # Said by whoever compiles and cannot keep it, or does not trust what is kept.
    assert "compiled again" not in log
    assert "compiling again" not in log
    loaded, compiled = run_python(SERVICE, KERNELS)
    assert loaded > 5
    assert compiled == 0


KERNELS = """
import gc, json
from numba.core.dispatcher import Dispatcher
from service.pool.warmup import run_every_kernel
run_every_kernel()
kernels = [found for found in gc.get_objects() if isinstance(found, Dispatcher)]
print(json.dumps([sum(sum(kernel._cache_hits.values()) for kernel in kernels),
                  sum(sum(kernel._cache_misses.values()) for kernel in kernels)]))
"""


def test_no_process_is_root(container: Container) -> None:
    processes = container.python(PROCESSES)
    assert len(processes) >= 3
    assert {process["owner"] for process in processes} == {10001}


@pytest.mark.parametrize("user", ["0:0", "4321:4321", "4321:0"])
def test_any_user_may_run_it(user: str) -> None:
    with Container("--user", user) as started:
        assert best_label(started) == "yin_yang"
        assert "compiled again" not in started.log()


@pytest.mark.parametrize("user", ["10001:10001", "4321:4321"])
def test_it_runs_without_any_right(user: str) -> None:
    with Container(*LOCKED, "--user", user) as started:
        assert best_label(started) == "yin_yang"
        # So large that parts of a form are kept in files.
        photo = pictures.png(pictures.noise(1000, 800))
        files = [("image", photo) for _ in range(4)]
        answer = httpx.post(f"{started.url}/v1/classify", files=files, timeout=60)
        assert answer.status_code == httpx.codes.OK
        assert started.stop() == 0


def test_512_mb_are_enough(figures: list[str]) -> None:
    with Container("--memory", "512m", "--memory-swap", "512m") as started:
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda _: best_label(started), range(200)))
        assert set(answers) == {"yin_yang"}
        state = started.state()
        assert not state["OOMKilled"]
        assert [worker["restarts"] for worker in started.workers() if worker["restarts"]] == []
        used, limit = started.python(MEMORY)
        figures.append(f"most memory under load, with 512 MiB allowed: {used / 2**20:.0f} MiB")
        assert limit == 512 * 2**20


MEMORY = """
import json, pathlib
root = pathlib.Path("/sys/fs/cgroup")
names = ("memory.peak", "memory.max")
if (root / "memory").exists():
    root, names = root / "memory", ("memory.max_usage_in_bytes", "memory.limit_in_bytes")
print(json.dumps([int((root / name).read_text()) for name in names]))
"""


def test_a_set_of_cpus_gives_a_pinned_worker_for_each() -> None:
    with Container("--cpuset-cpus", "0") as started:
        (worker,) = started.workers()
        assert (worker["pinned"], worker["cores"]) == (True, [0])
        assert best_label(started) == "yin_yang"


def test_a_share_of_the_cpus_pins_no_worker() -> None:
    with Container("--cpus", "1") as started:
        (worker,) = started.workers()
        assert (worker["pinned"], worker["cores"]) == (False, [])
        assert best_label(started) == "yin_yang"


def test_stopping_loses_no_request() -> None:
    image = EXAMPLE.read_bytes()
    request = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b"
    with Container() as started:
        address = ("127.0.0.1", started.port)
        clients = [
            PersistentClient(address, request % (len(image), image), keep_alive=keep_alive)
            for keep_alive in (True, True, False, False)
        ]
        for client in clients:
            client.start()
        until(lambda: all(client.outcomes["200"] > 5 for client in clients))
        assert started.stop() == 0
        for client in clients:
            client.join(DEADLINE_SECONDS)
    outcomes = sum((client.outcomes for client in clients), Counter[str]())
    assert set(outcomes) <= {"200", "503"}, outcomes


@pytest.mark.parametrize(
    ("image", "command"), [(SERVICE, "serve"), (TRAINER, "fit /data --out /models/photos")]
)
def test_a_container_that_starts_can_be_stopped(
    image: str, command: str, drawn_images: Path
) -> None:
    volume = ("--volume", f"{drawn_images}:/data:ro")
    with starting(image, *command.split(), options=volume) as name:
        # The first may come before there is anybody to hear it.
        until(lambda: podman("kill", "--signal", "TERM", name, check=False).returncode != 0)
        assert exit_code(name) == 128 + signal.SIGTERM


def test_the_port_of_the_image_can_be_published() -> None:
    """The first line of the README that runs a container, in a network of its own."""
    entry = ("--network", "bridge", "--entrypoint", "true")
    if (ended := run_once(SERVICE, options=entry, check=False)).returncode:
        pytest.skip(f"podman has no bridge on this machine: {ended.stderr}")
    port = free_port()
    with starting(SERVICE, options=("--publish", f"127.0.0.1:{port}:8000"), network="bridge"):
        until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"))


def _answers(url: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return httpx.get(url).status_code == httpx.codes.OK
    return False


def test_the_health_check_says_whether_it_is_ready(container: Container) -> None:
    assert podman("healthcheck", "run", container.name).returncode == 0
    ended = podman("exec", container.name, "python", "-m", "service", "health")
    assert ended.stdout.startswith("ready: ")
    elsewhere = ("--env", "LEAFCODE_PORT=1", container.name)
    ended = podman("exec", *elsewhere, "python", "-m", "service", "health", check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("no answer from http://127.0.0.1:1: ")


def test_mounted_models_are_served_and_loaded_again_on_sighup(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    bundles.write_model(tmp_path, "apples", 1, seed=1)
    with Container("--volume", f"{tmp_path}:/models:ro") as started:
        assert started.classify()["model"]["name"] == "apples"
        bundles.write_model(tmp_path, "apples", 2, seed=2)
        podman("kill", "--signal", "HUP", started.name)
        until(lambda: started.classify()["model"]["version"] == 2)
        assert started.is_running()


@pytest.mark.parametrize(("setting", "served"), [("embedded", True), ("reject", False)])
def test_an_empty_folder_of_models_is_what_the_setting_says(
    tmp_path: Path, setting: str, *, served: bool
) -> None:
    tmp_path.chmod(0o755)
    options = ("--volume", f"{tmp_path}:/models", "--env", f"LEAFCODE_EMPTY_MODELS={setting}")
    if served:
        with Container(*options) as started:
            assert best_label(started) == "yin_yang"
        return
    ended = run_once(SERVICE, options=options, check=False)
    assert ended.returncode == 1
    assert "/models: no bundle found" in ended.stderr


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has such levels")
@pytest.mark.parametrize(
    ("image", "command"),
    [(SERVICE, "serve"), (SERVICE, "classify -"), (TRAINER, "fit /data --out /models/x")],
)
def test_an_older_cpu_is_told_so_in_one_sentence(image: str, command: str, tmp_path: Path) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(OLD_CPU)
    options = ("--volume", f"{cpu}:/proc/cpuinfo:ro")
    ended = run_once(image, *command.split(), options=options, check=False)
    assert ended.returncode == 1
    assert "the kernels are compiled for CPUs of level x86-64-v3" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr


def test_process_1_forgets_the_workers_of_a_lost_fork_server() -> None:
    with Container() as started:
        before = started.python(PROCESSES)
        fork_server = next(found["pid"] for found in before if found["parent"] == 1)
        workers = [found["pid"] for found in before if found["parent"] == fork_server]
        killing = "import json, os\nfor pid in {}: os.kill(pid, {})\nprint(json.dumps(None))"
        for group in ([fork_server], workers):
            started.python(killing.format(group, int(signal.SIGKILL)))
        until(
            lambda: (
                [worker["restarts"] > 0 for worker in started.workers()] == [True] * len(workers)
            )
        )
        until(lambda: _zombies(started) == [])
        assert best_label(started) == "yin_yang"


def _zombies(container: Container) -> list[int]:
    return [found["pid"] for found in container.python(PROCESSES) if found["state"] == "Z"]


def test_the_image_tests_a_service_under_load_too(container: Container) -> None:
    ended = run_once(SERVICE, "loadtest", container.url, "--requests", "8", options=LOCKED)
    assert "0 errors" in ended.stdout
    assert "status 200" in ended.stdout
