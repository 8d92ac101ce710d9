"""One image, three ways in: evaluation, command line and HTTP give the same numbers."""

import json
from pathlib import Path

import httpx
import pytest

from service.engine import Engine
from tests.support import processes


@pytest.mark.parametrize("kind", ["cross", "disc", "stripes"])
def test_evaluation_command_line_and_http_give_the_same_probabilities(
    drawn_images: Path, trained_bundle: Path, trained_server: processes.Server, kind: str
) -> None:
    image = drawn_images / kind / "005.png"
    engine = Engine.load(trained_bundle)
    expected = [
        {"label": item.label, "probability": item.probability}
        for item in engine.rank(engine.scores(image.read_bytes()), 4)
    ]
    repository = str(trained_bundle.parents[1])
    done = processes.run("classify", str(image), "--models", repository, "--top-k", "4", "--json")
    assert json.loads(done.stdout)["results"][0]["predictions"] == expected
    url = f"{trained_server.url}/v1/classify?top_k=4"
    assert httpx.post(url, content=image.read_bytes()).json()["predictions"] == expected


def test_probabilities_of_all_labels_add_up_to_one(
    drawn_images: Path, trained_server: processes.Server
) -> None:
    data = (drawn_images / "square" / "003.png").read_bytes()
    answer = httpx.post(f"{trained_server.url}/v1/classify?top_k=100", content=data).json()
    assert len(answer["predictions"]) == 4
    assert sum(item["probability"] for item in answer["predictions"]) == pytest.approx(1, abs=1e-9)
    assert answer["predictions"][0]["label"] == "square"
