"""Leafcode's online half: image labels and sparse codes over HTTP."""

__version__ = "0.1.0"
