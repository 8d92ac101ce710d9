"""The two clients. What they say is in `calls`, when they say it again in `conversation`."""

import asyncio
import ssl
import time
from collections.abc import Sequence
from functools import cache, partial
from types import TracebackType
from typing import Self, TypedDict, TypeVar

import httpx
import numpy as np
import numpy.typing as npt

from service.client import calls
from service.client.answers import (
    Classification,
    Explanation,
    ImageCodes,
    ModelCard,
    ModelRef,
    Problem,
    SparseCodes,
)
from service.client.calls import Call, Image
from service.client.conversation import Pause, converse

__all__ = ["AsyncClient", "Client"]

Result = TypeVar("Result")

# So that the service's own word about a deadline arrives before the client stops listening.
_GRACE_SECONDS = 1.0


class _Options(TypedDict):
    base_url: str
    headers: dict[str, str]
    timeout: float
    verify: ssl.SSLContext


def _options(base_url: str, api_key: str | None, timeout: float) -> _Options:
    headers = {"X-Timeout-Ms": str(max(1, round(timeout * 1e3)))}
    if api_key is not None:
        headers["Authorization"] = f"Bearer {api_key}"
    return {
        "base_url": base_url,
        "headers": headers,
        "timeout": timeout + _GRACE_SECONDS,
        "verify": _trusted(),
    }


@cache
def _trusted() -> ssl.SSLContext:
    """Whom all clients trust, as httpx has it: to read these certificates takes 40 ms."""
    return httpx.create_ssl_context()


class Client:
    """A blocking client; close it, or use it in a `with` statement. Threads may share it.

    `timeout` is for one try; `retries` more follow when the service is overloaded or not
    there. `transport` replaces the network, as in httpx. Every call raises a `ClientError`.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(transport=transport, **_options(base_url, api_key, timeout))
        self._retries = retries

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def classify(
        self,
        image: Image,
        top_k: int = 5,
        model: str | None = None,
        version: int | None = None,
        *,
        explain: bool = False,
    ) -> Classification:
        """The `top_k` best labels of an encoded image, or of an image file."""
        return self._run(calls.classify(image, top_k, model, version, explain=explain))

    def classify_many(
        self,
        images: Sequence[Image],
        top_k: int = 5,
        model: str | None = None,
        version: int | None = None,
        *,
        explain: bool = False,
    ) -> list[Classification | Problem]:
        """The labels of each image, or its problem, in the order given."""
        if not images:
            return []
        return self._run(calls.classify_many(images, top_k, model, version, explain=explain))

    def explain(
        self,
        image: Image,
        label: str | None = None,
        against: str | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> Explanation:
        """Where the score of a label, the best one unless named, comes from.

        With `against`, where its difference to the score of that label comes from.
        """
        return self._run(calls.explain(image, label, against, model, version))

    def overlay(
        self,
        image: Image,
        label: str | None = None,
        against: str | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> bytes:
        """The same as a PNG of the image, red for the label and blue against it."""
        return self._run(calls.overlay(image, label, against, model, version))

    def codes(
        self, descriptors: npt.ArrayLike, model: str | None = None, version: int | None = None
    ) -> SparseCodes:
        """The sparse codes of descriptors (n, 128)."""
        return self._run(calls.codes(descriptors, model, version))

    def codes_of_image(
        self, image: Image, model: str | None = None, version: int | None = None
    ) -> ImageCodes:
        """The sparse codes of an image's dense grid."""
        return self._run(calls.codes_of_image(image, model, version))

    def dictionary(
        self, model: str | ModelRef, version: int | None = None
    ) -> npt.NDArray[np.float32]:
        """The atoms (n_atoms, 128) that `atom_ids` of codes of this model refer to."""
        return self._run(calls.dictionary(model, version))

    def models(self) -> list[ModelCard]:
        """What is loaded, and the limits in force."""
        return self._run(calls.models())

    def ready(self, *, strict: bool = False) -> bool:
        """Whether the service is there and a worker, if `strict` all, in service; asks once."""
        return self._run(calls.ready(strict=strict))

    def _run(self, call: Call[Result]) -> Result:
        conversation = converse(call, self._retries)
        step = next(conversation)
        while True:
            try:
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    step = next(conversation)
                else:
                    step = conversation.send(self._send(call))
            except StopIteration as end:
                result: Result = end.value
                return result

    def _send(self, call: Call[Result]) -> httpx.Response | httpx.RequestError:
        try:
            return self._http.send(call.request(self._http))
        except httpx.RequestError as error:
            return error


