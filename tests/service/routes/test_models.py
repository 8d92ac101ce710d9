"""`GET /v1/models…` and probes over HTTP."""

import httpx
import pytest

from tests.support import bundles
from tests.support.clients import problem_of


def test_every_loaded_version_is_listed(client: httpx.Client) -> None:
    cards = client.get("/v1/models").json()["models"]
    found = [(card["name"], card["version"], card["default"]) for card in cards]
    assert found == [("apples", 1, False), ("apples", 2, True), ("tiny", 1, False)]


def test_a_model_tells_all_about_its_highest_version(client: httpx.Client) -> None:
    card = client.get("/v1/models/apples").json()
    assert (card["version"], card["versions"]) == (2, [1, 2])
    assert card["labels"] == list(bundles.LABELS)
    assert card["configuration"] == bundles.WITH_THRESHOLD.to_json()
    assert card["quality"] == {"mean_class_accuracy": 0.25}
    assert card["provenance"] == {"dataset": "random", "seed": 2}
    assert card["limits"] == {
        "max_body_bytes": 1_000_000,
        "max_image_pixels": 50_000_000,
        "max_image_side": 20_000,
        "max_images": 4,
        "max_descriptors": 100,
    }


def test_a_version_has_a_page_of_its_own(client: httpx.Client) -> None:
    assert client.get("/v1/models/apples/versions/1").json()["version"] == 1


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/models/pears", 404),
        ("/v1/models/apples/versions/3", 404),
        ("/v1/models/apples/versions/x", 422),
        ("/v1/models/..%2f..%2fetc%2fpasswd", 404),
        ("/v1/models/%00", 404),
        ("/nothing/here", 404),
    ],
)
def test_what_is_not_there_is_a_problem(client: httpx.Client, path: str, status: int) -> None:
    problem_of(client.get(path), status)


def test_a_wrong_method_names_the_right_one(client: httpx.Client) -> None:
    response = client.get("/v1/classify")
    assert "expected POST" in str(problem_of(response, 405)["detail"])
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/docs"])
def test_probes_and_documentation_answer(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


def test_a_model_tells_its_threshold_or_that_it_has_none(client: httpx.Client) -> None:
    cards = client.get("/v1/models").json()["models"]
    thresholds = [card["configuration"]["known_threshold"] for card in cards]
    assert thresholds == [None, bundles.WITH_THRESHOLD.known_threshold, None]
