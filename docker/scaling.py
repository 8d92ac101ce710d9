"""The figures of docker/scaling.md: `python docker/scaling.py cost | autoscaler`.

`cost` multiplies measured times by numbers of images. `autoscaler` goes through a day second by
second: requests come at random around a daily curve, pods answer them, and the rules of
docker/kubernetes/autoscaler.yaml, as Kubernetes documents them, set how many pods there are. A
pod is an M/M/2 queue of its own while it keeps up (requests are spread at random), and a backlog
that is worked off at full rate while it does not; what does not fit into its queue is rejected.
"""

import argparse
import math
import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["CURVES", "Autoscaler", "Day", "Pod", "Result", "cost_table", "simulate", "wait_over"]

DAY_SECONDS = 86_400
SYNC_SECONDS = 15
"""How often Kubernetes looks at the CPU; unless its controller is told otherwise."""

# Measured: RESULTS.md and docker/README.md, "Sizing".
SERVICE_MS = 6.8
ENGINE_MS = 1e3 / 171
PHOTO_MS = 35.0
TRAINING_MS = 40 * 60e3 / 60_000
IMAGE_KB = 21_700 / 1_728
PHOTO_KB = 3_000.0
POOLED_KB = 8.3e6 / 60_000


@dataclass(frozen=True)
class Pod:
    """What one pod can do: docker/kubernetes/deployment.yaml, and its time to get ready."""

    cores: int = 2
    queue: int = 128
    service_ms: float = SERVICE_MS
    start_seconds: int = 5

    @property
    def rate(self) -> float:
        """Requests a second that it can answer."""
        return 1e3 * self.cores / self.service_ms


@dataclass(frozen=True)
class Autoscaler:
    """docker/kubernetes/autoscaler.yaml; the rest are the defaults of Kubernetes."""

    least: int = 2
    most: int = 10
    target: float = 0.7
    down_seconds: int = 300
    tolerance: float = 0.1

    def wanted(self, pods: int, utilization: float) -> int:
        """Kubernetes' rule: in proportion to the CPU, unless that is nearly on target."""
        ratio = utilization / self.target
        count = pods if abs(ratio - 1) <= self.tolerance else math.ceil(pods * ratio)
        # At most four pods, or twice as many, at a time.
        return max(self.least, min(count, self.most, max(pods + 4, 2 * pods)))


@dataclass(frozen=True)
class Day:
    """Requests a second: least at night, most at noon; perhaps a jump in the evening."""

    peak: float = 1_400.0
    night: float = 0.15
    jump: float = 0.0

    def rate(self, second: int) -> float:
        """How many a second are expected then."""
        height = math.pow(0.5 - 0.5 * math.cos(2 * math.pi * second / DAY_SECONDS), 1.5)
        expected = self.peak * (self.night + (1 - self.night) * height)
        return expected + self.jump * self.peak * (72_000 <= second < 75_600)


@dataclass(frozen=True)
class Result:
    """A day: requests, rejected ones among them, waiting in ms, and pods."""

    requests: int
    rejected: int
    p50_ms: float
    p99_ms: float
    core_hours: float
    most_pods: int


CURVES = {
    "as in autoscaler.yaml": (Day(), Autoscaler(), Pod()),
    "target 50 %": (Day(), Autoscaler(target=0.5), Pod()),
    "target 90 %": (Day(), Autoscaler(target=0.9), Pod()),
    "pods ready after 120 s": (Day(), Autoscaler(), Pod(start_seconds=120)),
    "half of the peak more at 20:00": (Day(jump=0.5), Autoscaler(), Pod()),
    "the same, ready after 120 s": (Day(jump=0.5), Autoscaler(), Pod(start_seconds=120)),
    "always 7 pods": (Day(), Autoscaler(least=7, most=7), Pod()),
    "4 cores a pod, at most 5": (Day(), Autoscaler(most=5), Pod(cores=4)),
}
"""What the page shows."""


def simulate(day: Day, rules: Autoscaler, pod: Pod, seed: int = 16) -> Result:
    """One day, which begins with the least pods at midnight."""
    chance = random.Random(seed)  # noqa: S311
    fleet = _Fleet(rules, pod)
    seconds = [fleet.step(_poisson(day.rate(second), chance)) for second in range(DAY_SECONDS)]
    return Result(
        sum(item.arrived for item in seconds),
        sum(item.rejected for item in seconds),
        1e3 * _quantile(seconds, pod, 0.5),
        1e3 * _quantile(seconds, pod, 0.99),
        pod.cores * sum(item.paid for item in seconds) / 3_600,
        max(item.paid for item in seconds),
    )


@dataclass(frozen=True)
class _Second:
    arrived: int
    rejected: int
    backlog: float
    ready: int
    paid: int


