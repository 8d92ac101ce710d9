"""The engine's configuration: derived sizes, and what it refuses."""

import json
from dataclasses import FrozenInstanceError, replace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.engine import EngineConfig
from service.engine.config import (
    STEPS,
    CodesConfig,
    Descriptor,
    ResidualsConfig,
    SignRule,
    ViewConfig,
)
from tests.support.samples import PROPERTY

VIEW = ViewConfig(depth=13)
CODES = CodesConfig(n_atoms=1024, nonzeros=5)
RESIDUALS = ResidualsConfig(levels=(4, 4), components=16, pyramid=(2, 1))
PAPER = EngineConfig.of_codes(VIEW, CODES)

SEVERAL = EngineConfig(
    views=(ViewConfig(depth=5), ViewConfig(depth=6, descriptor="contour-sift", reduction=2)),
    blocks=(
        CodesConfig(n_atoms=64, nonzeros=3, sign_rule="split", pyramid=(2, 1)),
        ResidualsConfig(levels=(3, 2), components=10, pyramid=(2, 1), weight=0.5),
        ResidualsConfig(levels=(6,), components=7, pyramid=(1,), view=1),
        CodesConfig(n_atoms=32, nonzeros=2, pyramid=(3, 1), weight=2.0, view=1),
    ),
    max_side=120,
    classifier="logistic",
    probability_scale=3.5,
    known_threshold=-0.25,
)


# --- derived sizes -------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "n_leaves"), [(1, 2), (13, 8192), (24, 2**24)])
def test_leaves_are_two_to_the_depth(depth: int, n_leaves: int) -> None:
    assert ViewConfig(depth).n_leaves == n_leaves


@pytest.mark.parametrize("descriptor", list(STEPS))
def test_a_view_without_a_step_has_its_descriptor_s(descriptor: Descriptor) -> None:
    assert ViewConfig(1, descriptor, reduction=2).step == STEPS[descriptor]


@pytest.mark.parametrize(
    ("sign_rule", "n_channels"), [("absolute", 1024), ("raw", 1024), ("split", 2048)]
)
def test_signs_kept_apart_double_the_channels(sign_rule: SignRule, n_channels: int) -> None:
    assert replace(CODES, sign_rule=sign_rule).n_channels == n_channels


@pytest.mark.parametrize(
    ("pyramid", "regions"), [((4, 2, 1), 21), ((2, 1), 5), ((1,), 1), ((3, 1), 10)]
)
def test_features_are_channels_times_regions(pyramid: tuple[int, ...], regions: int) -> None:
    assert replace(CODES, pyramid=pyramid).n_features == 1024 * regions
    levels = (4,) * len(pyramid)
    assert replace(RESIDUALS, levels=levels, pyramid=pyramid).n_features == 16 * 16 * regions


@pytest.mark.parametrize(
    ("levels", "n_nodes", "n_means", "n_features"),
    [
        ((0, 0), 1, 1, 16 * (4 + 1)),
        ((3, 5), 32, 8 + 32, 16 * (8 * 4 + 32)),
        ((24, 1), 2**24, 2**24 + 2, 16 * (2**24 * 4 + 2)),
    ],
)
def test_levels_of_a_pyramid_share_nodes_or_have_their_own(
    levels: tuple[int, ...], n_nodes: int, n_means: int, n_features: int
) -> None:
    block = replace(RESIDUALS, levels=levels)
    assert (block.n_nodes, block.n_means, block.n_features) == (n_nodes, n_means, n_features)


def test_blocks_follow_one_another_in_the_pooled_vector() -> None:
    lengths = [2 * 64 * 5, 10 * (8 * 4 + 4), 64 * 7, 32 * 10]
    assert [part.stop - part.start for part in SEVERAL.slices] == lengths
    assert [part.start for part in SEVERAL.slices] == [0, 640, 1000, 1448]
    assert SEVERAL.n_features == sum(lengths) == SEVERAL.slices[-1].stop


