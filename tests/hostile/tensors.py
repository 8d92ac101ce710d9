"""Inference requests and arrays whose shapes, types and lengths lie."""

import json
import struct

import numpy as np

from tests.hostile.corpus import Input, Limits, kind, pick, post, rejected
from tests.hostile.http import PNG, number, word
from tests.hostile.threats import Threat

Rng = np.random.Generator
Json = dict[str, object]

INFER = "/v2/models/apples/infer"
LENGTH = "Inference-Header-Content-Length"
ROWS = struct.pack("<256f", *[0.25] * 256)
SOUND = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 128), }"


def image(**changes: object) -> Json:
    return {"name": "image", "shape": [1], "datatype": "BYTES", "data": [""], **changes}


def descriptors(**changes: object) -> Json:
    data = [0.25] * 256
    return {"name": "descriptors", "shape": [2, 128], "datatype": "FP32", "data": data, **changes}


def infer(rng: Rng, *tensors: object, **members: object) -> bytes:
    """A request in JSON; long ones are read by a worker and must be answered alike."""
    padding = b" " * pick(rng, (0, 40_000))
    return post(INFER, json.dumps({"inputs": tensors, **members}).encode() + padding)


def binary(tensor: Json, tail: bytes, size: object = None) -> bytes:
    claimed = len(tail) if size is None else size
    members = {name: value for name, value in tensor.items() if name != "data"}
    request = {"inputs": [{**members, "parameters": {"binary_data_size": claimed}}]}
    header = json.dumps(request).encode()
    return post(INFER, header + tail, f"{LENGTH}: {len(header)}")


def prefixed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(item)) + item for item in elements)


@kind(Threat.NUMBERS_NOT_FINITE)
def tensor_of_another_shape(rng: Rng, limits: Limits) -> Input:
    shapes: tuple[object, ...] = (
        None,
        1,
        [],
        [1, 1],
        [-1],
        [True],
        [1.0],
        ["1"],
        [1] * 999,
        [None],
        {},
        "1",
        [[1]],
    )
    if rng.integers(2):
        return rejected(infer(rng, image(shape=pick(rng, shapes))), 422, "invalid-body")
    width = pick(rng, (0, 1, 127, 129, -128, 2**63, 10**40))
    sent = infer(rng, descriptors(shape=pick(rng, ([1, width], [width], [-1, 128]))))
    return rejected(sent, 422, "invalid-descriptors")


@kind(Threat.NUMBERS_NOT_FINITE)
def tensor_of_another_type(rng: Rng, limits: Limits) -> Input:
    datatype: object = pick(rng, ("FP64", "STRING", "INT8", None, 7, [], "fp32", word(rng)))
    tensor = pick(rng, (image(datatype=datatype), descriptors(datatype=datatype)))
    return rejected(infer(rng, tensor), 422, "invalid-body")


@kind(Threat.NUMBERS_NOT_FINITE)
def request_of_other_members(rng: Rng, limits: Limits) -> Input:
    requests: tuple[tuple[list[object], Json], ...] = (
        ([], {}),
        ([image(), image()], {}),
        ([3], {}),
        ([{}], {}),
        ([{"name": word(rng, 5) * 900}], {}),
        ([{"name": "\ud800"}], {}),
        ([image(data=None)], {}),
        ([image(data="abc")], {}),
        ([image(data=[3])], {}),
        ([image(data=["§"])], {}),
        ([image(parameters=[])], {}),
        ([image(parameters={"shared_memory_region": "r"}, data=None)], {}),
        ([descriptors()], {"id": 7}),
        ([descriptors()], {"id": "\ud800"}),
        ([descriptors()], {"outputs": [{"name": word(rng)}]}),
        ([descriptors()], {"outputs": [{"name": "values"}] * 2}),
        ([descriptors()], {"outputs": 7}),
        ([descriptors()], {"parameters": {"timeout": pick(rng, (-1, "1", float("nan"), 1e99))}}),
        ([descriptors()], {"parameters": {"binary_data_output": "yes"}}),
    )
    tensors, members = pick(rng, requests)
    return rejected(infer(rng, *tensors, **members), 422, "invalid-body")


@kind(Threat.MANY_NUMBERS)
def more_items_than_allowed(rng: Rng, limits: Limits) -> Input:
    more = pick(rng, (1, 1_000, 10**18, 10**4000))
    tensor = pick(
        rng,
        (
            image(shape=[limits.max_images + more]),
            descriptors(shape=[limits.max_descriptors + more, 128]),
        ),
    )
    return rejected(infer(rng, tensor), 413, "oversized-body")


