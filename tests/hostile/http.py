"""Requests that are no HTTP, too much of it, or ask for what is not there."""

import numpy as np

from tests.hostile.corpus import OK, Input, Limits, get, kind, pick, post, rejected
from tests.hostile.threats import Threat
from tests.support import pictures

Rng = np.random.Generator

PNG = pictures.png()
START = b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
CHUNKED = START + b"Transfer-Encoding: chunked\r\n"
LENGTH = f"Content-Length: {len(PNG)}\r\n".encode()
GOOD = START + LENGTH + b"\r\n" + PNG


def number(rng: Rng, low: int, high: int) -> int:
    return int(rng.integers(low, high))


def word(rng: Rng, most: int = 12) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return "".join(pick(rng, letters) for _ in range(number(rng, 1, most)))


def no_http(sent: bytes) -> Input:
    return rejected(sent, 400, "invalid-request")


def with_header(line: bytes) -> bytes:
    return START + line + b"\r\n" + LENGTH + b"\r\n" + PNG


def chunks(body: bytes, size: int) -> bytes:
    pieces = (body[start : start + size] for start in range(0, len(body), size))
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n"


# -- Sizes ------------------------------------------------------------------------------


@kind(Threat.OVERSIZED_BODY)
def chunked_body_beyond_the_limit(rng: Rng, limits: Limits) -> Input:
    body = bytes(limits.max_body_bytes + number(rng, 1, 1_000_000))
    sent = CHUNKED + b"\r\n" + chunks(body, number(rng, 4_000, 200_000)) + b"\r\n"
    return rejected(sent, 413, "oversized-body")


@kind(Threat.OVERSIZED_BODY)
def stated_length_beyond_the_limit(rng: Rng, limits: Limits) -> Input:
    stated = limits.max_body_bytes + int(10 ** rng.uniform(0, 17))
    path = pick(rng, ("/v1/classify", "/v1/codes", "/v2/models/apples/infer"))
    head = get(path, "Content-Type: image/png", f"Content-Length: {stated}", method="POST")
    return rejected(head + rng.bytes(number(rng, 0, 5_000)), 413, "oversized-body")


@kind(Threat.OVERSIZED_BODY)
def file_of_a_form_beyond_the_limit(rng: Rng, limits: Limits) -> Input:
    part = b'--b\r\nContent-Disposition: form-data; name="a"; filename="b"\r\n\r\n'
    body = part + bytes(limits.max_body_bytes + number(rng, 0, 99_999)) + b"\r\n--b--\r\n"
    kind_of_form = b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
    sent = CHUNKED + kind_of_form + chunks(body, number(rng, 4_000, 200_000)) + b"\r\n"
    return rejected(sent, 413, "oversized-body")


@kind(Threat.OVERSIZED_HEADERS)
def long_header(rng: Rng, limits: Limits) -> Input:
    size = limits.max_header_bytes + number(rng, 1, 200_000)
    name = pick(rng, (b"X-Long", b"Cookie", b"X-Request-Id", b"Accept", b"Authorization"))
    ending = pick(rng, (b"\r\n\r\n", b""))
    return rejected(START + name + b": " + b"x" * size + ending, 431, "oversized-headers")


@kind(Threat.OVERSIZED_HEADERS)
def many_headers(rng: Rng, limits: Limits) -> Input:
    lines = b"".join(b"X-%d: y\r\n" % place for place in range(number(rng, 101, 20_000)))
    return rejected(START + lines + b"\r\n", 431, "oversized-headers")


