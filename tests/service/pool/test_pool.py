"""The pool with real processes: what fakes cannot show. Signals make workers hang and die."""

import asyncio
import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import BundleError, Engine, LeafcodeError, UnsupportedImageError
from service.errors import DeadlineError, NotReadyError, UnknownModelError, WorkerLostError
from service.formats.codes import CodeForms
from service.formats.v2.answers import join
from service.formats.v2.requests import RequestedOutput
from service.pool.cores import allowed_cores, usable_cores
from service.pool.pool import Pool
from service.repository import ModelKey
from tests.support import bundles, pictures
from tests.support.pools import (
    PNG,
    TINY,
    SharedPool,
    all_ready,
    best_label,
    classify,
    expected_label,
    pids,
    running,
    send,
    shared_pool,
    stopped,
    submit,
    the_busy,
    until,
)
from tests.support.processes import children_of

STAGES = {"decode", "sift", "coding", "pooling", "classifier"}


@pytest.fixture(scope="module")
def shared(models: Path) -> Iterator[SharedPool]:
    """Two workers; each test leaves them ready for the next."""
    with shared_pool(models, workers=2, pin="always") as pool:
        yield pool


@pytest.fixture(scope="module")
def engine(models: Path) -> Engine:
    return Engine.load(models / "tiny" / "1")


# -- Operations: what a worker does is tested with `Operations`; here it crosses processes ---


def test_labels_are_those_of_the_engine_and_every_stage_is_timed(
    shared: SharedPool, engine: Engine
) -> None:
    labels = shared.run(lambda pool: pool.classify(TINY, PNG, 3))
    assert json.loads(labels.value)["predictions"] == list(map(asdict, engine.classify(PNG, 3)))
    assert set(labels.timings.stages) == STAGES
    assert labels.timings.worker >= sum(labels.timings.stages.values())


def test_images_of_one_request_are_answered_in_their_order_and_fail_alone(
    shared: SharedPool, models: Path
) -> None:
    images = [PNG, b"no image", PNG]
    first, bad, third = shared.run(lambda pool: pool.classify_many(TINY, images, 1))
    assert isinstance(bad, UnsupportedImageError)
    for outcome in (first, third):
        assert not isinstance(outcome, LeafcodeError)
        assert best_label(outcome.value) == expected_label(models)


def test_codes_cross_in_the_form_that_was_asked_for(shared: SharedPool, engine: Engine) -> None:
    descriptors = np.random.default_rng(0).random((7, 128)).astype(np.float32)
    body, forms = descriptors.astype("<f4").tobytes(), CodeForms("raw", "json")
    written = shared.run(lambda pool: pool.write_codes(TINY, body, forms))
    assert json.loads(written.value)["values"] == engine.encode(descriptors).values.tolist()


def test_tensors_of_several_images_cross_one_by_one(shared: SharedPool, engine: Engine) -> None:
    outputs = [RequestedOutput("label"), RequestedOutput("label_id", binary=True)]
    found = shared.run(lambda pool: pool.infer_images(TINY, [PNG, PNG], outputs))
    labels, ids = join([item.value for item in found if not isinstance(item, LeafcodeError)])
    best = engine.classify(PNG, 1)[0].label
    assert json.loads(b"[" + labels.data + b"]") == [best, best]
    assert np.frombuffer(ids.data, "<i4").tolist() == [engine.labels.index(best)] * 2


def test_a_whole_answer_to_descriptors_crosses_with_the_place_where_its_json_ends(
    shared: SharedPool, engine: Engine
) -> None:
    descriptors = np.random.default_rng(0).random((3, 128)).astype(np.float32)
    outputs = [RequestedOutput("values", binary=True)]
    answer = shared.run(
        lambda pool: pool.infer_descriptors(TINY, descriptors.tobytes(), outputs, "seven")
    ).value
    assert json.loads(answer.body[: answer.header_length])["id"] == "seven"
    values = np.frombuffer(answer.body[answer.header_length :], "<f4")
    np.testing.assert_array_equal(values, engine.encode(descriptors).values.ravel())


def test_a_request_in_json_is_read_in_the_worker(shared: SharedPool) -> None:
    tensor = {"name": "descriptors", "datatype": "FP32", "shape": [1, 128], "data": [0.5] * 128}
    body = json.dumps({"inputs": [tensor]}).encode()
    answer = shared.run(lambda pool: pool.infer_json(TINY, body)).value
    assert json.loads(answer.body)["model_name"] == "tiny"
    assert answer.header_length is None


def test_a_version_that_is_not_loaded_is_unknown(shared: SharedPool) -> None:
    with pytest.raises(UnknownModelError, match="version 9 of model 'tiny' is no longer loaded"):
        shared.run(lambda pool: pool.classify(ModelKey("tiny", 9), PNG, 1))


