"""Numbers on the command line, checked as they are read."""

import argparse
from collections.abc import Callable
from typing import TypeVar

__all__ = ["natural", "positive", "share"]

Number = TypeVar("Number", int, float)


def positive(kind: type[Number]) -> Callable[[str], Number]:
    """Reads a number above 0."""

    def parse(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind(0)
        if not 0 < value < float("inf"):
            wanted = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {wanted} above 0")
        return value

    return parse


def natural(text: str) -> int:
    """Reads a whole number from 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def share(text: str) -> float:
    """Reads a share of all requests, as 1% or 0.01."""
    digits, percent, rest = text.partition("%")
    try:
        value = float(digits) / (100 if percent else 1)
    except ValueError:
        value = -1.0
    if rest or not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a share of all requests, expected 0 to 100% or 0 to 1"
        )
    return value
