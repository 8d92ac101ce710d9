"""Versions that come and go while a real server answers."""

import os
import pty
import resource
import shutil
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.engine import write_bundle
from tests.support import bundles
from tests.support.clients import web
from tests.support.metrics_page import metrics, value
from tests.support.overload import IMPATIENT
from tests.support.processes import DEADLINE_SECONDS, Server, children_of, until, workers_of
from tests.support.publishing import (
    MANIFEST,
    PNG,
    TENSORS,
    Damage,
    Hammer,
    answering_version,
    classify,
    cut_short,
    hang_up,
    mapped_versions,
    models_of,
    publish,
    rejected_by,
    versions_of,
    withdraw,
)


@pytest.fixture(scope="module")
def repository(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Version 1, and what tests add."""
    folder = tmp_path_factory.mktemp("repository")
    publish(shelf / "tiny" / "1", folder)
    return folder


@pytest.fixture(scope="module")
def long_running_server(repository: Path) -> Iterator[Server]:
    with Server("--models", str(repository), "--workers", "2") as running:
        yield running
        assert "Traceback" not in "".join(running.log)


@pytest.fixture
def server(long_running_server: Server, repository: Path, shelf: Path) -> Iterator[Server]:
    """Serves version 1 and nothing else, before and after a test."""
    long_running_server.log.clear()
    yield long_running_server
    for folder in (repository / "tiny").glob("[0-9]*"):
        withdraw(repository, int(folder.name))
    publish(shelf / "tiny" / "1", repository)
    hang_up(long_running_server)
    until(lambda: (versions_of(long_running_server), rejected_by(long_running_server)) == ([1], []))
    until(lambda: mapped_versions(long_running_server) == [{1}, {1}])
    # A worker that was replaced maps its version before it is in service.
    ready = f"{long_running_server.url}/readyz?strict=true"
    until(lambda: web.get(ready).status_code == 200)


def test_a_new_version_is_served_beside_the_old_one_after_sighup(
    server: Server, repository: Path, shelf: Path
) -> None:
    assert answering_version(server) == 1
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: versions_of(server) == [1, 2])
    assert answering_version(server) == 2
    assert classify(server, "?version=1").json()["model"]["version"] == 1
    assert mapped_versions(server) == [{1, 2}, {1, 2}]
    until(lambda: any("tiny version 2 is loaded and served" in line for line in server.log))


def test_one_worker_alone_finds_versions_by_polling_and_no_request_fails(
    own_repository: Path, shelf: Path
) -> None:
    arguments = ("--models", str(own_repository), "--poll-seconds", "1", "--workers", "1")
    with Server(*arguments) as server:
        with Hammer(server, n_clients=2) as hammer:
            publish(shelf / "tiny" / "2", own_repository)
            until(lambda: 2 in hammer.versions)
        withdraw(own_repository, 2)
        until(lambda: versions_of(server) == [1])
    assert hammer.failures == []


@pytest.mark.parametrize(
    ("source", "damage", "sentence"),
    [
        ("tiny/2", lambda folder: bundles.flip_byte(folder / TENSORS, -1), "SHA-256 is"),
        ("tiny/2", lambda folder: bundles.flip_byte(folder / MANIFEST, 40), MANIFEST),
        ("tiny/2", lambda folder: (folder / TENSORS).unlink(), "cannot be read"),
        ("tiny/2", cut_short, "SHA-256 is"),
        ("tiny/3", None, "says it is tiny version 3, its folder says tiny version 2"),
        ("wrong probes", None, "probe 0 scores differ"),
    ],
)
def test_a_bad_version_is_refused_and_shown_until_a_good_one_takes_its_place(
    server: Server, repository: Path, shelf: Path, source: str, damage: Damage, sentence: str
) -> None:
    publish(shelf / source, repository, damage, as_="2")
    hang_up(server)
    until(lambda: rejected_by(server) == [2])
    assert value(metrics(server.url), "rejected_versions") == 1
    (rejection,) = models_of(server)["rejected"]
    assert sentence in rejection["error"]
    assert str(repository) not in rejection["error"]
    assert (rejection["name"], rejection["since"][-6:]) == ("tiny", "+00:00")
    until(
        lambda: any(
            "tiny version 2 is rejected" in line and sentence in line for line in server.log
        )
    )
    assert (answering_version(server), versions_of(server)) == (1, [1])
    assert mapped_versions(server) == [{1}, {1}]
    withdraw(repository, 2)
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    assert rejected_by(server) == []
    assert value(metrics(server.url), "rejected_versions") == 0


def test_what_is_still_being_written_is_passed_over_until_it_is_finished(
    server: Server, repository: Path, shelf: Path
) -> None:
    (repository / "tiny" / "2").mkdir()
    shutil.copy(shelf / "tiny" / "2" / TENSORS, repository / "tiny" / "2")
    shutil.copytree(shelf / "tiny" / "3", repository / "tiny" / ".3-staging")
    (repository / "tiny" / "latest").mkdir()
    publish(shelf / "tiny" / "4", repository)
    hang_up(server)
    until(lambda: versions_of(server) == [1, 4])
    assert rejected_by(server) == []
    shutil.copy(shelf / "tiny" / "2" / MANIFEST, repository / "tiny" / "2")
    hang_up(server)
    until(lambda: versions_of(server) == [1, 2, 4])
    for name in (".3-staging", "latest"):
        shutil.rmtree(repository / "tiny" / name)


def test_a_bad_version_is_not_tried_again_before_it_changes_and_forgotten_when_gone(
    server: Server, repository: Path, shelf: Path
) -> None:
    publish(shelf / "wrong probes", repository, as_="2")
    for version in (3, 4):
        publish(shelf / "tiny" / str(version), repository)
        hang_up(server)
        until(lambda: version in versions_of(server))  # noqa: B023
    until(lambda: sum("tiny version 2 is rejected" in line for line in server.log) >= 1)
    assert sum("tiny version 2 is rejected" in line for line in server.log) == 1
    withdraw(repository, 2)
    hang_up(server)
    until(lambda: rejected_by(server) == [])


def test_a_version_that_finds_no_memory_is_rejected_and_tried_again_by_itself(
    server: Server, repository: Path, shelf: Path
) -> None:
    (fork_server,) = (pid for pid in children_of(server.process.pid) if children_of(pid))
    pages = int(Path(f"/proc/{fork_server}/statm").read_text().split()[0])
    # As much as it has: the process that proves the version gets nothing more.
    limit = pages * os.sysconf("SC_PAGE_SIZE")
    before = resource.prlimit(fork_server, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        publish(shelf / "tiny" / "2", repository)
        hang_up(server)
        until(lambda: rejected_by(server) == [2])
        assert answering_version(server) == 1
    finally:
        resource.prlimit(fork_server, resource.RLIMIT_AS, before)
    until(lambda: answering_version(server) == 2)
    assert rejected_by(server) == []
    server.log.clear()  # with the traceback of the process that found no memory


def test_a_version_that_is_gone_is_unloaded_and_its_mapping_released(
    server: Server, repository: Path, shelf: Path
) -> None:
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    withdraw(repository, 2)
    hang_up(server)
    until(lambda: answering_version(server) == 1)
    assert classify(server, "?version=2").status_code == 404
    until(lambda: mapped_versions(server) == [{1}, {1}])


def test_a_version_can_come_back(server: Server, repository: Path, shelf: Path) -> None:
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    for _ in range(3):
        withdraw(repository, 2)
        hang_up(server)
        until(lambda: answering_version(server) == 1)
        publish(shelf / "tiny" / "2", repository)
        hang_up(server)
        until(lambda: answering_version(server) == 2)
    assert mapped_versions(server) == [{1, 2}, {1, 2}]


def test_a_request_whose_body_is_still_arriving_gets_the_version_it_chose(
    server: Server, repository: Path, shelf: Path
) -> None:
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    host, port = server.url.removeprefix("http://").split(":")
    head = f"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Length: {len(PNG)}\r\n"
    # The answer to "Expect" says that the route, which has chosen, reads the body.
    head += "Connection: close\r\nExpect: 100-continue\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS) as slow:
        slow.sendall(head.encode())
        assert slow.recv(1000).startswith(b"HTTP/1.1 100")
        withdraw(repository, 2)
        hang_up(server)
        until(lambda: versions_of(server) == [1])
        assert mapped_versions(server) == [{1, 2}, {1, 2}]
        slow.sendall(PNG)
        answer = b"".join(iter(lambda: slow.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"version":2' in answer
    until(lambda: mapped_versions(server) == [{1}, {1}])


def test_the_last_versions_go_on_when_the_repository_is_empty_or_gone(
    server: Server, repository: Path, shelf: Path
) -> None:
    (repository / "tiny").rename(repository / ".tiny")
    hang_up(server)
    until(
        lambda: any(
            "nothing is left; everything loaded is still served" in line for line in server.log
        )
    )
    away = repository.rename(repository.with_name("away"))
    hang_up(server)
    until(lambda: any("cannot be read" in line for line in server.log))
    assert (answering_version(server), versions_of(server)) == (1, [1])
    away.rename(repository)
    (repository / ".tiny").rename(repository / "tiny")
    publish(shelf / "tiny" / "2", repository)
    withdraw(repository, 1)
    hang_up(server)
    until(lambda: versions_of(server) == [2])


def test_another_model_does_not_become_the_default_and_the_default_is_not_withdrawn(
    server: Server, repository: Path
) -> None:
    bundles.write_model(repository, "apples", 1)
    hang_up(server)
    until(lambda: len(models_of(server)["models"]) == 2)
    assert classify(server).json()["model"]["name"] == "tiny"
    (repository / "tiny").rename(repository / ".tiny")
    hang_up(server)
    sentence = "the default model is gone; tiny version 1 is still served"
    until(lambda: any(sentence in line for line in server.log))
    assert classify(server).json()["model"]["name"] == "tiny"
    (repository / ".tiny").rename(repository / "tiny")
    shutil.rmtree(repository / "apples")
    hang_up(server)
    until(lambda: len(models_of(server)["models"]) == 1)


def test_other_content_under_a_published_number_is_refused(
    server: Server, repository: Path, shelf: Path
) -> None:
    digest = classify(server).json()["model"]["digest"]
    withdraw(repository, 1)
    write_bundle(bundles.random_bundle(99), repository / "tiny" / "1")
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: versions_of(server) == [1, 2])
    (rejection,) = models_of(server)["rejected"]
    assert "a published version never changes, expected a new version number" in rejection["error"]
    assert classify(server, "?version=1").json()["model"]["digest"] == digest
    withdraw(repository, 1)
    publish(shelf / "tiny" / "1", repository)
    hang_up(server)
    until(lambda: rejected_by(server) == [])


def test_a_worker_that_is_replaced_later_has_the_new_version_too(
    server: Server, repository: Path, shelf: Path
) -> None:
    publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    before = workers_of(server)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not set(before) & set(workers_of(server)))
    until(lambda: web.get(f"{server.url}/readyz?strict=true").status_code == 200)
    assert mapped_versions(server) == [{1, 2}, {1, 2}]
    assert answering_version(server) == 2


def test_a_version_that_is_overwritten_is_given_up_and_the_others_are_served_by_all_workers(
    server: Server, repository: Path, shelf: Path
) -> None:
    folder = publish(shelf / "tiny" / "2", repository)
    hang_up(server)
    until(lambda: answering_version(server) == 2)
    cut_short(folder)
    before = workers_of(server)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: versions_of(server) == [1])
    until(lambda: web.get(f"{server.url}/readyz?strict=true").status_code == 200)
    assert (answering_version(server), rejected_by(server)) == (1, [2])
    sentence = "its files were changed in place while it was served"
    until(lambda: any(sentence in line for line in server.log))
    until(lambda: mapped_versions(server) == [{1}, {1}])


def test_no_request_fails_while_good_and_bad_versions_come_and_go(
    server: Server, repository: Path, shelf: Path
) -> None:
    present, last = [1], 5
    with Hammer(server) as hammer:
        for version in range(2, last + 1):
            publish(shelf / "tiny" / str(version), repository)
            publish(shelf / "wrong probes", repository, as_=str(100 + version))
            present.append(version)
            if len(present) > 2:
                withdraw(repository, present.pop(0))
            hang_up(server)
            hang_up(server)
            until(lambda: versions_of(server) == present)
            until(lambda: 100 + version in rejected_by(server))  # noqa: B023
            until(lambda: version in hammer.versions)  # noqa: B023
    assert hammer.failures == [], "".join(server.log)
    assert {last - 1, last} <= hammer.versions
    until(lambda: mapped_versions(server) == [set(present)] * 2)


def test_a_hangup_during_the_start_or_the_end_harms_nothing(
    own_repository: Path, shelf: Path
) -> None:
    with Server("--models", str(own_repository), "--workers", "1", wait=False) as server:
        until(lambda: any("found tiny version 1" in line for line in server.log))
        publish(shelf / "tiny" / "2", own_repository)
        hang_up(server)
        until(lambda: bool(server.url))
        until(lambda: versions_of(server) == [1, 2])
        for pid in children_of(server.process.pid):
            os.kill(pid, signal.SIGHUP)
        (worker,) = workers_of(server)
        os.kill(worker, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as client:
            waiting = client.submit(answering_version, server)
            until(lambda: "still queued" in classify(server, **IMPATIENT).text)
            server.process.send_signal(signal.SIGTERM)
            for _ in range(3):
                hang_up(server)
            os.kill(worker, signal.SIGCONT)
            assert waiting.result() == 2
        assert server.process.wait(DEADLINE_SECONDS) == 0
        assert "Traceback" not in "".join(server.log)


def test_a_terminal_that_hangs_up_stops_the_service(own_repository: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ("--models", str(own_repository), "--workers", "1")
    with Server(*arguments, stdin=theirs) as server:
        os.close(theirs)
        hang_up(server)
        assert answering_version(server) == 1
        os.close(ours)
        hang_up(server)
        assert server.process.wait(DEADLINE_SECONDS) == 0
