"""Kubernetes's own schemas, those of the kinds that we use, in a file of 80 kB.

`kubernetes-validate` brings 17 000 files, which take a fresh clone ten seconds to install; what
it says about our manifests follows from the few definitions that they reach. `python -m
tests.docker.kubernetes_schemas` writes them again with that package installed, and `make
image-test` has the package itself judge the manifests.
"""

import importlib.resources
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["FILE", "KINDS", "VERSION", "gather"]

FILE = Path(__file__).with_name("kubernetes-schemas.json")
VERSION = "1.37.0"
KINDS = (
    "deployment-apps-v1",
    "horizontalpodautoscaler-autoscaling-v2",
    "namespace-v1",
    "networkpolicy-networking-v1",
    "persistentvolumeclaim-v1",
    "poddisruptionbudget-policy-v1",
    "service-v1",
)
_NOTICE = (
    f"From Kubernetes {VERSION} (Apache License 2.0) by way of kubernetes-validate, "
    "without descriptions; written by tests/docker/kubernetes_schemas.py."
)
_WORDS = ("description", "x-kubernetes-group-version-kind")


def gather() -> dict[str, Any]:
    """The strict schemas of our kinds, and all definitions that they refer to."""
    package = importlib.resources.files("kubernetes_validate")
    folder = package.joinpath("kubernetes-json-schema", f"v{VERSION}-local-strict")
    definitions = json.loads((folder / "_definitions.json").read_text())["$defs"]
    kinds = {kind: json.loads((folder / f"{kind}.json").read_text()) for kind in KINDS}
    needed: dict[str, Any] = {}
    waiting = list(_references(kinds))
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = definitions[name]
            waiting += _references(definitions[name])
    kept = {name: _without_words(needed[name]) for name in sorted(needed)}
    return {"$comment": _NOTICE, "kinds": _without_words(kinds), "$defs": kept}


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(reference := schema.get("$ref"), str):
            yield reference.rpartition("/")[2]
        for part in schema.values():
            yield from _references(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part)


def _without_words(schema: Any) -> Any:
    """Without what describes and does not judge; a property may be called description, too."""
    if isinstance(schema, list):
        return [_without_words(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _local(part) if name == "$ref" and isinstance(part, str) else _without_words(part)
        for name, part in schema.items()
        if isinstance(part, dict) or name not in _WORDS
    }


def _local(reference: str) -> str:
    return f"#/$defs/{reference.rpartition('/')[2]}"


def _lines(schemas: dict[str, Any]) -> str:
    """JSON with one definition a line, so that a new release shows as what it changes."""
    text = json.dumps(schemas, separators=(",", ":"))
    return text.replace(',"io.k8s.', ',\n"io.k8s.') + "\n"


if __name__ == "__main__":
    FILE.write_text(_lines(gather()))
