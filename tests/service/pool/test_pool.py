"""The pool with real processes: signals from outside make workers hang and die."""

import asyncio
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from service.engine import BundleError, Engine, LeafcodeError, UnsupportedImageError
from service.errors import DeadlineError, NotReadyError, OverloadedError, WorkerLostError
from service.pool.job import WorkerState
from service.pool.pool import Pool
from service.repository import ModelKey
from tests.support import bundles
from tests.support.pools import (
    PNG,
    TINY,
    best_label,
    classify,
    pids,
    running,
    send,
    stopped,
    submit,
    until,
)
from tests.support.processes import children_of

AS_JSON = CodeForms("json", "json")


def expected_label(models: Path) -> str:
    return Engine.load(models / "tiny" / "1").classify(PNG, 1)[0].label


def all_ready(pool: Pool) -> bool:
    return not pool.state().obstacles()


def the_busy(pool: Pool) -> WorkerState:
    (worker,) = (worker for worker in pool.state().workers if worker.state == "busy")
    return worker


def test_operations_give_what_the_engine_gives(models: Path) -> None:
    engine = Engine.load(models / "tiny" / "1")
    descriptors = np.random.default_rng(0).random((7, 128)).astype(np.float32)

    async def use() -> None:
        async with running(models, workers=1) as pool:
            labels = await pool.classify(TINY, PNG, 3)
            assert json.loads(labels.value) == list(map(asdict, engine.classify(PNG, 3)))
            assert set(labels.timings.stages) == {
                "decode",
                "sift",
                "coding",
                "pooling",
                "classifier",
            }
            assert labels.timings.worker >= sum(labels.timings.stages.values())
            scores = await pool.scores(TINY, PNG)
            np.testing.assert_array_equal(scores.value, engine.scores(PNG))
            codes, plain = await pool.encode(TINY, descriptors), engine.encode(descriptors)
            for column in ("leaf_ids", "atom_ids", "values"):
                np.testing.assert_array_equal(getattr(codes.value, column), getattr(plain, column))
            forms = CodeForms("image", "json")
            found = json.loads((await pool.write_codes(TINY, PNG, forms)).value)
            rows, cols, _ = engine.describe(engine.decode(PNG)).shape
            assert found["grid"] == {"rows": rows, "cols": cols}
            assert len(found["leaf_ids"]) == rows * cols
            body = json.dumps({"descriptors": descriptors.tolist()}).encode()
            rendered = json.loads((await pool.write_codes(TINY, body, AS_JSON)).value)
            assert rendered["values"] == plain.values.tolist()

    asyncio.run(use())