# -- Processes ------------------------------------------------------------------------------


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores, one is allowed here")
def test_the_first_worker_that_is_idle_works_and_the_event_loop_shares_the_core_of_the_last(
    shared: SharedPool,
) -> None:
    async def use(pool: Pool) -> None:
        with stopped(pool):
            job = await submit(pool)
            assert the_busy(pool).number == 0
        await job
        taken = {core for worker in pool.state().workers for core in worker.cores}
        free = set(allowed_cores()) - taken
        assert set(pool.front_end_cores) == (free or {max(taken)})

    shared.run(use)


def test_workers_are_pinned_to_their_cores(shared: SharedPool) -> None:
    async def use(pool: Pool) -> None:
        for worker in pool.state().workers:
            assert worker.pid is not None
            assert os.sched_getaffinity(worker.pid) == set(worker.cores)
            assert worker.pinned
            assert worker.resident_bytes() > 1_000_000

    shared.run(use)


def test_workers_share_one_mapped_copy_of_a_bundle(shared: SharedPool) -> None:
    async def use(pool: Pool) -> None:
        for pid in pids(pool):
            for mapping in mappings(pid, "tiny/1/tensors.safetensors"):
                assert mapping["permissions"] == "r--s"
                assert mapping["Private_Dirty"] == "0 kB"
                assert mapping["Private_Clean"] == "0 kB"
                assert mapping["Shared_Clean"] == mapping["Rss"] != "0 kB"

    shared.run(use)


def mappings(pid: int, file: str) -> list[dict[str, str]]:
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
    return found


def test_a_worker_holds_no_socket_but_its_own(shared: SharedPool) -> None:
    async def use(pool: Pool) -> None:
        for pid in pids(pool):
            assert sum(name.startswith("socket:") for name in open_files(pid)) == 1

    shared.run(use)


def open_files(pid: int | str) -> list[str]:
    """What the descriptors of a process stand for."""
    entries = Path(f"/proc/{pid}/fd").iterdir()
    return [str(entry.readlink()) for entry in entries if entry.is_symlink()]


def test_a_body_larger_than_any_buffer_waits_for_a_hung_worker_without_blocking(
    shared: SharedPool,
) -> None:
    async def use(pool: Pool) -> None:
        with stopped(pool):
            large = asyncio.create_task(pool.classify(TINY, bytes(20_000_000), 1))
            await until(lambda: pool.state().busy == 1)
        with pytest.raises(UnsupportedImageError, match="20000000 bytes are not an image"):
            await large

    shared.run(use)


# -- Workers that die -----------------------------------------------------------------------


def test_a_request_survives_its_worker_which_is_replaced_on_its_core(
    shared: SharedPool, models: Path
) -> None:
    async def use(pool: Pool) -> None:
        restarts = pool.state().restarts
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
        assert pool.state().restarts == restarts + 1

    shared.run(use)


def test_a_request_whose_workers_die_twice_fails_alone(shared: SharedPool, models: Path) -> None:
    async def use(pool: Pool) -> None:
        with stopped(pool) as held:
            first = await submit(pool)
            victim = the_busy(pool)
            send(victim.pid, signal.SIGKILL)
            await until(lambda: the_busy(pool).number != victim.number)
            innocent = await submit(pool)
            send(held[1 - victim.number], signal.SIGKILL)
            with pytest.raises(WorkerLostError, match="the processes of 2 workers ended"):
                await first
        assert await innocent == expected_label(models)

    shared.run(use)


def test_an_image_for_which_one_worker_has_no_memory_is_answered_by_another(
    shared: SharedPool, engine: Engine
) -> None:
    image = pictures.png(Image.new("RGB", (1500, 1500)))

    async def use(pool: Pool) -> None:
        first = pool.state().workers[0].pid
        assert first is not None
        resource.prlimit(first, resource.RLIMIT_DATA, (1_000_000, resource.RLIM_INFINITY))
        outcome = await pool.classify(TINY, image, 1)
        assert best_label(outcome.value) == engine.classify(image, 1)[0].label
        await until(lambda: all_ready(pool))
        assert pool.state().workers[0].pid != first

    shared.run(use)


def test_many_restarts_leak_no_descriptor_and_no_process(shared: SharedPool) -> None:
    async def use(pool: Pool) -> None:
        files, n_processes = open_files("self"), len(children_of(os.getpid()))
        for count in range(6):
            # Both have done something since they started, so that no delay grows.
            await asyncio.gather(classify(pool), classify(pool))
            await until(lambda: all_ready(pool))
            victim = pool.state().workers[count % 2]
            send(victim.pid, signal.SIGKILL)
            await until(lambda: victim.pid not in pids(pool) and all_ready(pool))  # noqa: B023
        # Fewer is no leak: a bundle that an earlier test mapped may be collected meanwhile.
        left = open_files("self")
        assert len(left) <= len(files), (files, left)
        assert len(children_of(os.getpid())) == n_processes

    shared.run(use)


