"""The running service against its own OpenAPI document, by schemathesis.

Requests are made from the document, right ones and wrong ones; every answer must be one
that the document tells, wrong requests must be refused, and right ones answered. What a
schema cannot say, such as what makes bytes an image, is told to schemathesis below.
"""

import io
from typing import Any

import httpx
import numpy as np
import schemathesis
from hypothesis import strategies as st
from schemathesis.specs.openapi.checks import positive_data_acceptance

from service.app import create_app
from service.settings import Settings
from tests import pictures
from tests.support.clients import base64_of
from tests.support.processes import Server


def npy(n: int) -> bytes:
    file = io.BytesIO()
    np.save(file, np.random.default_rng(n).random((n, 128)))
    return file.getvalue()


IMAGES = st.sampled_from([pictures.png(), pictures.jpeg(pictures.disc())])
NPY_FILES = st.integers(0, 3).map(npy)
ROWS = st.integers(1, 3).map(lambda n: np.ones((n, 128), "<f4").tobytes())
CONFIG = {
    "seed": 1,
    "generation": {"max-examples": 25, "deterministic": True, "database": "none"},
    # Whoever asks for an answer within a millisecond is told that it came too late.
    "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", "504"]}},
}


for content_type, contents in {
    "image/*": IMAGES,
    "application/x-npy": NPY_FILES,
    "application/npy": NPY_FILES,
    "application/octet-stream": IMAGES | ROWS,
}.items():
    schemathesis.openapi.media_type(content_type, contents)
schemathesis.openapi.format("byte", IMAGES.map(base64_of))
# An image to one call and numbers to the other, or the files of a form, of which the
# document can only say that they are bytes: a right request may well be refused.
OPAQUE = {"application/octet-stream", "multipart/form-data"}

# Read before there is a server, because operations become tests when they are collected.
DOCUMENT = create_app(Settings(max_images=4, max_descriptors=100)).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT, config=schemathesis.Config.from_dict(CONFIG))


def test_the_document_is_the_one_that_is_served(client: httpx.Client) -> None:
    assert client.get("/openapi.json").json() == DOCUMENT


@schema.parametrize()
def test_the_service_keeps_what_its_document_promises(
    case: schemathesis.Case[Any], server: Server
) -> None:
    opaque = case.media_type in OPAQUE
    excluded: list[schemathesis.CheckFunction] = [positive_data_acceptance] if opaque else []
    case.call_and_validate(base_url=server.url, excluded_checks=excluded)
