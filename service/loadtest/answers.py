"""Whether answers are right: images whose labels the engine has found, and counts of answers.

The images are the probes of a bundle; the engine in this process says which labels are right.
A client has one request under way on a connection, so that a second answer to one request
would be taken for the answer to the next image, and have the wrong labels.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from service.engine.bundle import MANIFEST_FILE, MODEL_NAME
from service.loadtest.errors import LoadTestError
from service.loadtest.load import Exchange, Load
from service.loadtest.request import Target, classify_request

__all__ = ["AnswerCounts", "LabelledImages", "add_counts", "count_answers", "default_bundle"]

_PROBLEM = "urn:leafcode:problem:"
_RIGHT, _WRONG, _UNANSWERED = "right", "wrong", "unanswered"


@dataclass(frozen=True)
class AnswerCounts:
    """How many requests ended in which way.

    `problems` counts answers without labels by status and problem, such as "503 worker-lost".
    """

    right: int = 0
    wrong: int = 0
    unanswered: int = 0
    problems: dict[str, int] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many there were."""
        return self.right + self.wrong + self.unanswered + sum(self.problems.values())

    def faults(self, allowed: Collection[str] = ()) -> list[str]:
        """What the service should not have done, one sentence each, but for `allowed` problems."""
        return [
            *([f"{self.wrong} answers had wrong labels"] if self.wrong else []),
            *([f"{self.unanswered} requests got no answer"] if self.unanswered else []),
            *(
                f"{count} answers were {problem}"
                for problem, count in self.problems.items()
                if problem not in allowed
            ),
            *([] if self.right else ["no request was answered with labels"]),
        ]

    def lines(self) -> list[str]:
        """One line a count, for people."""
        counts = {
            "right labels": self.right,
            "wrong labels": self.wrong,
            "no answer": self.unanswered,
            **self.problems,
        }
        return [f"{name:<19} {count}" for name, count in counts.items()]


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the labels that the engine finds for each."""

    images: list[bytes]
    labels: list[list[str]]

    @classmethod
    def of(cls, bundle: Path) -> "LabelledImages":
        """The probes of a bundle."""
        from service.engine import Engine  # noqa: PLC0415  # numba, which only this needs

        engine = Engine.load(bundle)
        images = [probe.image for probe in engine.manifest.probes]
        if not images:
            raise LoadTestError(f"{bundle} has no probes, which are the images to send")
        return cls(images, [[item.label for item in engine.classify(data)] for data in images])

    def requests(self, count: int, target: Target) -> list[bytes]:
        """So many requests, with the images in turns."""
        each = [classify_request(image, target) for image in self.images]
        return [each[number % len(each)] for number in range(count)]


def default_bundle(models: Path) -> Path:
    """The version folder that a service of this repository answers with by default."""
    found = [manifest.parent for manifest in models.glob(f"*/*/{MANIFEST_FILE}")]
    versions = sorted(
        (folder.parent.name, int(folder.name), folder)
        for folder in found
        if MODEL_NAME.fullmatch(folder.parent.name) and folder.name.isdecimal()
    )
    if not versions:
        raise LoadTestError(f"{models} has no model, expected <name>/<version>/ below it")
    first = versions[0][0]
    return [folder for name, _, folder in versions if name == first][-1]


def count_answers(load: Load, labels: Sequence[Sequence[str]]) -> AnswerCounts:
    """Judge every exchange; request i was about image i modulo their number."""
    counts = Counter(_judge(item, labels[item.number % len(labels)]) for item in load.exchanges)
    named = {name: counts.pop(name, 0) for name in (_RIGHT, _WRONG, _UNANSWERED)}
    return AnswerCounts(**named, problems=dict(sorted(counts.items())))


def add_counts(parts: Iterable[AnswerCounts]) -> AnswerCounts:
    """The sum of several counts."""
    right = wrong = unanswered = 0
    problems: Counter[str] = Counter()
    for part in parts:
        right, wrong = right + part.right, wrong + part.wrong
        unanswered += part.unanswered
        problems.update(part.problems)
    return AnswerCounts(right, wrong, unanswered, dict(problems))


def _judge(exchange: Exchange, labels: Sequence[str]) -> str:
    """A name among the fields of `AnswerCounts`, or status and problem."""
    if exchange.status == 0:
        return _UNANSWERED
    document = _document(exchange.body)
    if exchange.status == 200:
        found = [item.get("label") for item in document.get("predictions", [])]
        return _RIGHT if found == list(labels) else _WRONG
    problem = str(document.get("type", ""))
    known = problem.startswith(_PROBLEM)
    return f"{exchange.status} {problem.removeprefix(_PROBLEM)}" if known else str(exchange.status)


def _document(body: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        document = json.loads(body)
        if isinstance(document, dict):
            return document
    return {}