def test_the_defaults_are_the_paper_s() -> None:
    assert (PAPER.max_side, PAPER.codes.pyramid) == (300, (4, 2, 1))
    assert (PAPER.view.descriptor, PAPER.view.step, PAPER.view.hash) == ("fast-sift", 2, "tree")
    assert (PAPER.view.reduction, PAPER.codes.weight) == (1, 1.0)


def test_codes_and_view_are_those_of_the_first_block_of_codes() -> None:
    config = replace(SEVERAL, blocks=SEVERAL.blocks[1:])
    assert config.codes == SEVERAL.blocks[3]
    assert config.view == SEVERAL.views[1]


@pytest.mark.parametrize("descriptor", list(STEPS))
def test_colour_is_needed_by_a_view_of_colours_alone(descriptor: Descriptor) -> None:
    other, codes = (
        ViewConfig(2, descriptor, reduction=2),
        CodesConfig(n_atoms=4, nonzeros=1, view=1),
    )
    config = EngineConfig((VIEW, other), (CODES, codes))
    assert config.needs_colour == (descriptor == "colour")


# --- values that are refused ---------------------------------------------------------

WHOLE_NUMBERS = (0, -1, 2.0, True, "3", None)
NO_POSITIVE_NUMBERS = (0, 0.0, -1.0, float("nan"), float("inf"), "1", True, None)


def cases(part: object, refused: dict[str, tuple[object, ...]]) -> list[tuple[object, str, object]]:
    return [(part, field, value) for field, values in refused.items() for value in values]


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        *cases(
            VIEW,
            {
                "descriptor": ("lazebnik", None, ["fast-sift"]),
                "hash": ("md5", None),
                "depth": (*WHOLE_NUMBERS, 25),
                "step": (-1, 66, 2.0, "2", None, True, False, 0.0),
                "reduction": (*WHOLE_NUMBERS, 17),
            },
        ),
        *cases(ViewConfig(1, "colour", reduction=2), {"reduction": (1, 3)}),
        *cases(
            CODES,
            {
                "sign_rule": ("positive", None),
                "n_atoms": (*WHOLE_NUMBERS, 2**16 + 1),
                "nonzeros": (*WHOLE_NUMBERS, 129),
                "stride": (*WHOLE_NUMBERS, 65),
                "weight": NO_POSITIVE_NUMBERS,
            },
        ),
        *cases(
            RESIDUALS,
            {
                "components": (*WHOLE_NUMBERS, 129),
                "weight": NO_POSITIVE_NUMBERS,
            },
        ),
        *cases(
            PAPER,
            {
                "classifier": ("forest", None),
                "max_side": (19, 65_536, 300.0, True, "300", None),
                "probability_scale": NO_POSITIVE_NUMBERS,
                "known_threshold": (float("nan"), float("inf"), float("-inf"), True, "0", [0]),
            },
        ),
    ],
)
def test_a_value_that_no_engine_can_run_is_refused_by_name(
    part: Any, field: str, value: object
) -> None:
    changes: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match="expected ") as refusal:
        replace(part, **changes)
    assert str(refusal.value).startswith(f"{field} is {value!r}, expected ")


@pytest.mark.parametrize("descriptor", ["fast-sift", "contour-sift"])
def test_an_odd_step_between_the_cells_of_a_feature_map_is_refused(descriptor: Descriptor) -> None:
    message = f"step is 3, expected an even number for {descriptor}"
    with pytest.raises(ValueError, match=f"^{message}$"):
        ViewConfig(1, descriptor, step=3)


def test_lazebnik_s_descriptors_take_any_step() -> None:
    assert ViewConfig(1, "lazebnik-sift", step=3).step == 3