@kind(Threat.NUMBERS_NOT_FINITE)
def tensor_with_a_value_that_is_not_finite(rng: Rng, limits: Limits) -> Input:
    values = np.full(256, 0.25, "<f4")
    values[number(rng, 0, 256)] = pick(rng, (np.nan, np.inf, -np.inf, 3e38))
    if rng.integers(2):
        return rejected(binary(descriptors(), values.tobytes()), 422, "invalid-descriptors")
    data = [float(value) for value in values]
    return rejected(infer(rng, descriptors(data=data)), 422, "invalid-descriptors")


@kind(Threat.AMBIGUOUS_FRAMING)
def tensor_of_another_length(rng: Rng, limits: Limits) -> Input:
    elements = prefixed(PNG)
    requests = (
        binary(image(), elements, pick(rng, (0, -1, 10**30, len(elements) + 1))),
        binary(image(), elements[: number(rng, 0, len(elements))]),
        binary(image(), elements + rng.bytes(number(rng, 1, 50))),
        binary(image(), struct.pack("<I", number(rng, 2**20, 2**32))),
        binary(image(shape=[pick(rng, (0, 2, 4))]), elements),
        binary(descriptors(), ROWS[: number(rng, 0, len(ROWS))]),
        binary(descriptors(shape=[pick(rng, (0, 1, 3)), 128]), ROWS),
    )
    return rejected(pick(rng, requests), 400, "malformed-body")


@kind(Threat.AMBIGUOUS_FRAMING)
def length_of_the_json_that_lies(rng: Rng, limits: Limits) -> Input:
    lengths = ("-1", "1.5", "0x10", "", "1 1", "9" * 5_000, "1e3", "\xb2", "99999999", "+1")
    body = json.dumps({"inputs": [image()]}).encode()
    cut = str(number(rng, 1, len(body)))
    sent = post(INFER, body, f"{LENGTH}: {pick(rng, (*lengths, cut))}")
    return rejected(sent, 400, "malformed-body")


@kind(Threat.MANY_NUMBERS)
def long_json_beside_binary_data(rng: Rng, limits: Limits) -> Input:
    tensor = image(note="x" * number(rng, 33_000, 400_000))
    return rejected(binary(tensor, prefixed(PNG)), 400, "malformed-body")


# -- Arrays -----------------------------------------------------------------------------


def npy(header: str, data: bytes = bytes(512), version: int = 1) -> bytes:
    text = header.encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + data


def codes(body: bytes) -> bytes:
    return post("/v1/codes", body, "Content-Type: application/x-npy")


@kind(Threat.DEEP_JSON)
def array_with_a_header_that_is_none(rng: Rng, limits: Limits) -> Input:
    headers = (
        *("", "{", "(" * 900, "-" * 900 + "1", "[" * 90 + "]" * 90, "{'descr': '<f4'}", "'''"),
        *("__import__('os')", "\x00", "\\\n", "9" * 900, SOUND + " " * 1_000, word(rng)),
        *(SOUND.replace("'<f4'", "[('a',)]"), SOUND.replace("'descr'", "[]")),
    )
    sent = codes(npy(pick(rng, headers), version=pick(rng, (1, 2))))
    return rejected(sent, 400, "malformed-body")


@kind(Threat.DEEP_JSON)
def array_of_another_type(rng: Rng, limits: Limits) -> Input:
    types = ("'|O'", "'<i4'", "'<c8'", "'<f16'", "'|b1'", "'<U1'", "[('a', '<f4')]", "'<M8[s]'")
    header = SOUND.replace("'<f4'", pick(rng, types))
    return rejected(codes(npy(header)), 422, "invalid-descriptors")


@kind(Threat.MANY_NUMBERS)
def array_of_another_shape(rng: Rng, limits: Limits) -> Input:
    rows = limits.max_descriptors + pick(rng, (1, 2**31, 2**63, 10**200))
    if rng.integers(2):
        header = SOUND.replace("1, 128", f"{rows}, 128")
        return rejected(codes(npy(header)), 413, "oversized-body")
    shape = pick(rng, ("1, 127", "128,", "1, 1, 128", "", "-1, 128", "128, 1", f"{rows}, {rows}"))
    return rejected(codes(npy(SOUND.replace("1, 128", shape))), 422, "invalid-descriptors")


@kind(Threat.AMBIGUOUS_FRAMING)
def array_of_another_length(rng: Rng, limits: Limits) -> Input:
    size = pick(rng, [number(rng, 0, 512), number(rng, 513, 5_000)])
    return rejected(codes(npy(SOUND, rng.bytes(size))), 400, "malformed-body")


@kind(Threat.AMBIGUOUS_FRAMING)
def bare_floats_of_another_length(rng: Rng, limits: Limits) -> Input:
    body = rng.bytes(512 * number(rng, 0, 50) + number(rng, 1, 512))
    sent = post("/v1/codes", body, "Content-Type: application/octet-stream")
    return rejected(sent, 422, "invalid-descriptors")