def test_a_job_that_runs_past_its_deadline_costs_its_worker(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1, deadline_seconds=1) as pool:
            (hung,) = pids(pool)
            send(hung, signal.SIGSTOP)
            with pytest.raises(DeadlineError, match="the job was running"):
                await classify(pool)
            (obstacle,) = pool.state().obstacles()
            assert obstacle.startswith("worker 0 (")
            assert obstacle.endswith("is starting: a job ran for 1 s, the longest allowed")
            await until(lambda: all_ready(pool))
            assert pids(pool) != [hung]

    asyncio.run(use())


# -- Workers that are not pinned --------------------------------------------------------------


def test_workers_that_are_not_pinned_run_on_all_cores_and_say_so(
    models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use() -> None:
        async with running(models, workers=1, pin="never") as pool:
            (worker,) = pool.state().workers
            assert worker.pid is not None
            assert os.sched_getaffinity(worker.pid) == set(allowed_cores())
            assert pool.front_end_cores == allowed_cores()
            assert str(worker) == "worker 0 (not pinned) is idle"

    with caplog.at_level("INFO"):
        asyncio.run(use())
    assert "1 workers are ready: not pinned" in caplog.text


def test_a_worker_that_somebody_moves_to_other_cores_is_not_called_pinned(
    shared: SharedPool,
) -> None:
    async def use(pool: Pool) -> None:
        worker = pool.state().workers[0]
        assert worker.pid is not None
        os.sched_setaffinity(worker.pid, allowed_cores())
        try:
            assert pool.state().workers[0].pinned is (worker.cores == allowed_cores())
        finally:
            os.sched_setaffinity(worker.pid, worker.cores)

    shared.run(use)


# -- Start and stop -------------------------------------------------------------------------


def test_a_bundle_with_other_probes_ends_the_start_and_every_process(tmp_path: Path) -> None:
    bundles.write_model_with_wrong_probes(tmp_path)

    async def use() -> None:
        with pytest.raises(BundleError, match="probe 0 scores differ"):
            async with running(tmp_path, workers=2):
                pass

    asyncio.run(use())


def test_replacements_come_back_and_answer_the_same_after_the_files_are_gone_and_the_fork_server(
    tmp_path: Path,
) -> None:
    bundles.write_model(tmp_path)
    expected = expected_label(tmp_path)

    async def use() -> None:
        async with running(tmp_path, workers=1) as pool:
            (worker,) = pids(pool)
            (fork_server,) = (pid for pid in children_of(os.getpid()) if worker in children_of(pid))
            send(fork_server, signal.SIGKILL)
            assert await classify(pool) == expected
            shutil.rmtree(tmp_path / "tiny")
            send(worker, signal.SIGKILL)
            await until(lambda: worker not in pids(pool) and all_ready(pool))
            assert await classify(pool) == expected

    asyncio.run(use())


def test_a_worker_whose_only_version_was_overwritten_says_why_and_is_tried_again(
    tmp_path: Path,
) -> None:
    tensors = bundles.write_model(tmp_path) / "tensors.safetensors"

    async def use() -> None:
        async with running(tmp_path, workers=1) as pool:
            (worker,) = pids(pool)
            bundles.flip_byte(tensors, -1)
            send(worker, signal.SIGKILL)
            await until(lambda: "the last start failed" in pool.state().workers[0].reason)
            assert "tensors.safetensors: SHA-256 is" in pool.state().obstacles()[0]
            bundles.flip_byte(tensors, -1)
            await until(lambda: all_ready(pool))
            assert await classify(pool) == expected_label(tmp_path)

    asyncio.run(use())


def test_a_pool_that_cannot_finish_in_time_stops_anyway_and_rejects_meanwhile(
    models: Path,
) -> None:
    async def use() -> None:
        async with running(models, workers=1, shutdown_seconds=1) as pool:
            send(pids(pool)[0], signal.SIGSTOP)
            hopeless = await submit(pool)
            stopping = asyncio.create_task(pool.stop())
            await asyncio.sleep(0)
            assert pool.state().obstacles() == ["the service is starting or stopping"]
            with pytest.raises(NotReadyError, match="starting or stopping"):
                await classify(pool)
            await stopping
            with pytest.raises(NotReadyError, match="the service stopped before this job was done"):
                await hopeless

    asyncio.run(use())


def test_a_stopping_pool_finishes_what_it_accepted(models: Path) -> None:
    async def use() -> None:
        async with running(models, workers=1) as pool:
            with stopped(pool):
                accepted = [await submit(pool), await submit(pool)]
                stopping = asyncio.create_task(pool.stop())
                await asyncio.sleep(0)
            await stopping
            assert await asyncio.gather(*accepted) == [expected_label(models)] * 2

    asyncio.run(use())