class _Fleet:
    """The pods of a service, which the autoscaler starts and stops."""

    def __init__(self, rules: Autoscaler, pod: Pod) -> None:
        self._rules, self._pod = rules, pod
        self._ready = rules.least
        self._starting: deque[int] = deque()
        self._backlog = 0.0
        self._used: list[float] = []
        self._advice: deque[int] = deque(maxlen=max(1, rules.down_seconds // SYNC_SECONDS))
        self._now = 0

    def step(self, arrived: int) -> _Second:
        """One second."""
        while self._starting and self._starting[0] <= self._now:
            self._starting.popleft()
            self._ready += 1
        capacity = self._ready * self._pod.rate
        waiting = self._backlog + arrived
        served = min(waiting, capacity)
        self._backlog = min(waiting - served, float(self._ready * self._pod.queue))
        rejected = round(waiting - served - self._backlog)
        self._used.append(served / capacity)
        paid = self._ready + len(self._starting)
        self._now += 1
        if self._now % SYNC_SECONDS == 0:
            self._scale()
        return _Second(arrived, rejected, self._backlog, self._ready, paid)

    def _scale(self) -> None:
        """Up at once; down to the most that was wanted within the time to settle."""
        used, self._used = sum(self._used) / len(self._used), []
        pods = self._ready + len(self._starting)
        # Pods that start count as idle, so that nobody asks for them twice.
        wanted = self._rules.wanted(pods, used * self._ready / pods)
        self._advice.append(wanted)
        settled = max(self._advice)
        if wanted > pods:
            due = self._now + self._pod.start_seconds
            self._starting.extend([due] * (wanted - pods))
        elif settled < pods and not self._starting:
            self._ready = settled


def _poisson(mean: float, chance: random.Random) -> int:
    """Arrivals of a second; the normal distribution is close enough at such means."""
    return max(0, round(chance.gauss(mean, math.sqrt(mean))))


def wait_over(seconds: float, rate: float, pod: Pod) -> float:
    """Erlang's C: the share of requests that wait longer in a pod with so many a second."""
    load, spare = rate * pod.service_ms / 1e3, pod.rate - rate
    if spare <= 0:
        return 1.0
    busy = load**pod.cores / math.factorial(pod.cores) * pod.rate / spare
    idle = sum(load**count / math.factorial(count) for count in range(pod.cores))
    return busy / (idle + busy) * math.exp(-spare * seconds)


def _quantile(seconds: Sequence[_Second], pod: Pod, share: float) -> float:
    """The waiting time that this share of the answered requests does not exceed."""
    # Seconds that are alike to the pods are counted together.
    alike: dict[tuple[int, int], int] = {}
    for item in seconds:
        wait = round(1e3 * item.backlog / (item.ready * pod.rate))
        key = (wait, round(min(item.arrived / item.ready, 0.999 * pod.rate)))
        alike[key] = alike.get(key, 0) + item.arrived
    total, low, high = sum(alike.values()), 0.0, 60.0
    while high - low > 1e-5:
        middle = (low + high) / 2
        over = sum(
            count * (1.0 if wait > 1e3 * middle else wait_over(middle - wait / 1e3, rate, pod))
            for (wait, rate), count in alike.items()
        )
        low, high = (middle, high) if over > (1 - share) * total else (low, middle)
    return high


def cost_table() -> Iterator[str]:
    """Core hours and bytes by number of images."""
    yield "| | 10⁶ | 10⁸ | 10⁹ |"
    yield "|---|---:|---:|---:|"
    for name, each, unit in (
        (f"serving, {SERVICE_MS} ms each: core hours", SERVICE_MS / 3.6e6, ""),
        (f"in bulk without HTTP, {ENGINE_MS:.1f} ms: core hours", ENGINE_MS / 3.6e6, ""),
        (f"photographs of 12 million pixels, {PHOTO_MS:.0f} ms: core hours", PHOTO_MS / 3.6e6, ""),
        (f"training, {TRAINING_MS:.0f} ms: core hours", TRAINING_MS / 3.6e6, ""),
        (f"images sent, {IMAGE_KB:.1f} KB each", IMAGE_KB / 1e6, " GB"),
        ("photographs sent, 3 MB each", PHOTO_KB / 1e6, " GB"),
        (f"pooled vectors kept for training, {POOLED_KB:.0f} KB each", POOLED_KB / 1e6, " GB"),
    ):
        cells = [f"{_rounded(each * 10**power)}{unit}" for power in (6, 8, 9)]
        yield f"| {name} | {' | '.join(cells)} |"


def _rounded(value: float) -> str:
    """To two digits, as exact as the times are."""
    digits = 1 - math.floor(math.log10(value))
    return f"{round(value, digits):,.{max(0, digits)}f}".replace(",", " ")


def autoscaler_table() -> Iterator[str]:
    """Every curve, one row each."""
    yield "| | requests | rejected | waiting p50 | p99 | core hours | most pods |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for name, parts in CURVES.items():
        found = simulate(*parts)
        rejected = f"{found.rejected:,}".replace(",", " ")
        yield (
            f"| {name} | {found.requests / 1e6:.1f} M | {rejected} | {found.p50_ms:.0f} ms "
            f"| {found.p99_ms:.0f} ms | {found.core_hours:.0f} | {found.most_pods} |"
        )


def main() -> None:
    """Print a table of the page."""
    parser = argparse.ArgumentParser(description="Print the tables of docker/scaling.md.")
    parser.add_argument("table", choices=("cost", "autoscaler"))
    rows = cost_table() if parser.parse_args().table == "cost" else autoscaler_table()
    for row in rows:
        print(row)  # noqa: T201


if __name__ == "__main__":
    main()
