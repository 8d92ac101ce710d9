"""The header `Server-Timing`: where the service says that the time of an answer went."""

import re
from collections.abc import Iterable

from service.loadtest.histogram import Latencies, Quantiles

__all__ = ["parse_server_timing", "server_stages"]

# A name, any other parameters, and a duration in milliseconds.
_DURATION = re.compile(rb"([^\s,;=]+)\s*;[^,]*?dur=([0-9.]+)")


def parse_server_timing(value: bytes) -> dict[str, float]:
    """Seconds by stage; parts that tell no duration are passed over."""
    return {
        name.decode("ascii", "replace"): float(milliseconds) / 1e3
        for name, milliseconds in _DURATION.findall(value)
        if milliseconds.count(b".") <= 1 and milliseconds != b"."
    }


def server_stages(values: Iterable[bytes]) -> dict[str, Quantiles]:
    """The quantiles of each stage, in the order in which the headers name them."""
    stages: dict[str, Latencies] = {}
    for value in values:
        for name, seconds in parse_server_timing(value).items():
            if name not in stages:
                stages[name] = Latencies()
            stages[name].add(seconds)
    return {name: latencies.quantiles() for name, latencies in stages.items()}
