"""SIGHUP asks a service for new versions, unless it is its terminal that hangs up."""

import os

__all__ = ["has_terminal"]


def has_terminal() -> bool:
    """Whether standard input is a terminal that still exists."""
    return os.isatty(0)
