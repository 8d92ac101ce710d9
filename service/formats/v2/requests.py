"""The JSON of an inference request to checked values.

Tensors in the JSON are first brought into their binary form, so that there is one
reader. A long JSON is read in a worker (`read_json`), because reading millions of numbers
would hold up the event loop.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np

from service.engine import DESCRIPTOR_WIDTH, DescriptorError
from service.engine.arrays import Float32Array
from service.errors import InvalidBodyError, MalformedBodyError, OversizedBodyError
from service.formats.json_bodies import decode_base64, parse_object, quoted, stack_descriptors
from service.formats.v2.signature import DEFAULT_OUTPUTS, IMAGE, INPUTS, OUTPUTS
from service.formats.v2.tensors import TensorType, join_elements, split_elements

__all__ = [
    "BatchLimits",
    "InferRequest",
    "RequestedOutput",
    "raw_image",
    "read_json",
    "read_request",
]

Json = Mapping[str, object]
Value = TypeVar("Value")

_KINDS: dict[type, str] = {
    bool: "true or false",
    dict: "an object",
    int: "a whole number",
    list: "a list",
    str: "a string",
}
# Lists and commas of a request beside its data; far more than any client sends.
_MAX_OTHERS = 1_000
_LONGEST_TIMEOUT = 10**15


@dataclass(frozen=True)
class BatchLimits:
    """How many items one request may hold."""

    max_images: int
    max_descriptors: int


@dataclass(frozen=True)
class RequestedOutput:
    """One output, in which form; `n_classes` above zero asks for the best labels as text."""

    name: str
    binary: bool = False
    n_classes: int = 0


@dataclass(frozen=True)
class InferRequest:
    """Images, or descriptors (n, 128), and what to answer; `timeout` is in seconds."""

    batch: tuple[bytes, ...] | Float32Array
    outputs: tuple[RequestedOutput, ...]
    id: str | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class _Input:
    """The input of a request before its data are read; `count` images or descriptors."""

    kind: TensorType
    count: int
    members: Json
    parameters: Json


def raw_image(body: bytes) -> InferRequest:
    """The request that a body without JSON stands for."""
    outputs = tuple(RequestedOutput(name) for name in DEFAULT_OUTPUTS[IMAGE.name])
    return InferRequest((body,), outputs)


def read_request(header: bytes, tail: memoryview, limits: BatchLimits) -> InferRequest:
    """The request of a JSON header and the bytes behind it."""
    document = _parse(header)
    parameters = _parameters(document, "the request")
    tensor = _input(document, limits)
    outputs = _outputs(document, tensor.kind, _flag(parameters, "binary_data_output") or False)
    return InferRequest(
        batch=_batch(tensor, _data(tensor, tail)),
        outputs=outputs,
        id=_id(document.get("id")),
        timeout=_timeout(parameters.get("timeout")),
    )


def read_json(body: bytes, limits: BatchLimits) -> InferRequest:
    """The request of a JSON body of any length, data and all."""
    # Counted before they are built, as in `service.formats.json_bodies`.
    if body.count(b",") > limits.max_descriptors * DESCRIPTOR_WIDTH + _MAX_OTHERS:
        raise OversizedBodyError(
            f"the body has more values than {limits.max_descriptors} descriptors, "
            "the most at a time"
        )
    if body.count(b"[") > limits.max_descriptors + _MAX_OTHERS:
        raise MalformedBodyError("the body opens more lists than any request needs")
    return read_request(body, memoryview(b""), limits)


def _parse(header: bytes) -> dict[str, object]:
    try:
        return parse_object(header)
    except MalformedBodyError as error:
        raise MalformedBodyError(
            f"{error}; an image as it is needs the header Inference-Header-Content-Length: 0"
        ) from error


# -- Input ------------------------------------------------------------------------------


def _input(document: Json, limits: BatchLimits) -> _Input:
    items = _typed(document.get("inputs"), list, "inputs")
    if len(items) != 1:
        raise InvalidBodyError(
            f"the request has {len(items)} inputs, expected one: {' or '.join(INPUTS)}"
        )
    members: Json = _typed(items[0], dict, "the input")
    name = _typed(members.get("name"), str, "the name of the input")
    if name not in INPUTS:
        raise InvalidBodyError(f"input {quoted(name)} is unknown, expected {' or '.join(INPUTS)}")
    kind = INPUTS[name]
    if members.get("datatype") != kind.datatype:
        raise InvalidBodyError(
            f"input {name} has the datatype {quoted(members.get('datatype'))}, "
            f"expected {kind.datatype}"
        )
    parameters = _parameters(members, f"input {name}")
    return _Input(kind, _count(members.get("shape"), kind, limits), members, parameters)


def _count(shape: object, kind: TensorType, limits: BatchLimits) -> int:
    """How many items a shape holds, as far as they are allowed."""
    sizes = _typed(shape, list, f"the shape of input {kind.name}")
    # The type itself, because True and False are ints to isinstance.
    sound = len(sizes) == len(kind.shape) and all(type(size) is int for size in sizes)
    if not sound or sizes[0] < 0 or sizes[1:] != list(kind.shape[1:]):
        found = ", ".join(map(quoted, sizes[:4])) + (", …" if len(sizes) > 4 else "")
        expected = ", ".join(["n", *map(str, kind.shape[1:])])
        error = InvalidBodyError if kind is IMAGE else DescriptorError
        raise error(f"input {kind.name} has the shape [{found}], expected [{expected}]")
    most = limits.max_images if kind is IMAGE else limits.max_descriptors
    if sizes[0] > most:
        items = "images" if kind is IMAGE else "descriptors"
        raise OversizedBodyError(
            f"the request has {quoted(sizes[0])} {items}, expected at most {most}"
        )
    return cast(int, sizes[0])


def _data(tensor: _Input, tail: memoryview) -> bytes | memoryview:
    """The tensor in its binary form, from behind the JSON or out of it."""
    name, size = tensor.kind.name, tensor.parameters.get("binary_data_size")
    if "shared_memory_region" in tensor.parameters:
        raise InvalidBodyError(f"input {name} is in shared memory, which is not supported")
    if (size is None) == (tensor.members.get("data") is None):
        found = "neither" if size is None else "both"
        raise InvalidBodyError(f"input {name} has {found} of data and binary_data_size")
    if size is None and len(tail):
        raise MalformedBodyError(
            f"{len(tail)} bytes follow the JSON, but input {name} has its data in the JSON"
        )
    if size is None:
        return _packed(tensor, tensor.members["data"])
    if _typed(size, int, f"binary_data_size of input {name}") != len(tail):
        raise MalformedBodyError(
            f"input {name} has the binary_data_size {quoted(size)}, "
            f"but {len(tail)} bytes follow the JSON"
        )
    return tail


def _packed(tensor: _Input, data: object) -> bytes:
    items = _typed(data, list, f"the data of input {tensor.kind.name}")
    if tensor.kind is IMAGE:
        _require_count(tensor, len(items), tensor.count)
        images = (decode_base64(item, f"image {number}") for number, item in enumerate(items))
        return join_elements(images)
    if items and not isinstance(items[0], list):
        _require_count(tensor, len(items), tensor.count * DESCRIPTOR_WIDTH)
        starts = range(0, len(items), DESCRIPTOR_WIDTH)
        items = [items[start : start + DESCRIPTOR_WIDTH] for start in starts]
    _require_count(tensor, len(items), tensor.count)
    return stack_descriptors(items).astype("<f4", copy=False).tobytes()


def _require_count(tensor: _Input, found: int, expected: int) -> None:
    if found != expected:
        raise InvalidBodyError(
            f"the data of input {tensor.kind.name} has {found} items, its shape asks for {expected}"
        )


def _batch(tensor: _Input, data: bytes | memoryview) -> tuple[bytes, ...] | Float32Array:
    if tensor.kind is IMAGE:
        return split_elements(data, tensor.count)
    expected = tensor.count * DESCRIPTOR_WIDTH * 4
    if len(data) != expected:
        raise MalformedBodyError(
            f"input {tensor.kind.name} has {len(data)} bytes, expected {expected} "
            f"for {tensor.count} descriptors"
        )
    values = np.frombuffer(data, "<f4").astype(np.float32, copy=False)
    return values.reshape(tensor.count, DESCRIPTOR_WIDTH)


# -- Outputs and parameters -------------------------------------------------------------


def _outputs(document: Json, kind: TensorType, binary: bool) -> tuple[RequestedOutput, ...]:  # noqa: FBT001
    known = OUTPUTS[kind.name]
    items = _optional(document.get("outputs"), list, "outputs") or []
    if not items:
        return tuple(RequestedOutput(name, binary) for name in DEFAULT_OUTPUTS[kind.name])
    if len(items) > len(known):
        raise InvalidBodyError(
            f"the request has {len(items)} outputs, expected at most {', '.join(known)}"
        )
    outputs = tuple(_output(item, kind, binary) for item in items)
    if len({output.name for output in outputs}) < len(outputs):
        raise InvalidBodyError("the request asks for an output more than once")
    return outputs


def _output(item: object, kind: TensorType, binary: bool) -> RequestedOutput:  # noqa: FBT001
    members: Json = _typed(item, dict, "an output")
    name = _typed(members.get("name"), str, "the name of an output")
    if name not in OUTPUTS[kind.name]:
        raise InvalidBodyError(
            f"output {quoted(name)} is unknown for input {kind.name}, "
            f"expected one of {', '.join(OUTPUTS[kind.name])}"
        )
    parameters = _parameters(members, f"output {name}")
    if "shared_memory_region" in parameters:
        raise InvalidBodyError(f"output {name} asks for shared memory, which is not supported")
    own = _flag(parameters, "binary_data")
    n_classes = _optional(parameters.get("classification"), int, "classification") or 0
    if n_classes < 0 or (n_classes and name != "probabilities"):
        raise InvalidBodyError(
            f"output {name} has the classification {quoted(n_classes)}, "
            "expected a number of labels, and only of the output probabilities"
        )
    return RequestedOutput(name, binary if own is None else own, n_classes)


def _id(value: object) -> str | None:
    text = _optional(value, str, "id")
    if text is not None and not _is_unicode(text):
        raise InvalidBodyError("id has half of a surrogate pair, expected Unicode")
    return text


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _timeout(value: object) -> float | None:
    """Seconds for a timeout in microseconds; zero means none, as in Triton."""
    microseconds = _optional(value, int, "timeout") or 0
    if microseconds < 0:
        raise InvalidBodyError(f"timeout is {quoted(microseconds)}, expected microseconds")
    return min(microseconds, _LONGEST_TIMEOUT) / 1e6 if microseconds else None


def _flag(parameters: Json, name: str) -> bool | None:
    return _optional(parameters.get(name), bool, name)


def _parameters(members: Json, where: str) -> Json:
    return _optional(members.get("parameters"), dict, f"parameters of {where}") or {}


def _optional(value: object, kind: type[Value], where: str) -> Value | None:
    return None if value is None else _typed(value, kind, where)


def _typed(value: object, kind: type[Value], where: str) -> Value:
    # The type itself, because True and False are ints to isinstance.
    if type(value) is not kind:
        found = "missing" if value is None else quoted(value)
        raise InvalidBodyError(f"{where} is {found}, expected {_KINDS[kind]}")
    return value