def test_more_nonzeros_than_atoms_are_refused() -> None:
    with pytest.raises(ValueError, match="nonzeros is 5, expected a whole number from 1 to 4"):
        CodesConfig(n_atoms=4, nonzeros=5)


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
@pytest.mark.parametrize("block", [CODES, RESIDUALS], ids=["codes", "residuals"])
def test_a_pyramid_that_cannot_be_pooled_is_refused(block: Any, pyramid: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(block, pyramid=pyramid)


COLOURS = ViewConfig(2, "colour", reduction=2)
OF_COLOURS = CodesConfig(n_atoms=64, nonzeros=3, view=1)
SHALLOW = ViewConfig(depth=2)


@pytest.mark.parametrize(
    ("views", "blocks", "message"),
    [
        ((VIEW,), (), "a view has no block, expected one or two"),
        ((VIEW, VIEW), (CODES,), "a view has no block, expected one or two"),
        ((VIEW,), (RESIDUALS,), "no block has codes, expected at least one"),
        ((VIEW,), (CODES, CODES), "two blocks of one kind share a view, expected one of each kind"),
        (
            (VIEW,),
            (CODES, RESIDUALS, replace(RESIDUALS, levels=(2, 2))),
            "two blocks of one kind share a view, expected one of each kind",
        ),
        (
            (VIEW,),
            (CODES, replace(RESIDUALS, view=1)),
            "view is 1, expected a whole number from 0 to 0",
        ),
        ((VIEW,), (replace(CODES, view=-1),), "view is -1, expected a whole number from 0 to 0"),
        ((VIEW,), (replace(CODES, view=True),), "view is True, expected a whole number"),
        (
            (SHALLOW,),
            (CODES, replace(RESIDUALS, levels=(1, 3))),
            "level is 3, expected a whole number from 0 to 2",
        ),
        (
            (replace(VIEW, hash="tanh"),),
            (CODES, RESIDUALS),
            "residuals of a view whose hash is tanh, expected a tree",
        ),
        (
            (VIEW, COLOURS),
            (OF_COLOURS, CODES),
            "the first block of codes is of colours, expected SIFT",
        ),
    ],
)
def test_views_and_blocks_that_do_not_fit_each_other_are_refused(
    views: tuple[ViewConfig, ...], blocks: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        EngineConfig(views, blocks)


@pytest.mark.parametrize("level", [-1, 25, 2.0, True, "3", None])
def test_a_level_that_no_tree_has_is_refused(level: Any) -> None:
    with pytest.raises(ValueError, match=f"^level is {level!r}, expected a whole number from 0"):
        ResidualsConfig((1, level), components=4, pyramid=(2, 1))


@pytest.mark.parametrize("levels", [(), (3,), (3, 2, 1)])
def test_levels_and_a_pyramid_of_other_length_are_refused(levels: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^levels are \[.*\] for the pyramid \[2, 1\], expected"):
        replace(RESIDUALS, levels=levels)


def test_images_whose_sums_could_overflow_are_refused() -> None:
    blocks = (CODES, RESIDUALS)
    assert EngineConfig((VIEW,), blocks, max_side=2048).max_side == 2048
    with pytest.raises(ValueError, match=r"^max_side is 2049, expected .* 20 to 2048$"):
        EngineConfig((VIEW,), blocks, max_side=2049)


@pytest.mark.parametrize(
    ("part", "field"), [(VIEW, "depth"), (CODES, "view"), (RESIDUALS, "view"), (PAPER, "max_side")]
)
def test_a_configuration_cannot_be_changed(part: object, field: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(part, field, 3)


# --- JSON ----------------------------------------------------------------------------


def test_to_json_holds_every_field_as_a_plain_value() -> None:
    assert replace(PAPER, blocks=(CODES, replace(RESIDUALS, weight=0.25))).to_json() == {
        "max_side": 300,
        "views": [
            {
                "depth": 13,
                "descriptor": "fast-sift",
                "step": 2,
                "reduction": 1,
                "hash": "tree",
            }
        ],
        "blocks": [
            {
                "kind": "codes",
                "n_atoms": 1024,
                "nonzeros": 5,
                "sign_rule": "absolute",
                "pyramid": [4, 2, 1],
                "weight": 1.0,
                "view": 0,
                "stride": 1,
            },
            {
                "kind": "residuals",
                "levels": [4, 4],
                "components": 16,
                "pyramid": [2, 1],
                "weight": 0.25,
                "view": 0,
            },
        ],
        "classifier": "svm",
        "probability_scale": 1.0,
        "known_threshold": None,
    }


@pytest.mark.parametrize("config", [PAPER, SEVERAL], ids=["paper", "several"])
def test_a_configuration_survives_the_round_trip(config: EngineConfig) -> None:
    assert EngineConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


SIFTS: tuple[Descriptor, ...] = ("fast-sift", "lazebnik-sift", "contour-sift")

pyramids = st.sampled_from([(1,), (2, 1), (4, 2, 1), (6, 3, 2)])
weights = st.floats(1e-300, 1e300)


@st.composite
def configs(draw: st.DrawFn) -> EngineConfig:
    """Up to three views, of SIFT, each with codes or residuals or both."""
    views: list[ViewConfig] = []
    blocks: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        descriptor = draw(st.sampled_from(SIFTS))
        step, reduction = draw(st.sampled_from([0, 2, 6])), draw(st.integers(1, 16))
        view = ViewConfig(draw(st.integers(1, 24)), descriptor, step, reduction)
        views.append(view)
        kinds = draw(st.sampled_from([(1, 0), (0, 1), (1, 1)])) if number else (1, 0)
        own: list[Any] = []
        if kinds[0]:
            atoms, rule = draw(st.integers(1, 2**16)), draw(st.sampled_from(get_args(SignRule)))
            nonzeros = draw(st.integers(1, min(atoms, 128)))
            own.append(CodesConfig(atoms, nonzeros, rule, draw(pyramids), draw(weights), number))
        if kinds[1]:
            pyramid, components = draw(pyramids), draw(st.integers(1, 128))
            levels = tuple(draw(st.integers(0, view.depth)) for _ in pyramid)
            own.append(ResidualsConfig(levels, components, pyramid, draw(weights), number))
        blocks += own
    ordered = draw(st.permutations(blocks))
    return EngineConfig(tuple(views), tuple(ordered), draw(st.integers(20, 2048)))


@PROPERTY
@given(configs())
def test_any_configuration_survives_the_round_trip(config: EngineConfig) -> None:
    assert EngineConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"views": []}, "^views is .*, expected a list of objects"),
        ({"views": None}, "^there are no views, expected a list of objects; .* trained again"),
        ({"views": {"depth": 1}}, "^views is .*, expected a list of objects"),
        ({"views": [3]}, r"^views is \[3\], expected a list of objects"),
        ({"blocks": []}, r"^blocks is \[\], expected a list of objects"),
        ({"blocks": "codes"}, "^blocks is 'codes', expected a list of objects"),
        ({"blocks": [{}]}, "^kind is None, expected one of codes, residuals"),
        ({"blocks": [{"kind": "atoms"}]}, "^kind is 'atoms', expected one of codes, residuals"),
        ({"blocks": [{"kind": ["codes"]}]}, "^kind is .*, expected one of codes, residuals"),
        (
            {"blocks": [{"kind": "codes", "n_atoms": 4, "nonzeros": 1}]},
            "^pyramid is None, expected a list of whole numbers",
        ),
        (
            {"blocks": [{"kind": "residuals", "components": 4, "pyramid": [1], "levels": 3}]},
            "^levels is 3, expected a list of whole numbers",
        ),
        ({"blocks": [{"kind": "residuals", "components": 4, "pyramid": [1]}]}, "levels"),
        ({"blocks": [{"kind": "codes", "pyramid": [1], "n_atoms": 4}]}, "nonzeros"),
        (
            {"blocks": [{"kind": "residuals", "pyramid": [1], "levels": [1], "n_atoms": 4}]},
            "n_atoms",
        ),
        ({"views": [{"descriptor": "fast-sift"}]}, "depth"),
        ({"views": [{"depth": 1, "colour": True}]}, "colour"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_document_that_is_no_configuration_is_refused(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        EngineConfig.from_json({**PAPER.to_json(), **change})
