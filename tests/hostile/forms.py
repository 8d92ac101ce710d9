"""Forms with too many parts, names without end, and boundaries that are none."""

import numpy as np

from tests.hostile.corpus import OK, Input, Limits, kind, pick, post, rejected
from tests.hostile.http import GOOD, PNG, number, word
from tests.hostile.threats import Threat

Rng = np.random.Generator

FORM = "multipart/form-data; boundary=b"
NAMED = b'Content-Disposition: form-data; name="a"'
FILE = NAMED + b'; filename="b.png"\r\n\r\n' + PNG


def form(*parts: bytes, content: str = FORM, end: bytes = b"--b--\r\n") -> bytes:
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + end
    return post("/v1/classify", body, f"Content-Type: {content}")


def malformed(sent: bytes) -> Input:
    return rejected(sent, 400, "malformed-body")


@kind(Threat.MANY_PARTS)
def many_fields(rng: Rng, limits: Limits) -> Input:
    fields = [NAMED + b"\r\n\r\nx"] * number(rng, 65, 10_001)
    return rejected(form(*fields), 413, "oversized-body")


@kind(Threat.MANY_PARTS)
def many_files(rng: Rng, limits: Limits) -> Input:
    file = NAMED + b'; filename="b"\r\n\r\nx'
    count = number(rng, limits.max_images + 1, 9_000)
    return rejected(form(*[file] * count), 413, "oversized-body")


@kind(Threat.MANY_PARTS)
def long_name(rng: Rng, limits: Limits) -> Input:
    size = number(rng, 20_000, min(limits.max_body_bytes - 5_000, 1_000_000))
    name = pick(rng, (b"n", b'\\"', b"%ff", b"; a=b")) * (size // 5)
    disposition = b'Content-Disposition: form-data; name="' + name + b'"; filename=b\r\n\r\n'
    return malformed(form(disposition + PNG))


@kind(Threat.MANY_PARTS)
def long_header_of_a_part(rng: Rng, limits: Limits) -> Input:
    size = number(rng, 20_000, min(limits.max_body_bytes - 5_000, 1_000_000))
    header = pick(rng, (b"X: " + b"y" * size, b"X: y\r\n" * (size // 6) + b"X: y", b"y" * size))
    return malformed(form(header + b"\r\n" + FILE))


@kind(Threat.MANY_PARTS)
def boundary_that_is_another(rng: Rng, limits: Limits) -> Input:
    values = ('""', "", "B" * 3_000, "\xff", "b; boundary=c", '"b', word(rng) + "x")
    return malformed(form(FILE, content=f"multipart/form-data; boundary={pick(rng, values)}"))


@kind(Threat.MANY_PARTS)
def form_without_a_boundary(rng: Rng, limits: Limits) -> Input:
    content = pick(rng, ("multipart/form-data", "multipart/form-data; x=b", "Multipart/Form-Data;"))
    return malformed(form(FILE, content=content))


@kind(Threat.MANY_PARTS)
def form_that_stops_early(rng: Rng, limits: Limits) -> Input:
    whole = b"--b\r\n" + FILE + b"\r\n--b\r\n" + FILE + b"\r\n--b--"
    cut = whole[: number(rng, 1, len(whole) - 1)]
    return malformed(post("/v1/classify", cut, f"Content-Type: {FORM}"))


@kind(Threat.MANY_PARTS)
def part_of_bad_syntax(rng: Rng, limits: Limits) -> Input:
    parts = (
        b"X: y\r\n\r\n" + PNG,
        FILE.replace(b"\r\n", b"\n", 2),
        b"Content-Disposition: form-data;\rname=a\r\n\r\n" + PNG,
        b"Content-Disposition: form-data; filename=b\r\n\r\n" + PNG,
        b"no colon\r\n\r\n" + PNG,
        b"\0: x\r\n\r\n" + PNG,
    )
    return malformed(form(pick(rng, parts)))


@kind(Threat.MANY_PARTS)
def form_without_a_file(rng: Rng, limits: Limits) -> Input:
    star = b"Content-Disposition: form-data; name=a; filename*=UTF-8''%ff%00.png\r\n\r\n" + PNG
    parts = pick(rng, ((), (NAMED + b"\r\n\r\n" + rng.bytes(40),), (star,)))
    return rejected(form(*parts), 400, "no-image")


@kind(Threat.MANY_PARTS)
def charset_that_reads_nothing(rng: Rng, limits: Limits) -> Input:
    return malformed(form(FILE, content=f"{FORM}; charset={pick(rng, ('undefined', 'punycode'))}"))


@kind(Threat.MANY_PARTS)
def unusual_form(rng: Rng, limits: Limits) -> Input:
    """Odd, but there is no doubt about its only file."""
    charsets = ("hex", "idna", "utf-7", "unicode_escape", "zlib", "../x", "\xe9", "a" * 3_000)
    content = f"{FORM}; charset={pick(rng, charsets)}"
    name = pick(rng, (b"\xff\\xZZ", b"../../etc/passwd", b"<script>", b"", b"a" * 500))
    disposition = b'Content-Disposition: form-data; name="%b"; filename="%b"\r\n\r\n' % (name, name)
    return Input(form(disposition + PNG, content=content), frozenset({OK}), GOOD)
