"""Each kind of hostile input gets its documented answer; here one input of each.

`make hostile` sends more of them, to a service with its default limits.
"""

import importlib
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numba
import pytest

from service.engine import BundleError, Engine
from tests.hostile import bundles, caches
from tests.hostile.corpus import Kind, Limits, collect
from tests.hostile.http import GOOD
from tests.hostile.threats import TESTED_ELSEWHERE, Threat
from tests.hostile.victim import REQUESTS, STALLS, Victim
from tests.support.processes import Server
from tests.support.small_kernel import SOURCE, start
from tests.support.sockets import connect

BUNDLES, CACHES = collect(bundles), collect(caches)
ALL = [*REQUESTS, *STALLS, *BUNDLES, *CACHES]

# Of the servers below.
LIMITS = Limits(max_body_bytes=1_000_000, max_images=4, max_descriptors=100)


def each(kinds: list[Kind[Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=[kind.name for kind in kinds])


def test_there_are_enough_kinds_and_no_two_of_one_name() -> None:
    assert len(ALL) >= 40
    assert len({kind.name for kind in ALL}) == len(ALL)


@pytest.mark.parametrize("threat", Threat, ids=[threat.name for threat in Threat])
def test_every_threat_has_a_kind_of_inputs_or_a_test_of_its_own(threat: Threat) -> None:
    module, test = TESTED_ELSEWHERE.get(threat, ("", ""))
    has_test = bool(test) and callable(getattr(importlib.import_module(module), test))
    assert has_test or any(kind.threat is threat for kind in ALL)


@each(REQUESTS[-12:])
def test_the_same_number_makes_the_same_input(kind: Kind[Any]) -> None:
    assert kind.make(kind.rng(7), LIMITS) == kind.make(kind.rng(7), LIMITS)


@pytest.fixture(scope="module")
def victim(server: Server) -> Victim:
    """The server that all tests share, which is none the worse for it."""
    return Victim(server, LIMITS)


@each(REQUESTS)
def test_a_hostile_request_gets_its_documented_answer(victim: Victim, kind: Kind[Any]) -> None:
    victim.report.faults.clear()
    assert victim.attack(kind, [0]).report.faults == []


@pytest.fixture(scope="module")
def impatient(models: Path) -> Iterator[Server]:
    """A server that does not wait long."""
    names = ("header-timeout", "body-timeout", "shutdown", "workers")
    flags = [f"--{name}-seconds=1" if name != "workers" else "--workers=1" for name in names]
    with Server("--models", str(models), *flags) as running:
        yield running


def test_every_stalled_request_is_answered_when_its_time_is_over(impatient: Server) -> None:
    assert Victim(impatient, LIMITS).attack_at_once(STALLS, 2).report.faults == []


def test_a_stop_does_not_wait_for_requests_that_stall(impatient: Server) -> None:
    with closing(connect(impatient)) as body, closing(connect(impatient)) as headers:
        body.sendall(GOOD[:-10])
        headers.sendall(GOOD[:20])
        start = time.monotonic()
        assert impatient.stop() == 0
    # One second to stop in, and a machine that may be busy; it used to take for ever.
    assert time.monotonic() - start < 60


@each(BUNDLES)
def test_a_hostile_bundle_is_rejected_with_a_sentence(
    kind: Kind[Any], models: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(models / "tiny" / "1", tmp_path / "1")
    expected = kind.make(kind.rng(0), folder)
    with pytest.raises(BundleError) as raised:
        Engine.load(folder)
    assert expected in str(raised.value)
    assert str(folder) in str(raised.value)


@each(CACHES)
def test_a_damaged_kernel_is_compiled_again(
    kind: Kind[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "small_kernel.py"
    source.write_text(SOURCE)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kernels"))
    assert start(source)(21) == 42
    kind.make(kind.rng(0), tmp_path / "kernels")
    damaged = start(source)
    assert damaged(21) == 42
    assert sum(damaged.stats.cache_misses.values()) == 1
