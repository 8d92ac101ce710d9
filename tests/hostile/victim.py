"""A running service under attack: what it answers, and what that costs it."""

import os
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.hostile import compression, forms, http, images, json_bodies, stalls, tensors
from tests.hostile.corpus import OK, Answer, Input, Kind, Limits, Outcome, collect, send
from tests.support.processes import Server, until, workers_of
from tests.support.sockets import address

__all__ = ["REQUESTS", "STALLS", "Report", "Victim"]

RequestKind = Kind[Callable[..., Input]]

REQUESTS = collect(images, http, json_bodies, forms, compression, tensors)
STALLS = collect(stalls)

GOOD = Input(http.GOOD, frozenset({OK}))
# Of the service's processes together, for one input and the good request behind it. A tick of
# the kernel's clock is 10 ms; what the measured attacks took was from 0.8 s up.
MAX_CPU_SECONDS = 3.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Report:
    """What came of some inputs; an empty list of faults is what everybody hopes for."""

    inputs: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    front_end_bytes: int = 0
    """By how much the front end's memory was above the start, at most."""
    worker_bytes: int = 0
    """The same of the worker that grew most."""
    faults: list[str] = field(default_factory=list)


class Victim:
    """A service, its limits, and the answer that a good request must have at any time."""

    def __init__(self, server: Server, limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._address = address(server)
        self._good = send(self._address, GOOD)
        self._workers = sorted(workers_of(server))
        self._resident = {pid: _memory(pid, "VmRSS") for pid in self.processes}
        self.report = Report()
        assert self._good.outcome == OK, self._good

    @property
    def processes(self) -> list[int]:
        """The front end and the workers."""
        return [self._server.process.pid, *self._workers]

    def attack(self, kind: RequestKind, inputs: Iterable[int]) -> Self:
        """Send inputs of a kind, each followed by a good request."""
        for pid in self.processes:
            _forget_peak(pid)
        with suppress(FileNotFoundError):  # a lost worker, which is noticed below
            for number in inputs:
                before = self._cpu_seconds()
                self._send(kind, number)
                self._check(send(self._address, GOOD), GOOD, f"a good request behind {kind.name}")
                self._note_cpu(self._cpu_seconds() - before, f"{kind.name} {number}")
            self._note_memory()
        return self._finish(kind.name)

    def attack_at_once(self, kinds: Iterable[RequestKind], inputs: int) -> Self:
        """Send inputs of kinds that take their time, all of them at the same time."""
        every = [(kind, number) for kind in kinds for number in range(inputs)]
        with ThreadPoolExecutor(max(1, len(every))) as threads:
            list(threads.map(lambda item: self._send(*item), every))
        self._check(send(self._address, GOOD), GOOD, "a good request behind stalled ones")
        return self._finish("stalled requests")

    def _send(self, kind: RequestKind, number: int) -> None:
        item = kind.make(kind.rng(number), self._limits)
        answer = send(self._address, item)
        self.report.inputs += 1
        if item.leaves:
            return
        self.report.outcomes[answer.outcome] += 1
        self._check(answer, item, f"{kind.name} {number}")
        if item.twin and not answer.says_the_same_as(send(self._address, _asking(item.twin))):
            self.report.faults.append(f"{kind.name} {number}: other labels than its twin")

    def _check(self, answer: Answer, item: Input, name: str) -> None:
        if answer.outcome not in item.expected:
            expected = sorted(item.expected)
            self.report.faults.append(f"{name}: {answer.outcome}, expected one of {expected}")
        elif item is GOOD and answer.body != self._good.body:
            self.report.faults.append(f"{name}: another answer than before")

    def _finish(self, name: str) -> Self:
        if sorted(workers_of(self._server)) != self._workers:
            said = "".join(line for line in self._server.log if '"level":"warning"' in line)
            self.report.faults.append(f"{name}: a worker was lost; {said}")
            until(lambda: len(workers_of(self._server)) == len(self._workers))
            self._workers = sorted(workers_of(self._server))
        return self

    def _note_cpu(self, seconds: float, name: str) -> None:
        self.report.slowest = max(self.report.slowest, (seconds, name))
        if seconds > MAX_CPU_SECONDS:
            self.report.faults.append(f"{name} took {seconds:.1f} s of CPU")

    def _cpu_seconds(self) -> float:
        return sum(map(_cpu_ticks, self.processes)) / _TICKS

    def _note_memory(self) -> None:
        front_end, *workers = (
            _memory(pid, "VmHWM") - self._resident.get(pid, 0) for pid in self.processes
        )
        self.report.front_end_bytes = max(self.report.front_end_bytes, front_end)
        self.report.worker_bytes = max(self.report.worker_bytes, *workers)


def _asking(sent: bytes) -> Input:
    return Input(sent, frozenset({OK}))


def _memory(pid: int, name: str) -> int:
    """Resident bytes now (VmRSS), or at most since the peak was forgotten (VmHWM)."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
