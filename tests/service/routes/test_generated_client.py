"""A client that a generator makes of the OpenAPI document, against the running service."""

import importlib
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import bundles, pictures
from tests.support.clients import base64_of, web
from tests.support.processes import DEADLINE_SECONDS, Server

PNG = pictures.png()
PACKAGE = "generated_leafcode_client"
# Bodies that the generator has no words for are bytes; nothing is run over what it wrote.
CONFIG = {
    "package_name_override": PACKAGE,
    "post_hooks": [],
    "content_type_overrides": dict.fromkeys(
        ("image/*", "application/npy", "application/x-npy"), "application/octet-stream"
    ),
}


@pytest.fixture(scope="module")
def generated(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the generated package; a warning of the generator fails."""
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(web.get(f"{server.url}/openapi.json").text, "utf-8")
    (folder / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    command = "generate --fail-on-warning --meta none --path openapi.json --config config.json"
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *command.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sys.path.insert(0, str(folder))
    yield folder / PACKAGE
    sys.path.remove(str(folder))


def part(name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGE}.{name}")


@pytest.fixture
def call(generated: Path, server: Server) -> Iterator[Any]:
    """Call a function of the generated client."""
    assert generated.is_dir()
    with part("client").Client(server.url) as connected:

        def run(function: str, *arguments: Any, **options: Any) -> Any:
            return part(f"api.{function}").sync(*arguments, client=connected, **options)

        yield run


def test_classify_answers_labels_of_bytes_and_of_json(call: Any) -> None:
    raw = part("types").File(io.BytesIO(PNG))
    body = part("models").ClassifyJsonImageBody(base64_of(PNG))
    answer = call("classify.classify", body=raw, top_k=2)
    assert answer.model.name == "apples"
    assert [item.label for item in answer.predictions[:2]]
    assert call("classify.classify", body=body, top_k=2) == answer


def test_encode_answers_codes(call: Any) -> None:
    body = part("models").EncodeJsonDescriptorsBody([[0.5] * 128] * 3)
    codes = call("codes.encode", body=body, model="tiny")
    assert (codes.model.name, len(codes.leaf_ids), codes.n_atoms) == ("tiny", 3, 32)


def test_models_are_listed_and_told_one_by_one(call: Any) -> None:
    listed = [(card.name, card.version) for card in call("models.list_models").models]
    assert listed == [("apples", 1), ("apples", 2), ("tiny", 1)]
    assert call("models.get_model_version", "apples", 1).labels == list(bundles.LABELS)


def test_health_and_readiness_are_asked_for(call: Any) -> None:
    assert call("health.health").status == "ok"
    assert call("health.ready").status == "ready"


def test_an_error_is_a_problem(call: Any) -> None:
    problem = call("models.get_model", "pears")
    assert (type(problem).__name__, problem.status) == ("Problem", 404)
