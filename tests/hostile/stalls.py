"""Requests of which the rest never comes: each is answered when its time is over."""

import numpy as np

from tests.hostile.corpus import Input, Limits, kind, rejected
from tests.hostile.http import CHUNKED, GOOD, LENGTH, PNG, START
from tests.hostile.threats import Threat

Rng = np.random.Generator


@kind(Threat.STALLED_CONNECTION)
def nothing_at_all(rng: Rng, limits: Limits) -> Input:
    return rejected(b"", 408, "slow-headers")


@kind(Threat.STALLED_CONNECTION)
def headers_that_stop(rng: Rng, limits: Limits) -> Input:
    head = GOOD[: -len(PNG)]
    return rejected(head[: int(rng.integers(1, len(head)))], 408, "slow-headers")


@kind(Threat.STALLED_CONNECTION)
def body_that_stops(rng: Rng, limits: Limits) -> Input:
    return rejected(START + LENGTH + b"\r\n" + PNG[: int(rng.integers(len(PNG)))], 408, "slow-body")


@kind(Threat.STALLED_CONNECTION)
def chunks_that_stop(rng: Rng, limits: Limits) -> Input:
    body = b"%x\r\n" % len(PNG) + PNG + b"\r\n0\r\n"
    return rejected(CHUNKED + b"\r\n" + body[: int(rng.integers(len(body)))], 408, "slow-body")


@kind(Threat.STALLED_CONNECTION)
def trailers_that_stop(rng: Rng, limits: Limits) -> Input:
    trailer = b"X-Trailer: some words\r\n"
    body = b"%x\r\n" % len(PNG) + PNG + b"\r\n0\r\n" + trailer[: int(rng.integers(len(trailer)))]
    return rejected(CHUNKED + b"\r\n" + body, 408, "slow-body")


@kind(Threat.STALLED_CONNECTION)
def chunk_of_absurd_size(rng: Rng, limits: Limits) -> Input:
    size = int(10 ** rng.uniform(7, 18))
    return rejected(CHUNKED + b"\r\n%x\r\nabc" % size, 408, "slow-body")
