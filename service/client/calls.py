"""The calls of the service: how each is asked and how its answer is read, without any I/O."""

import base64
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx
import numpy as np
import numpy.typing as npt

from service.client.answers import (
    Classification,
    Explanation,
    ImageCodes,
    ModelCard,
    ModelRef,
    Problem,
    SparseCodes,
    read_classification,
    read_codes,
    read_dictionary,
    read_explanation,
    read_image_codes,
    read_models,
    read_results,
)

__all__ = [
    "Call",
    "Image",
    "classify",
    "classify_many",
    "codes",
    "codes_of_image",
    "dictionary",
    "explain",
    "models",
    "overlay",
    "ready",
]

Result = TypeVar("Result")
Image = bytes | os.PathLike[str]

_NPY, _NPZ, _JSON = "application/x-npy", "application/x-npz", "application/json"
_PNG = "image/png"
# Any image type will do: the service looks at the bytes.
_IMAGE = _PNG


@dataclass(frozen=True)
class Call(Generic[Result]):
    """One request, and how to read its answer. All of them may be repeated without harm."""

    method: str
    path: str
    read: Callable[[httpx.Response], Result]
    params: Mapping[str, str | int] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    files: Sequence[tuple[str, bytes]] = ()
    if_unavailable: Result | None = None
    """Answered at once, instead of trying again, where the service is not there."""

    def request(self, client: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        """The request of a client that knows the address and the key."""
        return client.build_request(
            self.method,
            self.path,
            params=self.params,
            headers=self.headers,
            content=self.content,
            files=[(name, ("image", data)) for name, data in self.files] or None,
        )


def classify(
    image: Image, top_k: int, model: str | None, version: int | None, *, explain: bool
) -> Call[Classification]:
    """One image as the raw body."""
    params = _params(model, version, top_k=top_k, **_flag("explain", explain))
    return Call("POST", "/v1/classify", read_classification, params, _type(_IMAGE), _bytes(image))


def classify_many(
    images: Sequence[Image], top_k: int, model: str | None, version: int | None, *, explain: bool
) -> Call[list[Classification | Problem]]:
    """Several images as the files of a form."""
    path = "/v1/classify"
    params = _params(model, version, top_k=top_k, **_flag("explain", explain))
    contents = [_bytes(image) for image in images]
    if len(contents) == 1:
        # A form with one file is answered like one image, a list in JSON always like several.
        body = json.dumps({"images": [base64.b64encode(contents[0]).decode()]}).encode()
        return Call("POST", path, read_results, params, _type(_JSON), body)
    files = [("image", content) for content in contents]
    return Call("POST", path, read_results, params, files=files)


def explain(
    image: Image, label: str | None, against: str | None, model: str | None, version: int | None
) -> Call[Explanation]:
    """One image as the raw body."""
    params = _params(model, version, **_given(label=label, against=against))
    return Call("POST", "/v1/explain", read_explanation, params, _type(_IMAGE), _bytes(image))


def overlay(
    image: Image, label: str | None, against: str | None, model: str | None, version: int | None
) -> Call[bytes]:
    """One image as the raw body, the explanation as PNG."""
    params = _params(model, version, **_given(label=label, against=against))
    headers = {**_type(_IMAGE), "Accept": _PNG}
    return Call("POST", "/v1/explain", _content, params, headers, _bytes(image))


def codes(descriptors: npt.ArrayLike, model: str | None, version: int | None) -> Call[SparseCodes]:
    """Descriptors as `.npy`, codes as `.npz`."""
    file = io.BytesIO()
    np.save(file, np.asarray(descriptors, np.float32), allow_pickle=False)
    headers = {**_type(_NPY), "Accept": _NPZ}
    params = _params(model, version)
    return Call("POST", "/v1/codes", read_codes, params, headers, file.getvalue())


def codes_of_image(image: Image, model: str | None, version: int | None) -> Call[ImageCodes]:
    """One image as the raw body, codes as `.npz`."""
    headers = {**_type(_IMAGE), "Accept": _NPZ}
    params = _params(model, version)
    return Call("POST", "/v1/codes", read_image_codes, params, headers, _bytes(image))


def dictionary(model: str | ModelRef, version: int | None) -> Call[npt.NDArray[np.float32]]:
    """The dictionary of a model's highest version, or of the given one, as `.npy`."""
    if isinstance(model, ModelRef):
        return dictionary(model.name, model.version)
    path = f"/v1/models/{quote(model, safe='')}"
    if version is not None:
        path += f"/versions/{version}"
    return Call("GET", f"{path}/dictionary", read_dictionary)


def models() -> Call[list[ModelCard]]:
    """What is loaded."""
    return Call("GET", "/v1/models", read_models)


def ready(*, strict: bool) -> Call[bool]:
    """Whether the service is, or even every worker."""
    params = {"strict": "true"} if strict else {}
    return Call("GET", "/readyz", lambda _: True, params, if_unavailable=False)


def _bytes(image: Image) -> bytes:
    return image if isinstance(image, bytes) else Path(image).read_bytes()


def _type(content_type: str) -> dict[str, str]:
    return {"Content-Type": content_type}


def _content(response: httpx.Response) -> bytes:
    return response.content


def _params(model: str | None, version: int | None, **more: str | int) -> dict[str, str | int]:
    return {**more, **_given(model=model, version=version)}


def _given(**params: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value is not None}


def _flag(name: str, value: bool) -> dict[str, str]:  # noqa: FBT001
    return {name: "true"} if value else {}