def test_no_descriptors_and_wrong_descriptors_cross_the_pool(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            none = await pool.encode(TINY, np.empty((0, 128), np.float32))
            assert none.value.values.shape == (0, 3)
            with pytest.raises(LeafcodeError, match=r"shape \[2, 3\], expected"):
                await pool.encode(TINY, np.zeros((2, 3), np.float32))
            with pytest.raises(LeafcodeError, match="no longer loaded"):
                await pool.scores(ModelKey("tiny", 9), PNG)

    asyncio.run(use())


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores, one is allowed here")
def test_the_front_keeps_out_of_the_way_of_workers(models: Path) -> None:
    async def front_cores(workers: int) -> tuple[int, ...]:
        async with running(models, workers=workers) as pool:
            for number in range(workers):  # the first that is idle works
                await classify(pool)
                busy = [place.number for place in pool._places if place._useful]
                assert busy == [0], number
            return pool.front_cores

    everyone = len(usable_cores())
    assert asyncio.run(front_cores(1)) == allowed_cores()[1:]
    others = set(allowed_cores()) - set(usable_cores())
    assert set(asyncio.run(front_cores(everyone))) == (others or {usable_cores()[-1]})


def test_workers_are_pinned_and_share_one_mapped_copy(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            for worker in pool.state().workers:
                assert worker.pid is not None
                assert os.sched_getaffinity(worker.pid) == set(worker.cores)
                assert worker.resident_bytes() > 1_000_000
                for mapping in mappings(worker.pid, "tiny/1/tensors.safetensors"):
                    assert mapping["permissions"] == "r--s"
                    assert mapping["Private_Dirty"] == "0 kB"
                    assert mapping["Private_Clean"] == "0 kB"
                    assert mapping["Shared_Clean"] == mapping["Rss"] != "0 kB"

    asyncio.run(use())


def open_files(pid: int) -> list[str]:
    """What the descriptors of a process stand for."""
    return [str(entry.readlink()) for entry in Path(f"/proc/{pid}/fd").iterdir()]


def mappings(pid: int, file: str) -> Iterator[dict[str, str]]:
    """The mappings of a file in a process, as the kernel tells them."""
    blocks: list[dict[str, str]] = []
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in name:
            blocks.append({"line": line, "permissions": line.split()[1]})
        else:
            blocks[-1][name] = value.strip()
    found = [block for block in blocks if block["line"].endswith(file)]
    assert found
    yield from found


def test_a_worker_holds_no_socket_but_its_own(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            for pid in pids(pool):
                kinds = [target.partition(":")[0] for target in open_files(pid)]
                assert kinds.count("socket") == 1

    asyncio.run(use())


def test_a_request_survives_its_worker_which_is_replaced_on_its_core(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            with stopped(pool) as held:
                job = await submit(pool)
                victim = the_busy(pool)
                send(victim.pid, signal.SIGKILL)
                await until(lambda: the_busy(pool).number != victim.number)
            assert await job == expected_label(models)
            await until(lambda: all_ready(pool))
            replacement = pool.state().workers[victim.number]
            assert replacement.pid not in held
            assert replacement.pid is not None
            assert os.sched_getaffinity(replacement.pid) == set(victim.cores)
            assert pool.state().restarts == replacement.restarts == 1

    asyncio.run(use())


def test_a_request_whose_workers_die_twice_fails_alone(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            with stopped(pool):
                first = await submit(pool)
                victim = the_busy(pool)
                send(victim.pid, signal.SIGKILL)
                await until(lambda: the_busy(pool).number != victim.number)
                innocent = await submit(pool)
                send(the_busy(pool).pid, signal.SIGKILL)
                with pytest.raises(WorkerLostError, match="2 workers went away"):
                    await first
            assert await innocent == expected_label(models)
            await until(lambda: all_ready(pool))
            assert pool.state().refusals == {"worker-lost": 1}

    asyncio.run(use())


def test_a_job_that_runs_past_its_deadline_costs_its_worker(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, deadline_seconds=1) as pool:
            (hung,) = pids(pool)
            send(hung, signal.SIGSTOP)
            with pytest.raises(DeadlineError, match="a worker was at it"):
                await classify(pool)
            (obstacle,) = pool.state().obstacles()
            assert obstacle.startswith("worker 0 (cores ")
            assert "a job ran for 1 s, the longest allowed" in obstacle
            await until(lambda: all_ready(pool))
            assert pids(pool) != [hung]
            assert await classify(pool) == expected_label(models)

    asyncio.run(use())


def test_an_impatient_client_costs_no_worker(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            with stopped(pool) as held:
                with pytest.raises(DeadlineError, match=r"after 0\.0\d+ s, a worker was at it"):
                    await classify(pool, patience=0.01)
                with pytest.raises(DeadlineError, match=r"after 0\.0\d+ s, it was still queued"):
                    await classify(pool, patience=0.01)
                assert pool.state().queue_depth == 0
            assert await classify(pool) == expected_label(models)
            assert pids(pool) == held
            assert pool.state().refusals == {"deadline": 2}

    asyncio.run(use())


def test_patience_does_not_extend_the_deadline(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, deadline_seconds=1) as pool:
            with stopped(pool), pytest.raises(DeadlineError, match=r"after 1(\.\d+)? s"):
                await classify(pool, patience=1e9)

    asyncio.run(use())


def test_a_full_queue_refuses_and_says_when_to_come_back(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, queue_size=1) as pool:
            with stopped(pool):
                accepted = [await submit(pool), await submit(pool)]
                assert (pool.state().busy, pool.state().queue_depth) == (1, 1)
                assert pool.state().queue_bytes == len(PNG)
                with pytest.raises(OverloadedError) as caught:
                    await classify(pool)
                assert caught.value.retry_after >= 1
            assert await asyncio.gather(*accepted) == [expected_label(models)] * 2
            assert (pool.state().queue_bytes, pool.state().refusals) == (0, {"queue-full": 1})

    asyncio.run(use())


def test_a_queue_is_full_of_bytes_too(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, queue_bytes=1_000_000) as pool:
            with stopped(pool):
                tasks = [
                    asyncio.create_task(pool.scores(TINY, bytes(size)))
                    for size in (10, 600_000, 400_000, 1)
                ]
                with pytest.raises(OverloadedError):
                    await tasks[-1]
            outcomes = await asyncio.gather(*tasks[:-1], return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {UnsupportedImageError}

    asyncio.run(use())


def test_images_of_one_request_are_spread_accepted_as_one_and_fail_alone(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2, queue_size=1) as pool:
            with stopped(pool):
                images = [PNG, b"no image", PNG, PNG]
                request = asyncio.create_task(pool.classify_many(TINY, images, 1))
                await until(lambda: pool.state().busy == 2)
                assert pool.state().queue_depth == 2
            first, bad, third, fourth = await request
            assert isinstance(bad, UnsupportedImageError)
            for outcome in (first, third, fourth):
                assert not isinstance(outcome, LeafcodeError)
                assert best_label(outcome.value) == expected_label(models)
            assert not isinstance(fourth, LeafcodeError)
            assert fourth.timings.queue > 0

    asyncio.run(use())


def test_a_client_that_goes_away_is_dropped_while_queued(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            with stopped(pool):
                at_work, queued = await submit(pool), await submit(pool)
                batch = asyncio.create_task(pool.classify_many(TINY, [PNG] * 3, 1))
                await until(lambda: pool.state().queue_depth == 4)
                for task in (queued, batch, at_work):
                    task.cancel()
                await until(lambda: pool.state().queue_depth == 0)
            assert await classify(pool) == expected_label(models)
            assert pool.state().refusals == {"client-gone": 4}
            assert pool.state().restarts == 0

    asyncio.run(use())


def test_a_silent_worker_shows_and_comes_back(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            asleep = pool.state().workers[1]
            send(asleep.pid, signal.SIGSTOP)
            await until(lambda: pool.state().workers[1].state == "silent")
            (obstacle,) = pool.state().obstacles()
            assert "is silent: it has not answered for" in obstacle
            assert await classify(pool) == expected_label(models)
            send(asleep.pid, signal.SIGCONT)
            await until(lambda: all_ready(pool))
            assert pool.state().restarts == 0

    asyncio.run(use())


def test_a_worker_that_stays_silent_is_replaced(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            (asleep,) = pids(pool)
            send(asleep, signal.SIGSTOP)
            await until(lambda: pool.state().restarts == 1 and all_ready(pool))
            assert pids(pool) != [asleep]

    asyncio.run(use())


def count_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_many_restarts_leak_no_descriptor_and_no_process(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=2) as pool:
            n_files, n_processes = count_files(), len(children_of(os.getpid()))
            for count in range(1, 11):
                victim = pool.state().workers[count % 2]
                # It has done something since it started, so that no delay grows.
                assert await asyncio.gather(classify(pool), classify(pool))
                send(victim.pid, signal.SIGKILL)
                await until(lambda: pool.state().restarts == count and all_ready(pool))  # noqa: B023
            assert count_files() == n_files
            assert len(children_of(os.getpid())) == n_processes

    asyncio.run(use())


def test_a_lost_fork_server_is_replaced_with_the_next_worker(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            (worker,) = pids(pool)
            (fork_server,) = (pid for pid in children_of(os.getpid()) if worker in children_of(pid))
            send(fork_server, signal.SIGKILL)
            assert await classify(pool) == expected_label(models)
            send(worker, signal.SIGKILL)
            await until(lambda: pool.state().restarts >= 1 and all_ready(pool))
            assert await classify(pool) == expected_label(models)

    asyncio.run(use())


def test_a_worker_that_cannot_load_says_why_and_is_tried_again(tmp_path: Path) -> None:
    bundles.write_model(tmp_path)

    async def use() -> None:
        async with running(tmp_path, workers=2) as pool:
            (tmp_path / "tiny").rename(tmp_path / "away")
            send(pids(pool)[0], signal.SIGKILL)
            await until(lambda: "it could not start" in pool.state().workers[0].reason)
            assert "manifest.json: cannot be read" in pool.state().obstacles()[0]
            assert await classify(pool)
            (tmp_path / "away").rename(tmp_path / "tiny")
            await until(lambda: all_ready(pool))

    asyncio.run(use())


def test_a_bundle_with_other_probes_ends_the_start_and_every_process(tmp_path: Path) -> None:
    bundles.write_model_with_wrong_probes(tmp_path)

    async def use() -> None:
        with pytest.raises(BundleError, match="probe 0 scores differ"):
            async with running(tmp_path, workers=2):
                pass

    asyncio.run(use())


def test_a_draining_pool_finishes_what_it_accepted_and_refuses_the_rest(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            with stopped(pool):
                accepted = [await submit(pool), await submit(pool)]
                pool.drain()
                assert pool.state().obstacles() == ["the service is starting or stopping"]
                with pytest.raises(NotReadyError):
                    await classify(pool)
                stopping = asyncio.create_task(pool.stop())
                await asyncio.sleep(0)
            await stopping
            assert await asyncio.gather(*accepted) == [expected_label(models)] * 2

    asyncio.run(use())


def test_a_pool_that_cannot_finish_in_time_stops_anyway(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, shutdown_seconds=1) as pool:
            send(pids(pool)[0], signal.SIGSTOP)
            hopeless = await submit(pool)
            await pool.stop()
            with pytest.raises(NotReadyError, match="stopped before this was done"):
                await hopeless

    asyncio.run(use())


def test_the_event_loop_runs_while_large_bodies_are_worked_on(models: Path) -> None:
    body = json.dumps({"descriptors": [[0.123456] * 128] * 4_000}).encode()

    async def measure_turns() -> list[float]:
        async with running(models, workers=1) as pool:
            coding = asyncio.create_task(pool.write_codes(TINY, body, AS_JSON))
            times = [time.perf_counter()]
            while not coding.done():
                await asyncio.sleep(0)
                times.append(time.perf_counter())
            assert len(json.loads((await coding).value)["leaf_ids"]) == 4_000
            return np.diff(times).tolist()

    turns = asyncio.run(measure_turns())
    assert max(turns) < sum(turns) / 2


def test_a_body_larger_than_any_buffer_waits_for_a_hung_worker_without_blocking(
    models: Path,
) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            with stopped(pool):
                large = asyncio.create_task(pool.scores(TINY, bytes(20_000_000)))
                await until(lambda: pool.state().busy == 1)
            with pytest.raises(UnsupportedImageError, match="20000000 bytes are not an image"):
                await large

    asyncio.run(use())