class AsyncClient:
    """The same for asyncio: close it, or use it in an `async with` statement."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **_options(base_url, api_key, timeout))
        self._retries = retries

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def classify(
        self,
        image: Image,
        top_k: int = 5,
        model: str | None = None,
        version: int | None = None,
        *,
        explain: bool = False,
    ) -> Classification:
        """The `top_k` best labels of an encoded image, or of an image file."""
        # In a thread, here and below, because it may read a file.
        call = partial(calls.classify, image, top_k, model, version, explain=explain)
        return await self._run(await asyncio.to_thread(call))

    async def classify_many(
        self,
        images: Sequence[Image],
        top_k: int = 5,
        model: str | None = None,
        version: int | None = None,
        *,
        explain: bool = False,
    ) -> list[Classification | Problem]:
        """The labels of each image, or its problem, in the order given."""
        if not images:
            return []
        call = partial(calls.classify_many, images, top_k, model, version, explain=explain)
        return await self._run(await asyncio.to_thread(call))

    async def explain(
        self,
        image: Image,
        label: str | None = None,
        against: str | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> Explanation:
        """Where the score of a label, the best one unless named, comes from.

        With `against`, where its difference to the score of that label comes from.
        """
        call = partial(calls.explain, image, label, against, model, version)
        return await self._run(await asyncio.to_thread(call))

    async def overlay(
        self,
        image: Image,
        label: str | None = None,
        against: str | None = None,
        model: str | None = None,
        version: int | None = None,
    ) -> bytes:
        """The same as a PNG of the image, red for the label and blue against it."""
        call = partial(calls.overlay, image, label, against, model, version)
        return await self._run(await asyncio.to_thread(call))

    async def codes(
        self, descriptors: npt.ArrayLike, model: str | None = None, version: int | None = None
    ) -> SparseCodes:
        """The sparse codes of descriptors (n, 128)."""
        return await self._run(calls.codes(descriptors, model, version))

    async def codes_of_image(
        self, image: Image, model: str | None = None, version: int | None = None
    ) -> ImageCodes:
        """The sparse codes of an image's dense grid."""
        return await self._run(await asyncio.to_thread(calls.codes_of_image, image, model, version))

    async def dictionary(
        self, model: str | ModelRef, version: int | None = None
    ) -> npt.NDArray[np.float32]:
        """The atoms (n_atoms, 128) that `atom_ids` of codes of this model refer to."""
        return await self._run(calls.dictionary(model, version))

    async def models(self) -> list[ModelCard]:
        """What is loaded, and the limits in force."""
        return await self._run(calls.models())

    async def ready(self, *, strict: bool = False) -> bool:
        """Whether the service is there and a worker, if `strict` all, in service; asks once."""
        return await self._run(calls.ready(strict=strict))

    async def _run(self, call: Call[Result]) -> Result:
        conversation = converse(call, self._retries)
        step = next(conversation)
        while True:
            try:
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    step = next(conversation)
                else:
                    step = conversation.send(await self._send(call))
            except StopIteration as end:
                result: Result = end.value
                return result

    async def _send(self, call: Call[Result]) -> httpx.Response | httpx.RequestError:
        try:
            return await self._http.send(call.request(self._http))
        except httpx.RequestError as error:
            return error
