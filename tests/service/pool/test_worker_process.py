"""Real worker processes out of a real fork server, one by one."""

import asyncio
import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from service.engine import BundleError, Engine
from service.engine.bundle import BundleFiles
from service.errors import WorkerLostError
from service.pool import fork_client
from service.pool.fork_client import ForkClient
from service.pool.fork_server_process import ForkServerProcess
from service.pool.frames import Fields, Frame, Kind
from service.pool.worker_plan import WorkerPlan
from service.pool.worker_process import WorkerProcess
from tests.support import pictures, pools
from tests.support.fake_workers import plan
from tests.support.processes import DEADLINE_SECONDS, children_of, is_alive, until

Test = Callable[[ForkClient], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]

# A worker that sees its connection close may end by itself before the signal comes.
ENDED = {0, -signal.SIGKILL}
ALL_CORES = tuple(sorted(os.sched_getaffinity(0)))


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Runs tests with one fork server; each leaves no process but that one."""
    before = children_of(os.getpid())
    with asyncio.Runner() as runner, ForkServerProcess(1, None) as started:
        forks = ForkClient(1, None, started)
        runner.run(forks.start())
        assert set(children_of(os.getpid())) == {*before, started.process.pid}

        async def limited(test: Test) -> None:
            async with asyncio.timeout(DEADLINE_SECONDS):
                await test(forks)

        def run_test(test: Test) -> None:
            runner.run(limited(test))
            assert len(children_of(os.getpid())) == len(before) + 1

        try:
            yield run_test
        finally:
            runner.run(forks.stop())
    assert set(children_of(os.getpid())) == set(before)


@pytest.fixture(scope="module")
def version(models: Path) -> Fields:
    folder = models / "tiny" / "1"
    digest = Engine.load(folder).manifest.digest
    files = BundleFiles.of(folder).to_json()
    return {"name": "tiny", "version": 1, "files": files, "digest": digest}


def start(
    forks: ForkClient, on_frame: Callable[[Frame], None] = lambda _: None
) -> Awaitable[WorkerProcess]:
    return WorkerProcess.start(forks, plan(0, *ALL_CORES), on_frame)


def test_a_plan_crosses_to_the_fork_server_as_json() -> None:
    sent = plan(4, 1, 3)
    assert WorkerPlan.from_json(sent.to_json()) == sent


def test_a_worker_loads_a_version_and_answers_jobs_until_it_is_ended(
    run: Run, version: Fields
) -> None:
    async def use(forks: ForkClient) -> None:
        answer: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        worker = await start(forks, answer.set_result)
        await worker.ping(DEADLINE_SECONDS)
        await worker.load(version)
        fields = {"name": "tiny", "version": 1, "top_k": 1}
        worker.send(Frame(Kind.CLASSIFY, 7, fields, pictures.png()))
        assert ((await answer).kind, (await answer).job) == (Kind.DONE, 7)
        await worker.unload(version)
        assert await worker.end() in ENDED

    run(use)


def test_a_version_that_cannot_be_loaded_is_told_and_the_worker_goes_on(
    run: Run, version: Fields
) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        with pytest.raises(BundleError, match="it was replaced after it was published"):
            await worker.load({**version, "digest": "0" * 64})
        await worker.ping(DEADLINE_SECONDS)
        await worker.end()

    run(use)


def oom_score(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_a_worker_ends_before_the_service_does_where_memory_is_short(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        await worker.ping(DEADLINE_SECONDS)
        assert oom_score(worker.pid) > oom_score(os.getpid())
        await worker.end()

    run(use)


def test_a_worker_that_is_killed_from_outside_is_noticed(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        os.kill(worker.pid, signal.SIGTERM)  # ignored: only the service ends it
        await worker.ping(DEADLINE_SECONDS)
        os.kill(worker.pid, signal.SIGSEGV)
        await worker.closed
        assert await worker.end() == -signal.SIGSEGV

    run(use)


def test_a_worker_that_hangs_can_be_ended(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        os.kill(worker.pid, signal.SIGSTOP)
        with pytest.raises(WorkerLostError, match="no answer within 0"):
            await worker.ping(0.01)
        assert await worker.end() == -signal.SIGKILL
        assert worker.closed.done()

    run(use)


def test_a_worker_whose_connection_is_closed_ends_by_itself(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        worker._link.abort()
        assert await forks.ended(worker.pid) == 0

    run(use)


def test_news_of_an_end_that_nobody_waits_for_any_more_costs_no_other_news(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        worker = await start(forks)
        waiting = asyncio.create_task(forks.ended(worker.pid))
        await asyncio.sleep(0)
        waiting.cancel()
        forks._on_news({"ended": worker.pid, "code": 0})  # before the task has heard of it
        with pytest.raises(asyncio.CancelledError):
            await waiting
        worker.kill()
        until(lambda: not is_alive(worker.pid))

    run(use)


def test_workers_start_side_by_side(run: Run) -> None:
    async def use(forks: ForkClient) -> None:
        workers = await asyncio.gather(*(start(forks) for _ in range(4)))
        await asyncio.gather(*(worker.ping(DEADLINE_SECONDS) for worker in workers))
        assert len({worker.pid for worker in workers}) == 4
        codes = await asyncio.gather(*(worker.end() for worker in workers))
        assert set(codes) <= ENDED

    run(use)


def fork_server_of(worker: WorkerProcess) -> int:
    (found,) = (pid for pid in children_of(os.getpid()) if worker.pid in children_of(pid))
    return found


def test_a_fork_server_that_hangs_is_replaced_and_what_it_was_asked_to_kill_is_killed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(forks: ForkClient) -> None:
        hung, well = await start(forks), await start(forks)
        first = fork_server_of(hung)
        os.kill(hung.pid, signal.SIGSTOP)
        os.kill(first, signal.SIGSTOP)
        hung.kill()
        with monkeypatch.context() as impatient:
            impatient.setattr(fork_client, "_SILENCE_TIMEOUT", fork_client._PING_SECONDS)
            with pytest.raises(WorkerLostError, match="the fork server was lost"):
                await start(forks)
        replacement = await start(forks)
        assert fork_server_of(replacement) != first
        assert not is_alive(first)
        until(lambda: not is_alive(hung.pid))
        await well.ping(DEADLINE_SECONDS)
        assert await well.end() is None
        assert await replacement.end() in ENDED

    run(use)


def test_a_fork_server_that_does_not_get_ready_is_given_up_and_the_next_worker_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use() -> None:
        forks = ForkClient(1, None)
        monkeypatch.setattr(fork_client, "_START_TIMEOUT", 0.001)
        with pytest.raises(WorkerLostError, match="the fork server was not ready within 0 s"):
            await start(forks)
        monkeypatch.undo()
        worker = await start(forks)
        await worker.ping(DEADLINE_SECONDS)
        await worker.end()
        await forks.stop()

    before = children_of(os.getpid())
    asyncio.run(use())
    assert set(children_of(os.getpid())) == set(before)


def test_stopping_ends_a_fork_server_that_hangs_and_its_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def use() -> None:
        forks = ForkClient(1, None)
        worker = await start(forks)
        monkeypatch.setattr(fork_client, "_SILENCE_TIMEOUT", 0.1)
        for pid in (worker.pid, fork_server_of(worker)):
            os.kill(pid, signal.SIGSTOP)
        await forks.stop()
        await worker.closed
        until(lambda: not is_alive(worker.pid))

    before = children_of(os.getpid())
    asyncio.run(use())
    assert set(children_of(os.getpid())) == set(before)


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Processes below us that lose their parent become our children, as those of process 1 do."""
    prctl, set_child_subreaper = ctypes.CDLL(None, use_errno=True).prctl, 36
    assert prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(set_child_subreaper, 0, 0, 0, 0)


def test_a_lost_fork_server_is_replaced_with_the_next_worker_and_its_workers_live_on(
    run: Run,
) -> None:
    async def use(forks: ForkClient) -> None:
        orphan, hung = await start(forks), await start(forks)
        os.kill(fork_server_of(orphan), signal.SIGKILL)
        await orphan.ping(DEADLINE_SECONDS)
        # How it ends is not known any more.
        assert await orphan.end() is None
        worker = await start(forks)
        await worker.ping(DEADLINE_SECONDS)
        # It is no child of the new one, and does not see that its connection is closed.
        os.kill(hung.pid, signal.SIGSTOP)
        assert await hung.end() is None
        until(lambda: not is_alive(hung.pid))
        assert await worker.end() in ENDED
        # Only we can have the system forget them, in a container too.
        orphans = {orphan.pid, hung.pid}
        await pools.until(lambda: orphans.isdisjoint(children_of(os.getpid())))

    with adopting_orphans():
        run(use)
