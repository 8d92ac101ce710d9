"""Compressed bodies that are none, are cut, or inflate without end."""

import base64
import functools
import gzip
import json
import zlib

import numpy as np

from tests.hostile.corpus import Input, Limits, kind, pick, post, rejected
from tests.hostile.http import PNG, number, word
from tests.hostile.threats import Threat

Rng = np.random.Generator

IMAGE = base64.b64encode(PNG).decode()
TENSOR = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [IMAGE]}
REQUEST = json.dumps({"inputs": [TENSOR]}).encode()


def infer(body: bytes, encoding: str) -> bytes:
    return post("/v2/models/apples/infer", body, f"Content-Encoding: {encoding}")


def packed(data: bytes, encoding: str) -> bytes:
    return gzip.compress(data, mtime=0) if encoding == "gzip" else zlib.compress(data)


@functools.lru_cache(maxsize=8)
def _bomb(size: int, encoding: str) -> bytes:
    data = bytes(size)
    return gzip.compress(data, 1, mtime=0) if encoding == "gzip" else zlib.compress(data, 1)


@kind(Threat.OVERSIZED_BODY)
def body_that_inflates(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("gzip", "deflate"))
    bomb = _bomb(limits.max_body_bytes * pick(rng, (2, 8)), encoding)
    return rejected(infer(bomb, encoding), 413, "oversized-body")


@kind(Threat.OVERSIZED_BODY)
def stream_that_stops(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("gzip", "deflate"))
    whole = packed(REQUEST, encoding)
    return rejected(infer(whole[: number(rng, 0, len(whole))], encoding), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def stream_with_something_behind(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("gzip", "deflate"))
    tail = pick(rng, (packed(REQUEST, encoding), rng.bytes(number(rng, 1, 99))))
    return rejected(infer(packed(REQUEST, encoding) + tail, encoding), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def stream_that_is_none(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("gzip", "deflate"))
    damaged = bytearray(packed(REQUEST, encoding))
    damaged[number(rng, 0, 2)] ^= 0xFF  # the first two bytes say what it is
    streams = (bytes(damaged), REQUEST, b"\xff" + rng.bytes(99), zlib.compress(REQUEST)[2:-4])
    return rejected(infer(pick(rng, streams), encoding), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def stream_with_a_wrong_checksum(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("gzip", "deflate"))
    whole = bytearray(packed(REQUEST, encoding))
    whole[-number(rng, 1, 5)] ^= 1 << number(rng, 0, 8)
    return rejected(infer(bytes(whole), encoding), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def stream_within_a_stream(rng: Rng, limits: Limits) -> Input:
    data = REQUEST
    for _ in range(number(rng, 2, 9)):
        data = packed(data, "gzip")
    return rejected(infer(data, "gzip"), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def endless_name_in_a_stream(rng: Rng, limits: Limits) -> Input:
    name = b"a" * number(rng, 1_000, limits.max_body_bytes - 100)
    return rejected(infer(b"\x1f\x8b\x08\x08" + bytes(6) + name, "gzip"), 400, "malformed-body")


@kind(Threat.OVERSIZED_BODY)
def unknown_compression(rng: Rng, limits: Limits) -> Input:
    encodings = ("br", "zstd", "compress", "gzip, gzip", "gzip, identity", "\xff", word(rng))
    if rng.integers(2):
        return rejected(infer(REQUEST, pick(rng, encodings)), 415, "unsupported-body")
    encoding = f"Content-Encoding: {pick(rng, (*encodings, 'gzip', 'deflate'))}"
    return rejected(post("/v1/classify", packed(PNG, "gzip"), encoding), 415, "unsupported-body")
