"""The engine's configuration: derived sizes, and what it refuses."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from service.engine import EngineConfig
from service.engine.config import SignRule

VALID = EngineConfig(depth=13, n_atoms=1024, nonzeros=5)


@pytest.mark.parametrize(("depth", "n_leaves"), [(1, 2), (13, 8192), (24, 2**24)])
def test_leaves_are_two_to_the_depth(depth: int, n_leaves: int) -> None:
    assert replace(VALID, depth=depth).n_leaves == n_leaves


@pytest.mark.parametrize(
    ("sign_rule", "n_channels"), [("absolute", 1024), ("raw", 1024), ("split", 2048)]
)
def test_signs_kept_apart_double_the_channels(sign_rule: SignRule, n_channels: int) -> None:
    assert replace(VALID, sign_rule=sign_rule).n_channels == n_channels


@pytest.mark.parametrize(
    ("pyramid", "regions"), [((4, 2, 1), 21), ((2, 1), 5), ((1,), 1), ((3, 1), 10)]
)
def test_features_are_channels_times_regions(pyramid: tuple[int, ...], regions: int) -> None:
    assert replace(VALID, pyramid=pyramid).n_features == 1024 * regions


def test_the_defaults_are_the_paper_s() -> None:
    assert (VALID.max_side, VALID.pyramid, VALID.descriptor) == (300, (4, 2, 1), "fast-sift")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("descriptor", "lazebnik"),
        ("descriptor", None),
        ("sign_rule", "positive"),
        ("classifier", "forest"),
        ("depth", 0),
        ("depth", 25),
        ("depth", 2.0),
        ("depth", True),
        ("depth", "3"),
        ("n_atoms", 0),
        ("n_atoms", 2**20 + 1),
        ("nonzeros", 0),
        ("nonzeros", 129),
        ("max_side", 19),
        ("max_side", 65_536),
        ("probability_scale", 0.0),
        ("probability_scale", -1.0),
        ("probability_scale", float("nan")),
        ("probability_scale", float("inf")),
    ],
)
def test_a_value_that_no_engine_can_run_is_refused_by_name(field: str, value: object) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"^{field} is {value!r}, expected "):
        replace(VALID, **changes)


def test_more_nonzeros_than_atoms_are_refused() -> None:
    with pytest.raises(ValueError, match="nonzeros is 5, expected a whole number from 1 to 4"):
        EngineConfig(depth=1, n_atoms=4, nonzeros=5)


@pytest.mark.parametrize(
    ("pyramid", "message"),
    [
        ((), "pyramid is empty"),
        ((4, 3), "level 3 does not divide the finest level 4"),
        ((2, 4), "level 4 does not divide the finest level 2"),
        ((0,), "pyramid level is 0"),
        ((-1,), "pyramid level is -1"),
        ((65,), "pyramid level is 65"),
        ((2.0, 1), r"pyramid level is 2\.0"),
    ],
)
def test_a_pyramid_that_cannot_be_pooled_is_refused(pyramid: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(VALID, pyramid=pyramid)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        VALID.depth = 3  # type: ignore[misc]


def test_to_json_holds_every_field_as_a_plain_value() -> None:
    assert VALID.to_json() == {
        "hash": "tree",
        "depth": 13,
        "n_atoms": 1024,
        "nonzeros": 5,
        "descriptor": "fast-sift",
        "max_side": 300,
        "sign_rule": "absolute",
        "pyramid": [4, 2, 1],
        "classifier": "svm",
        "probability_scale": 1.0,
    }
