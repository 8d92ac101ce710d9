"""One image, three ways in: evaluation, command line and HTTP give the same numbers."""

import json
from pathlib import Path

import pytest

from service.engine import Engine
from tests.support import processes
from tests.support.clients import web
from tests.support.commands import run_here

KINDS = ("cross", "disc", "stripes")


@pytest.fixture(scope="module")
def images(drawn_images: Path) -> list[Path]:
    return [drawn_images / kind / "005.png" for kind in KINDS]


@pytest.fixture(scope="module")
def evaluated(images: list[Path], trained_bundle: Path) -> list[object]:
    """The predictions for each image as `trainer evaluate` has them."""
    engine = Engine.load(trained_bundle)
    return [
        [
            {"label": item.label, "probability": item.probability}
            for item in engine.rank(engine.scores(image.read_bytes()), 4)
        ]
        for image in images
    ]


def test_the_command_line_gives_the_probabilities_of_evaluation(
    images: list[Path], trained_bundle: Path, evaluated: list[object]
) -> None:
    options = ("--models", str(trained_bundle.parents[1]), "--top-k", "4", "--json")
    done = run_here("classify", *map(str, images), *options)
    found = [json.loads(line)["predictions"] for line in done.stdout.splitlines()]
    assert found == evaluated


@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_http_gives_the_probabilities_of_evaluation(
    images: list[Path], trained_server: processes.Server, evaluated: list[object], number: int
) -> None:
    url = f"{trained_server.url}/v1/classify?top_k=4"
    answer = web.post(url, content=images[number].read_bytes()).json()
    assert answer["predictions"] == evaluated[number]


def test_probabilities_of_all_labels_add_up_to_one(
    drawn_images: Path, trained_server: processes.Server
) -> None:
    data = (drawn_images / "square" / "003.png").read_bytes()
    answer = web.post(f"{trained_server.url}/v1/classify?top_k=100", content=data).json()
    assert len(answer["predictions"]) == 4
    assert sum(item["probability"] for item in answer["predictions"]) == pytest.approx(1, abs=1e-9)
    assert answer["predictions"][0]["label"] == "square"
