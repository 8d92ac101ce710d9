"""The service beside bare engines and another server: real processes, a tiny model."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import bundles, pictures
from tests.trainer.bench.sizes import TINY
from trainer.bench import server_comparison
from trainer.bench.load_generator import Load, LoadGenerator
from trainer.bench.server_comparison import OURS, PEERS, compare_servers
from trainer.bench.service_bench import ServiceBench, set_up_service_bench
from trainer.bench.service_figures import SERVICE_FIGURES
from trainer.errors import TrainingError


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceBench]:
    """A service of a tiny model, on all cores; another model and version are never asked for."""
    folder = tmp_path_factory.mktemp("bench")
    for name, version in (("apples", 1), ("apples", 2), ("tiny", 1)):
        bundles.write_model(folder / "models", name, version)
    (folder / "image.jpg").write_bytes(pictures.jpeg(pictures.disc(96, 80)))
    images = [folder / "image.jpg"] * 6
    with set_up_service_bench(
        folder / "models", images, TINY.model_copy(update={"rounds": 2})
    ) as ready:
        yield ready


@pytest.mark.parametrize(
    "name", ["service_vs_engine", "service_added_ms", "latency_p99_at_70", "replaced_seconds"]
)
def test_figures_of_the_service_are_medians_of_rounds(bench: ServiceBench, name: str) -> None:
    figure = SERVICE_FIGURES[name].measure(bench)
    assert figure.value > 0
    assert figure.spread.rounds >= 2
    assert figure.spread.lowest <= figure.value <= figure.spread.highest
    assert all(value >= 0 for value in figure.facts.values())


def test_cpu_of_the_front_end_stands_beside_that_of_workers_and_generator(
    bench: ServiceBench,
) -> None:
    figure = SERVICE_FIGURES["front_end_ms"].measure(bench)
    assert figure.spread.lowest > 0
    assert set(figure.facts) == {"workers_ms", "generator_ms"}
    assert all(value > 0 for value in figure.facts.values())


def test_the_engine_that_is_compared_is_the_one_that_answers(bench: ServiceBench) -> None:
    assert bench.bundle == bench.models / "apples" / "2"


def test_the_pool_and_the_bare_engines_share_their_cores(bench: ServiceBench) -> None:
    assert bench.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert len(bench.server.workers) == len(bench.cores)
    usage = bench.server.usage()
    assert min(usage.front_end_cpu, usage.workers_cpu, usage.bytes) > 0


def test_a_load_whose_requests_fail_is_no_measurement() -> None:
    load = Load(3, 1.0, {200: 2, 500: 1}, {}, {}, 0.0)
    with pytest.raises(TrainingError, match="1 of 3 requests failed"):
        load.all_answered()


def test_a_generator_that_cannot_work_is_named(bench: ServiceBench, tmp_path: Path) -> None:
    absent = [tmp_path / "absent.jpg"]
    with LoadGenerator(bench.server.address, absent, bench.cores[-1]) as generator:
        with pytest.raises(TrainingError, match="the load generator ended"):
            generator.closed_loop(1, [0])
        with pytest.raises(TrainingError, match="the load generator ended"):
            generator.closed_loop(1, [0])


def test_an_executor_serves_like_us_until_a_worker_dies(
    bench: ServiceBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(PEERS, "LitServe")
    monkeypatch.setattr(server_comparison, "_RECOVERY_SECONDS", 2.0)
    missing: dict[str, str] = {}
    found = compare_servers(bench, missing)
    assert missing == {}
    assert set(found) == {OURS, *PEERS}
    assert found[OURS].failed == 0
    assert found[OURS].recovery_seconds is not None
    (executor,) = (found[name] for name in PEERS)
    assert executor.per_second.median > 0
    assert executor.failed > 0
    assert executor.recovery_seconds is None
