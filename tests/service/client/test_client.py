"""The client against real servers: every call, every refusal, and servers that are overloaded.

Each test runs with both clients; the asynchronous one is driven call by call.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from service import client as leafcode
from service.app import create_app
from service.engine import Engine
from service.settings import Settings
from tests.support import bundles, pictures
from tests.support.overload import fill
from tests.support.processes import DEADLINE_SECONDS, Server, until, workers_of

PNG, JPEG = pictures.png(), pictures.jpeg(pictures.disc())
BROKEN = pictures.truncated_jpeg()

Ask = Callable[..., Any]


def ask_blocking(url: str, call: str, *arguments: object, **options: Any) -> Any:
    """One call of the blocking client."""
    with leafcode.Client(url, **options) as connected:
        return getattr(connected, call)(*arguments)


def ask_async(url: str, call: str, *arguments: object, **options: Any) -> Any:
    """One call of the asynchronous client."""

    async def run() -> Any:
        async with leafcode.AsyncClient(url, **options) as connected:
            return await getattr(connected, call)(*arguments)

    return asyncio.run(run())


@pytest.fixture(params=[ask_blocking, ask_async])
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


@pytest.fixture
def engine(models: Path) -> Engine:
    return Engine.load(models / "apples" / "2")


def test_an_image_is_classified_from_bytes_and_from_a_file(
    ask: Ask, server: Server, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "photo.png").write_bytes(PNG)
    answer = ask(server.url, "classify", PNG, 3)
    assert answer.model == leafcode.ModelRef("apples", 2, engine.manifest.digest)
    expected = [(item.label, item.probability) for item in engine.classify(PNG, 3)]
    assert [(item.label, item.probability) for item in answer.predictions] == expected
    assert ask(server.url + "/", "classify", tmp_path / "photo.png", 3) == answer


def test_an_image_like_none_of_the_classes_is_not_known(ask: Ask, server: Server) -> None:
    blank = pictures.png(pictures.blank())
    assert ask(server.url, "classify", PNG).known is True
    assert ask(server.url, "classify", blank).known is False
    results = ask(server.url, "classify_many", [blank, PNG])
    assert [result.known for result in results] == [False, True]


def test_model_and_version_are_asked_for(ask: Ask, server: Server) -> None:
    assert ask(server.url, "classify", PNG, 5, "apples", 1).model.version == 1
    assert ask(server.url, "codes", np.ones((1, 128)), "tiny").model.name == "tiny"
    assert ask(server.url, "codes_of_image", PNG, "apples", 1).codes.model.version == 1
    (card,) = (card for card in ask(server.url, "models") if card.default)
    assert (card.name, card.version, card.versions) == ("apples", 2, (1, 2))
    assert card.labels == bundles.LABELS
    assert card.limits["max_images"] == 4


@pytest.mark.parametrize("images", [[], [PNG], [BROKEN], [PNG, BROKEN], [JPEG, b"", PNG, JPEG]])
def test_each_of_several_images_has_labels_or_a_problem(
    ask: Ask, server: Server, engine: Engine, images: list[bytes]
) -> None:
    results = ask(server.url, "classify_many", images, 1)
    for image, result in zip(images, results, strict=True):
        if image in (PNG, JPEG):
            assert result.predictions[0].label == engine.classify(image, 1)[0].label
        else:
            assert isinstance(result, leafcode.Problem)
            assert result.status in (400, 422)


def test_an_explanation_adds_up(ask: Ask, server: Server, engine: Engine) -> None:
    found, expected = ask(server.url, "explain", PNG), engine.explain(PNG)
    assert (found.label, found.score, found.against) == (expected.label, expected.score, None)
    assert found.cells.sum() + found.bias == pytest.approx(found.score, abs=1e-4)
    assert [(atom.atom_id, atom.left, atom.top) for atom in found.atoms] == [
        (atom.atom_id, atom.left, atom.top) for atom in expected.atoms
    ]
    other = bundles.LABELS[1]
    assert ask(server.url, "explain", PNG, found.label, other).against == other
    assert ask(server.url, "overlay", PNG, other).startswith(b"\x89PNG")


@pytest.mark.parametrize("n", [0, 1, 100])
def test_codes_are_those_of_the_engine(ask: Ask, server: Server, engine: Engine, n: int) -> None:
    descriptors = np.random.default_rng(n).random((n, 128))
    answer, expected = (
        ask(server.url, "codes", descriptors),
        engine.encode(descriptors.astype(np.float32)),
    )
    assert answer.n_atoms == 32
    for column in ("leaf_ids", "atom_ids", "values"):
        np.testing.assert_array_equal(getattr(answer, column), getattr(expected, column))
        assert getattr(answer, column).dtype == getattr(expected, column).dtype


def test_codes_of_an_image_come_with_their_grid(ask: Ask, server: Server, engine: Engine) -> None:
    answer = ask(server.url, "codes_of_image", JPEG)
    grid = engine.describe(engine.decode(JPEG))
    assert (answer.rows, answer.cols) == grid.shape[:2]
    assert (answer.step, answer.left, answer.top, answer.side) == (2, 2, 2, 16)
    assert (answer.height, answer.width) == engine.decode(JPEG).shape
    expected = engine.encode(grid.reshape(-1, 128))
    np.testing.assert_array_equal(answer.codes.values, expected.values)


def test_codes_and_the_dictionary_rebuild_descriptors(ask: Ask, server: Server) -> None:
    descriptors = np.random.default_rng(0).random((50, 128))
    codes = ask(server.url, "codes", descriptors)
    atoms = ask(server.url, "dictionary", codes.model)[codes.atom_ids]
    rebuilt = (codes.values[:, np.newaxis] @ atoms)[:, 0]
    # What the atoms of a leaf can say of a descriptor is said: the rest is orthogonal to them.
    rest = (atoms @ (descriptors - rebuilt)[:, :, np.newaxis])[:, :, 0]
    assert np.abs(rest).max() < 1e-3 * np.linalg.norm(descriptors, axis=1).min()


def test_the_scale_of_descriptors_changes_that_of_values_and_nothing_else(
    ask: Ask, server: Server
) -> None:
    descriptors = np.random.default_rng(0).random((50, 128))
    codes, scaled = (ask(server.url, "codes", scale * descriptors) for scale in (1, 512))
    np.testing.assert_array_equal(scaled.leaf_ids, codes.leaf_ids)
    np.testing.assert_array_equal(scaled.atom_ids, codes.atom_ids)
    np.testing.assert_allclose(scaled.values, 512 * codes.values, rtol=1e-5)


def test_a_dictionary_is_asked_for_by_name_and_version(
    ask: Ask, server: Server, models: Path
) -> None:
    for name, version, path in (("apples", 1, "apples/1"), ("tiny", None, "tiny/1")):
        expected = Engine.load(models / path).coder.dictionary
        np.testing.assert_array_equal(ask(server.url, "dictionary", name, version), expected)
    with pytest.raises(leafcode.NotFoundError, match="pears"):
        ask(server.url, "dictionary", "pears")


@pytest.mark.parametrize(
    ("call", "arguments", "error", "words"),
    [
        ("classify", (b"",), leafcode.BadRequestError, "no bytes"),
        ("classify", (b"hello",), leafcode.UnsupportedError, "not an image"),
        ("classify", (BROKEN,), leafcode.BadRequestError, "truncated"),
        ("classify", (bytes(1_000_001),), leafcode.TooLargeError, "1000001 bytes"),
        ("classify", (PNG, 0), leafcode.BadRequestError, "top_k"),
        ("classify", (PNG, 1, "pears"), leafcode.NotFoundError, "pears"),
        ("classify_many", ([PNG] * 5,), leafcode.TooLargeError, "4"),
        ("codes", (np.ones((1, 3)),), leafcode.BadRequestError, "(1, 3)"),
        ("codes", (np.ones((101, 128)),), leafcode.TooLargeError, "at most 100"),
        ("codes", (np.full((1, 128), np.nan),), leafcode.BadRequestError, "descriptor 0"),
    ],
)
def test_a_refusal_is_an_exception_with_the_problem_inside(
    ask: Ask,
    server: Server,
    call: str,
    arguments: tuple[Any, ...],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(leafcode.ProblemError) as caught:
        ask(server.url, call, *arguments)
    assert type(caught.value) is error
    assert words in caught.value.problem.detail
    assert words in str(caught.value)
    assert caught.value.problem.type.startswith("urn:leafcode:problem:")
    assert caught.value.problem.instance


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as executor:
        yield executor


def test_an_overloaded_service_is_asked_again_after_the_stated_time(
    ask: Ask, small_server: Server, threads: ThreadPoolExecutor
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    waiting = fill(small_server, threads)
    with pytest.raises(leafcode.OverloadedError, match="the queue is full"):
        ask(small_server.url, "classify", PNG, retries=0)
    refusals = refused(small_server)
    patient = threads.submit(ask, small_server.url, "classify", PNG, 1, "tiny")
    until(lambda: refused(small_server) > refusals)
    os.kill(worker, signal.SIGCONT)
    assert patient.result(DEADLINE_SECONDS).model.name == "tiny"
    assert waiting.result().status_code == 200


def refused(server: Server) -> int:
    """Requests that were answered 429, by the log."""
    return sum("POST /v1/classify 429" in line for line in server.log)


def test_the_timeout_is_told_to_the_service_which_answers_in_time(
    ask: Ask, small_server: Server
) -> None:
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    with pytest.raises(leafcode.DeadlineExceededError, match="the job was running"):
        ask(small_server.url, "classify", PNG, timeout=0.05)
    os.kill(worker, signal.SIGCONT)
    assert ask(small_server.url, "classify", PNG).predictions


def test_readiness_of_all_workers_is_asked_for_strictly(server: Server) -> None:
    with leafcode.Client(server.url) as connected:
        assert connected.ready(strict=True)
        assert connected._http.get("/readyz", params={"strict": "maybe"}).status_code == 422


def test_readiness_follows_the_workers(ask: Ask, small_server: Server) -> None:
    assert ask(small_server.url, "ready") is True
    (worker,) = workers_of(small_server)
    os.kill(worker, signal.SIGSTOP)
    until(lambda: ask(small_server.url, "ready") is False)
    os.kill(worker, signal.SIGCONT)
    until(lambda: ask(small_server.url, "ready") is True)


def test_nobody_at_the_address_is_not_ready_and_unreachable(ask: Ask) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen, and nobody else can
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert ask(url, "ready") is False
        with pytest.raises(leafcode.UnreachableError, match=url):
            ask(url, "models", retries=1)


def test_a_service_that_starts_meanwhile_is_waited_for(models: Path) -> None:
    async def use() -> list[leafcode.ModelCard]:
        app = create_app(Settings(models=models))
        transport = httpx.ASGITransport(app)
        async with leafcode.AsyncClient("http://test", transport=transport, retries=20) as client:
            assert not await client.ready()
            asked = asyncio.create_task(client.models())
            await asyncio.sleep(0)
            async with app.router.lifespan_context(app):
                return await asked

    assert len(asyncio.run(use())) == 3


def test_a_service_that_never_starts_is_unavailable(models: Path) -> None:
    async def use() -> None:
        transport = httpx.ASGITransport(create_app(Settings(models=models)))
        async with leafcode.AsyncClient("http://test", transport=transport, retries=1) as client:
            await client.models()

    with pytest.raises(leafcode.UnavailableError, match="starting or stopping"):
        asyncio.run(use())


def test_the_key_is_sent_as_a_bearer_token(ask: Ask) -> None:
    seen: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["Authorization"])
        return httpx.Response(200)

    assert ask("http://test", "ready", api_key="s3cret", transport=httpx.MockTransport(answer))
    assert seen == ["Bearer s3cret"]


def test_many_calls_share_one_asynchronous_client(server: Server, engine: Engine) -> None:
    async def use() -> list[str]:
        async with leafcode.AsyncClient(server.url) as client:
            answers = await asyncio.gather(*(client.classify(PNG, 1) for _ in range(20)))
        return [answer.predictions[0].label for answer in answers]

    assert set(asyncio.run(use())) == {engine.classify(PNG, 1)[0].label}
