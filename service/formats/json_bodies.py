"""Request bodies to plain values: base64 images and descriptors out of JSON.

These are plain functions over bytes that take time, so they never run on the event
loop: descriptors are parsed in a worker, images in a thread. Items are counted before
they are built: a 25 MB body of empty lists kept Python's collector busy for 2 to 4 s.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from service.engine import DESCRIPTOR_WIDTH, DescriptorError
from service.engine.arrays import Float32Array
from service.errors import InvalidBodyError, MalformedBodyError, OversizedBodyError

__all__ = [
    "LARGEST_NUMBER",
    "Images",
    "decode_base64",
    "parse_descriptors",
    "parse_images",
    "parse_object",
    "quoted",
    "stack_descriptors",
]

# The length of a descriptor of 128 such numbers is still a float32.
LARGEST_NUMBER = 1e18

_QUOTED_LENGTH = 40


@dataclass(frozen=True)
class Images:
    """Encoded images of one request, and whether several were announced."""

    items: tuple[bytes, ...]
    several: bool


def parse_images(body: bytes, most: int) -> Images:
    """The images of `{"image": base64}` or `{"images": [base64, ...]}`."""
    if body.count(b",") > 2 * most:  # one after an image, and one within a data URI
        raise OversizedBodyError(f"the body has more than {most} images, the most at a time")
    document = parse_object(body)
    if set(document) == {"image"}:
        return Images((decode_base64(document["image"], "image"),), several=False)
    items = document.get("images")
    if set(document) != {"images"} or not isinstance(items, list) or not items:
        raise InvalidBodyError(
            'the body has other members, expected {"image": base64} or {"images": [base64, …]}'
        )
    if len(items) > most:
        raise OversizedBodyError(f"the body has {len(items)} images, expected at most {most}")
    images = (decode_base64(item, f"image {number}") for number, item in enumerate(items))
    return Images(tuple(images), several=True)


def parse_descriptors(body: bytes, most: int) -> Float32Array:
    """Descriptors (n, 128) of `{"descriptors": [[128 numbers] x n]}`; n may be zero."""
    if body.count(b",") >= most * DESCRIPTOR_WIDTH:
        raise OversizedBodyError(f"the body has more than {most} descriptors, the most at a time")
    if body.count(b"[") > most + 1:
        raise MalformedBodyError(
            f"the body opens {body.count(b'[')} lists, expected at most {most} descriptors "
            "in one list"
        )
    document = parse_object(body)
    rows = document.get("descriptors")
    if set(document) != {"descriptors"} or not isinstance(rows, list):
        raise InvalidBodyError(
            'the body has other members, expected {"descriptors": [[128 numbers], …]}'
        )
    return stack_descriptors(rows)


def stack_descriptors(rows: Sequence[object]) -> Float32Array:
    """Descriptors (n, 128) of n rows out of JSON; every value is checked."""
    descriptors = np.empty((len(rows), DESCRIPTOR_WIDTH), np.float32)
    for number, row in enumerate(rows):
        descriptors[number] = _descriptor(row, number)
    return descriptors


def parse_object(body: bytes) -> dict[str, object]:
    """The members of a JSON object."""
    try:
        document = json.loads(body)
    except RecursionError as error:
        raise MalformedBodyError("the body is JSON that is nested too deeply") from error
    except ValueError as error:
        raise MalformedBodyError(f"the body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InvalidBodyError("the body is JSON, but not an object")
    return document


def decode_base64(item: object, name: str) -> bytes:
    """The bytes of a string out of JSON, which may be a data URI; messages call it `name`."""
    if not isinstance(item, str):
        raise InvalidBodyError(f"{name} is {quoted(item)}, expected a string of base64")
    if item[:5].lower() == "data:":
        kind, comma, item = item.partition(",")
        if not comma or not kind.lower().endswith(";base64"):
            raise InvalidBodyError(f"{name} is a data URI without base64, expected base64")
    try:
        return base64.b64decode(item, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidBodyError(f"{name} is not base64: {error}") from error


def _descriptor(row: object, number: int) -> Float32Array:
    if not isinstance(row, list) or len(row) != DESCRIPTOR_WIDTH:
        found = f"has {len(row)} values" if isinstance(row, list) else f"is {quoted(row)}"
        raise DescriptorError(
            f"descriptor {number} {found}, expected a list of {DESCRIPTOR_WIDTH} numbers"
        )
    # The type itself, because True and False are ints to isinstance.
    if not {float, int}.issuperset(map(type, row)):
        _reject_value(next(value for value in row if type(value) not in (float, int)), number)
    try:
        with np.errstate(over="ignore"):
            values = np.array(row, np.float32)
    except OverflowError:
        _reject_value(max(row, key=abs), number)
    sound = np.abs(values) <= LARGEST_NUMBER  # no NaN is
    if not sound.all():
        _reject_value(row[int(np.flatnonzero(~sound)[0])], number)
    return values


def _reject_value(value: object, number: int) -> NoReturn:
    raise DescriptorError(
        f"descriptor {number} has the value {quoted(value)}, expected numbers "
        f"from {-LARGEST_NUMBER:g} to {LARGEST_NUMBER:g}"
    )


def quoted(value: object) -> str:
    """A value of the request in an error message, cut short."""
    # Writing all of it, to cut it short, would take as long as reading it did.
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= _QUOTED_LENGTH else text[:_QUOTED_LENGTH] + "…"
