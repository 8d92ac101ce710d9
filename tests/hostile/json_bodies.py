"""JSON that is none, too deep, too long, or holds other things than it should."""

import base64
import json

import numpy as np

from tests.hostile.corpus import OK, Input, Limits, kind, pick, post, rejected
from tests.hostile.http import GOOD, PNG, number, word
from tests.hostile.threats import Threat

Rng = np.random.Generator

JSON = "Content-Type: application/json"
IMAGE = base64.b64encode(PNG)
# Calls that read JSON, each with the member that it expects.
CALLS = {"/v1/classify": b"image", "/v1/codes": b"descriptors"}


def row_with(value: bytes, rng: Rng) -> bytes:
    """One descriptor of which one value is given."""
    values = [b"0.25"] * 128
    values[number(rng, 0, 128)] = value
    return b'{"descriptors":[[' + b",".join(values) + b"]]}"


def codes(body: bytes) -> bytes:
    return post("/v1/codes", body, JSON)


def classify(body: bytes) -> bytes:
    return post("/v1/classify", body, JSON)


@kind(Threat.NUMBERS_NOT_FINITE)
def number_that_is_not_finite(rng: Rng, limits: Limits) -> Input:
    size = number(rng, 19, 4_000)
    values = (b"NaN", b"Infinity", b"-Infinity", b"1e%d" % size, b"-1E+%d" % size, b"9" * size)
    return rejected(codes(row_with(pick(rng, values), rng)), 422, "invalid-descriptors")


@kind(Threat.NUMBERS_NOT_FINITE)
def value_that_is_no_number(rng: Rng, limits: Limits) -> Input:
    values = (b"true", b"null", b'"1"', b"[]", b"{}", b'"\\ud800"', b'{"a":1}')
    return rejected(codes(row_with(pick(rng, values), rng)), 422, "invalid-descriptors")


@kind(Threat.NUMBERS_NOT_FINITE)
def number_in_another_notation(rng: Rng, limits: Limits) -> Input:
    values = (b"01", b".5", b"+1", b"0x1", b"1e", b"1_0", b"1,", b"--1", b"\xd9\xa3", b"1.", b"inf")
    return rejected(codes(row_with(pick(rng, values), rng)), 400, "malformed-body")


@kind(Threat.MANY_NUMBERS)
def more_numbers_than_allowed(rng: Rng, limits: Limits) -> Input:
    count = limits.max_descriptors * 128 + number(rng, 1, 100_000)
    count = min(count, limits.max_body_bytes // 2 - 100)
    body = b'{"descriptors":[[' + b"1," * count + b"1]]}"
    return rejected(codes(body), 413, "oversized-body")


@kind(Threat.MANY_NUMBERS)
def more_lists_than_allowed(rng: Rng, limits: Limits) -> Input:
    most = limits.max_body_bytes // 3 - 100
    count = min(limits.max_descriptors + number(rng, 2, 300_000), most)
    # As few commas as descriptors may have, so that the lists themselves are counted.
    count = min(count, limits.max_descriptors * 127)
    body = b'{"descriptors":[' + b"[]," * count + b"[]]}"
    return rejected(codes(body), 400, "malformed-body")


@kind(Threat.MANY_NUMBERS)
def more_images_than_allowed(rng: Rng, limits: Limits) -> Input:
    count = limits.max_images + number(rng, 1, 400)
    return rejected(classify(json.dumps({"images": [""] * count}).encode()), 413, "oversized-body")


@kind(Threat.MANY_NUMBERS)
def descriptor_of_another_width(rng: Rng, limits: Limits) -> Input:
    width = pick(rng, (*range(128), *range(129, 400)))
    body = json.dumps({"descriptors": [[0.5] * width]}).encode()
    return rejected(codes(body), 422, "invalid-descriptors")


@kind(Threat.DEEP_JSON)
def nested_without_end(rng: Rng, limits: Limits) -> Input:
    depth = number(rng, 2_000, 100_000)
    opening = pick(rng, (b"[", b'{"a":', b'[{"b":'))
    closing = pick(rng, (b"", b"]" * depth, b"}" * depth))
    path, member = pick(rng, CALLS.items())
    body = pick(rng, (b"", b'{"%b":' % member)) + opening * depth + closing
    return rejected(post(path, body, JSON), 400, "malformed-body")


@kind(Threat.DEEP_JSON)
def integer_of_thousands_of_digits(rng: Rng, limits: Limits) -> Input:
    digits = b"9" * number(rng, 4_301, 50_000)
    path, member = pick(rng, CALLS.items())
    return rejected(post(path, b'{"%b":%b}' % (member, digits), JSON), 400, "malformed-body")


@kind(Threat.DEEP_JSON)
def text_that_is_no_json(rng: Rng, limits: Limits) -> Input:
    texts = (
        *(b"{", b"\xff\xfe\xff", b"'a'", b"{'image':''}", b"/**/{}", b'{"image":"\x01"}', b" "),
        *(b'{"image":"\xff"}', b'{"image":""}x', b'{"a":1,}', b"{a:1}", b"\0", rng.bytes(99)),
    )
    path = pick(rng, CALLS)
    return rejected(post(path, pick(rng, texts), JSON), 400, "malformed-body")


@kind(Threat.DEEP_JSON)
def json_of_another_shape(rng: Rng, limits: Limits) -> Input:
    texts = (b"null", b"[]", b"7", b'"image"', b"{}", b'{"\\ud800":1}', b"true", b'{"a":[]}')
    own = json.dumps({word(rng): word(rng)}).encode()
    return rejected(post(pick(rng, CALLS), pick(rng, (*texts, own)), JSON), 422, "invalid-body")


@kind(Threat.DEEP_JSON)
def image_that_is_no_base64(rng: Rng, limits: Limits) -> Input:
    values = ("QUI", "-_-_", "QUJD\n", "§", "\ud800", "\0", "data:;base64", "data:,<b>", "=")
    others: tuple[object, ...] = (7, None, True, [], {}, float("nan"), float("inf"))
    value = pick(rng, (*values, *others))
    document = pick(rng, ({"image": value}, {"images": [value]}, {"images": ["", value]}))
    return rejected(classify(json.dumps(document).encode()), 422, "invalid-body")


@kind(Threat.DEEP_JSON)
def json_in_another_encoding(rng: Rng, limits: Limits) -> Input:
    encoding = pick(rng, ("utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-32-le"))
    text = pick(rng, ('{"image":"%s"}', '{"image":"x","image":"%s"}', '{"\\u0069mage":"%s"}'))
    body = (text % IMAGE.decode()).encode(encoding)
    return Input(classify(body), frozenset({OK}), GOOD)