@kind(Threat.OVERSIZED_HEADERS)
def long_path(rng: Rng, limits: Limits) -> Input:
    size = limits.max_header_bytes + number(rng, 1, 100_000)
    path = "/" + pick(rng, ("x", "a/", "%20", "?a=b&", "../"))
    return rejected(get(path * (size // len(path) + 1)), 431, "oversized-headers")


@kind(Threat.OVERSIZED_HEADERS)
def endless_trailer(rng: Rng, limits: Limits) -> Input:
    size = limits.max_header_bytes + number(rng, 1, 200_000)
    trailer = pick(rng, (b"X-Long: " + b"x" * size, b"X: y\r\n" * number(rng, 101, 9_000)))
    sent = CHUNKED + b"\r\n3\r\nabc\r\n0\r\n" + trailer + b"\r\n\r\n"
    return rejected(sent, 431, "oversized-headers")


@kind(Threat.OVERSIZED_HEADERS)
def long_chunk_extension(rng: Rng, limits: Limits) -> Input:
    # More than comes in one read: only then it is seen that it does not end.
    size = limits.max_header_bytes + number(rng, 300_000, 900_000)
    return rejected(CHUNKED + b"\r\n3;" + b"a" * size, 431, "oversized-headers")


# -- Framing ----------------------------------------------------------------------------


@kind(Threat.AMBIGUOUS_FRAMING)
def length_and_chunks(rng: Rng, limits: Limits) -> Input:
    fields = [LENGTH, b"Transfer-Encoding: chunked\r\n"]
    rng.shuffle(fields)
    return no_http(START + b"".join(fields) + b"\r\n" + chunks(PNG, 100) + b"\r\n")


@kind(Threat.AMBIGUOUS_FRAMING)
def two_lengths(rng: Rng, limits: Limits) -> Input:
    other = f"content-length: {number(rng, 0, 99_999)}\r\n".encode()
    return no_http(START + LENGTH + other + b"\r\n" + PNG)


@kind(Threat.AMBIGUOUS_FRAMING)
def length_that_is_no_number(rng: Rng, limits: Limits) -> Input:
    lengths = (b"+5", b"-5", b"0x5", b"5, 5", b"", b"\xb2", b"5.0", b"1e3", b"9" * 30, b"5 5", b"V")
    return no_http(START + b"Content-Length: " + pick(rng, lengths) + b"\r\n\r\n" + PNG)


@kind(Threat.AMBIGUOUS_FRAMING)
def unknown_transfer_encoding(rng: Rng, limits: Limits) -> Input:
    codings = ("chunked, gzip", "identity", "xchunked", "\x0bchunked", word(rng))
    field = f"Transfer-Encoding: {pick(rng, codings)}\r\n".encode()
    return no_http(START + field + LENGTH + b"\r\n" + PNG)


@kind(Threat.AMBIGUOUS_FRAMING)
def chunk_of_no_size(rng: Rng, limits: Limits) -> Input:
    sizes = (b"F" * 17, b"-1", b"0x3", b"g", b"", b" 3", b"3 3", word(rng).encode() + b"z")
    return no_http(CHUNKED + b"\r\n" + pick(rng, sizes) + b"\r\nabc\r\n0\r\n\r\n")


@kind(Threat.AMBIGUOUS_FRAMING)
def chunk_with_another_end(rng: Rng, limits: Limits) -> Input:
    ends = (b"3\nabc\n0\n\n", b"3\r\nabcXX0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"3\rabc\r0\r\r")
    return no_http(CHUNKED + b"\r\n" + pick(rng, ends))


@kind(Threat.AMBIGUOUS_FRAMING)
def lines_with_another_end(rng: Rng, limits: Limits) -> Input:
    head = f"GET /{word(rng)} HTTP/1.1\r\nHost: x\r\nX: y\r\n\r\n".encode()
    return no_http(head.replace(b"\r\n", pick(rng, (b"\n", b"\r")), number(rng, 1, 5)))


@kind(Threat.AMBIGUOUS_FRAMING)
def control_bytes_in_a_header(rng: Rng, limits: Limits) -> Input:
    control = bytes([pick(rng, [*range(9), 11, 12, *range(14, 32), 127])])
    name = pick(rng, (b"X-Request-Id", b"Cookie", b"Content-Type"))
    return no_http(with_header(name + b": a" + control + b"b"))


@kind(Threat.AMBIGUOUS_FRAMING)
def header_that_is_none(rng: Rng, limits: Limits) -> Input:
    lines = (b"X : a", b"Xabc", b": a", b"X\xff: a", b"X: a\r\n b", b"(X): a", b"X\0: a")
    return no_http(with_header(pick(rng, lines)))


@kind(Threat.AMBIGUOUS_FRAMING)
def another_protocol(rng: Rng, limits: Limits) -> Input:
    greetings = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303") + rng.bytes(200),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"EHLO x\r\n",
        b"\x00\x00\x00\x08\x04\xd2\x16\x2f",
        b"*1\r\n$4\r\nPING\r\n",
        b"GET / HTTP/3.7\r\nHost: x\r\n\r\n",
        b"\xff" + rng.bytes(500),
        b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://[x/ HTTP/1.1\r\nHost: x\r\n\r\n",
    )
    return no_http(pick(rng, greetings))


@kind(Threat.AMBIGUOUS_FRAMING)
def unknown_method(rng: Rng, limits: Limits) -> Input:
    method = pick(rng, ("post", "FROB", "P\xd6ST", "GE T", f"X{word(rng).upper()}"))
    return no_http(get("/v1/classify", method=method))


@kind(Threat.AMBIGUOUS_FRAMING)
def request_id_that_is_none(rng: Rng, limits: Limits) -> Input:
    ids = ("a" * 65, "a b", "<script>", "\xe9", "", "a,b", "../x", "${jndi:x}", "%0d%0aX: y")
    sent = with_header(f"X-Request-Id: {pick(rng, ids)}".encode("latin-1"))
    return Input(sent, frozenset({OK}), GOOD)


@kind(Threat.AMBIGUOUS_FRAMING)
def offer_of_another_protocol(rng: Rng, limits: Limits) -> Input:
    offer = f"Connection: Upgrade\r\nUpgrade: {pick(rng, ('h2c', 'websocket', word(rng)))}"
    return Input(with_header(offer.encode()), frozenset({OK}), GOOD)


# -- Names ------------------------------------------------------------------------------


@kind(Threat.PATHS_IN_NAMES)
def path_in_the_name_of_a_model(rng: Rng, limits: Limits) -> Input:
    up = pick(rng, ("..%2f", "%2e%2e%2f", "..%5c", "%00", "....//", "%c0%ae%c0%ae%2f"))
    name = up * number(rng, 1, 6) + pick(rng, ("etc%2fpasswd", "apples", "manifest.json", ""))
    post_path = pick(rng, ("/v2/models/{}/infer", "/v2/models/apples%2f{}/infer"))
    get_path = pick(rng, ("/v1/models/{}", "/v1/models/apples/versions/1{}", "/docs/assets/{}"))
    if rng.integers(2):
        return rejected(post(post_path.format(name), PNG), 404, "", "unknown-model")
    sent = get(get_path.format(name))
    return Input(sent, frozenset({(404, ""), (404, "unknown-model"), (422, "invalid-parameter")}))


@kind(Threat.PATHS_IN_NAMES)
def unknown_model_or_version(rng: Rng, limits: Limits) -> Input:
    names = ("%ff%fe", "%ed%a0%80", "../x", "%00", "", "x" * 9_000, "%F0%9F%8D%8F", word(rng))
    query = pick(rng, (f"model={pick(rng, names)}q", f"version={number(rng, 3, 2**62)}"))
    return rejected(post(f"/v1/classify?{query}", PNG), 404, "unknown-model")


@kind(Threat.PATHS_IN_NAMES)
def unknown_path(rng: Rng, limits: Limits) -> Input:
    ends = ("%00", "%zz", "%ff", "/", "//", ";x", "/..", "%0d%0aX:y", f"/{word(rng)}")
    return rejected(post(f"/v1/classify{pick(rng, ends)}", PNG), 404)


@kind(Threat.PATHS_IN_NAMES)
def method_that_is_not_served(rng: Rng, limits: Limits) -> Input:
    method = pick(rng, ("GET", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"))
    return rejected(get(pick(rng, ("/v1/classify", "/v1/codes")), method=method), 405)


@kind(Threat.PATHS_IN_NAMES)
def parameter_out_of_range(rng: Rng, limits: Limits) -> Input:
    queries = (
        *("top_k=0", "top_k=-1", "top_k=1e9", "top_k=NaN", f"top_k={'9' * 5_000}", "top_k="),
        *("version=-1", "version=1.5", "top_k=5&top_k=x", "%ff=1", f"{word(rng)}q=1", "&=&"),
    )
    headers = ("0", "-1", "1e9", "NaN", "", "1.5", "\xb2", "9" * 400)
    if rng.integers(2):
        return rejected(post(f"/v1/classify?{pick(rng, queries)}", PNG), 422, "invalid-parameter")
    sent = post("/v1/classify", PNG, f"X-Timeout-Ms: {pick(rng, headers)}")
    return rejected(sent, 422, "invalid-parameter")


@kind(Threat.PATHS_IN_NAMES)
def answer_that_nobody_writes(rng: Rng, limits: Limits) -> Input:
    accepts = ("application/json;q=NaN", "*/*;q=1e999", "q", "," * 3_000, ";" * 9_000, "*/*;q=0")
    accept = pick(rng, (*accepts, "\xff/\xff", f"text/{word(rng)}"))
    sent = post("/v1/codes", PNG, "Content-Type: image/png", f"Accept: {accept}")
    return rejected(sent, 406, "not-acceptable")


@kind(Threat.PATHS_IN_NAMES)
def content_that_nobody_reads(rng: Rng, limits: Limits) -> Input:
    content = pick(rng, ("\xff", "x" * 9_000, "", "text/html", "multipart/mixed", word(rng)))
    return rejected(post("/v1/codes", PNG, f"Content-Type: {content}"), 415, "unsupported-body")


# -- Clients that leave -----------------------------------------------------------------


@kind(Threat.CLIENT_LEAVES)
def client_that_leaves(rng: Rng, limits: Limits) -> Input:
    """Gone before its answer, or in the middle of its request."""
    size = pick(rng, (len(GOOD), number(rng, 1, len(GOOD))))
    return Input(GOOD[:size], frozenset(), leaves=True)
