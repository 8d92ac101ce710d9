"""Packages that only some load tests need, and the sentence for those who lack them."""

import importlib
from typing import Any

from service.loadtest.errors import LoadTestError

__all__ = ["optional"]


def optional(module: str, package: str, extra: str) -> Any:
    """A module of an extra; raises `LoadTestError` where its package is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LoadTestError(
            f"needs the package {package}: make setup, or pip install 'leafcode[{extra}]'"
        ) from error
