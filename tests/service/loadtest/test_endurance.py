"""What a long run says about memory, file handles and threads."""

from pathlib import Path

from service.loadtest.answers import AnswerCounts
from service.loadtest.endurance import EnduranceResult
from service.loadtest.footprint import Footprint, quiet_footprint
from service.loadtest.processes import ServiceProcess
from tests.support import bundles

FIRST = Footprint(100, 100, 200, handles=40, threads=7, processes=4)


def result(last: Footprint, *other: str) -> EnduranceResult:
    return EnduranceResult(AnswerCounts(right=1), other, 9, 45.0, FIRST, last)


def test_less_than_five_percent_is_no_growth() -> None:
    good = result(Footprint(104, 90, 209, handles=40, threads=6, processes=4))
    assert good.faults() == []
    assert "all processes       0.0 MB at first, 0.0 MB in the end, +0.8%" in good.text()


def test_a_leak_is_told_where_it_is() -> None:
    leaking = result(
        Footprint(105, 100, 200, handles=41, threads=9, processes=4), "no image was answered 500"
    )
    assert leaking.faults() == [
        "no image was answered 500",
        "the memory of the front end grew by 5.0%, expected less than 5 %",
        "there were 41 file handles in the end, 40 at first",
        "there were 9 threads in the end, 7 at first",
    ]


def test_the_usual_footprint_is_that_of_no_exceptional_round() -> None:
    rounds = [Footprint(n, n, n, n, n, 4) for n in (5, 900, 7)]
    assert Footprint.median(rounds) == Footprint(7, 7, 7, 7, 7, 4)


def test_all_processes_of_a_service_are_measured(tmp_path: Path) -> None:
    bundles.write_model(tmp_path)
    with ServiceProcess(tmp_path, "--workers", "1") as service:
        (fork_server,), (worker,) = service.fork_servers, service.workers
        assert sorted((service.process.pid, fork_server, worker)) == service.processes
        found = quiet_footprint(service)
    assert min(found.front_end, found.fork_server, found.workers) > 10_000_000
    assert found.processes == 3
    assert found.threads >= 3
    assert service.processes == []
