"""Damage to sound files, and JSON of the right words in the wrong places, for hypothesis."""

import copy
import json
from typing import Any

from hypothesis import strategies as st

__all__ = ["inference_documents", "json_values", "with_another_value", "with_damage"]

_MEMBERS = (
    *("name", "shape", "datatype", "data", "parameters", "inputs", "outputs", "id"),
    *("binary_data_size", "classification", "timeout", "binary_data"),
)
_WORDS = ("image", "descriptors", "BYTES", "FP32", "label", "")

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(_WORDS)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_MEMBERS), inner, max_size=5)
    ),
    max_leaves=12,
)

inference_documents = st.fixed_dictionaries(
    {"inputs": st.lists(st.dictionaries(st.text(max_size=3), json_values) | json_values)},
    optional={"outputs": json_values, "parameters": json_values, "id": json_values},
)

_PLACES = st.floats(0, 1)
_BYTES = st.integers(0, 255)


@st.composite
def with_damage(draw: st.DrawFn, data: bytes) -> bytes:
    """Some bytes changed anywhere or near the start, or a piece cut out or repeated."""
    kind = draw(st.sampled_from(("anywhere", "start", "piece")))
    if kind == "piece":
        first, last = sorted(int(draw(_PLACES) * len(data)) for _ in range(2))
        return data[:first] + draw(st.integers(0, 3)) * data[first:last] + data[last:]
    reach = len(data) if kind == "anywhere" else min(len(data), 200)
    damaged = bytearray(data)
    for place, value in draw(st.lists(st.tuples(_PLACES, _BYTES), min_size=1, max_size=8)):
        damaged[int(place * (reach - 1))] = value
    return bytes(damaged)


@st.composite
def with_another_value(draw: st.DrawFn, document: Any) -> bytes:
    """A JSON document of which one value, however deep inside, is another one."""
    whole = {"whole": copy.deepcopy(document)}
    parent: Any = whole
    key: Any = "whole"
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 4)):
        parent = parent[key]
        keys = list(parent) if isinstance(parent, dict) else list(range(len(parent)))
        key = draw(st.sampled_from(keys))
    parent[key] = draw(json_values | st.integers(2**31, 2**70) | st.just(-1))
    return json.dumps(whole["whole"]).encode()
