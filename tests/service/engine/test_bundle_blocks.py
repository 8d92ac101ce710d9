"""Bundles of several views and blocks: their tensors by name, and what is refused."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine import (
    BundleError,
    Engine,
    EngineConfig,
    Probe,
    read_bundle,
    write_bundle,
)
from service.engine.config import CodesConfig, ViewConfig
from service.engine.tensor_names import expected_tensors
from tests.support.bundle_files import is_mapped, reseal, store_tensors
from tests.support.samples import LABELS, SEVERAL, random_bundle, random_png

BUNDLE = random_bundle(SEVERAL)


def refused(message: str) -> Any:
    return pytest.raises(BundleError, match=message)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sound bundle of three views and four blocks that a test may damage."""
    write_bundle(BUNDLE, tmp_path / "1")
    return tmp_path / "1"


def test_a_bundle_of_several_blocks_survives_the_round_trip(folder: Path) -> None:
    found = read_bundle(folder)
    assert found.manifest.config == SEVERAL
    assert {name: tensor.tobytes() for name, tensor in found.tensors.items()} == {
        name: tensor.tobytes() for name, tensor in BUNDLE.tensors.items()
    }
    assert found.manifest.tensors == expected_tensors(SEVERAL, len(LABELS))


def test_an_engine_of_several_blocks_scores_as_before_it_was_written(folder: Path) -> None:
    engine, image = Engine.load(folder), random_png(6, 80, 60)
    np.testing.assert_array_equal(engine.scores(image), Engine(BUNDLE).scores(image))
    used = {**engine.tensors(), **engine.classifier.tensors()}
    assert set(used) == set(BUNDLE.tensors)
    assert all(map(is_mapped, used.values()))


def test_tensors_are_named_after_their_view_or_block() -> None:
    hashes = {f"view{n}.tree_{part}" for n in range(3) for part in ("vectors", "thresholds")}
    parts = ("table", "atoms", "atom_scales", "inverse_grams")
    codes = {f"block{n}.{part}" for n in (1, 2) for part in parts}
    residuals = {f"block{n}.{part}" for n in (0, 3) for part in ("means", "projections", "scales")}
    classifier = {f"classifier_{part}" for part in ("weights", "scales", "bias")}
    assert set(BUNDLE.tensors) == hashes | codes | residuals | classifier


def test_views_with_signs_have_wide_tensors_and_others_narrow_ones() -> None:
    config = EngineConfig(
        views=(ViewConfig(depth=2), ViewConfig(depth=2, descriptor="colour", reduction=2)),
        blocks=(CodesConfig(n_atoms=6, nonzeros=2), CodesConfig(n_atoms=6, nonzeros=2, view=1)),
        max_side=64,
    )
    tensors = random_bundle(config).tensors
    for number, kind in enumerate(("int8", "int16")):
        assert tensors[f"view{number}.tree_vectors"].dtype == kind
        assert tensors[f"block{number}.atoms"].dtype == kind


@pytest.mark.parametrize("name", list(BUNDLE.tensors))
@pytest.mark.parametrize("change", ["missing", "shorter", "other type"])
def test_a_wrong_tensor_of_several_blocks_is_named(folder: Path, name: str, change: str) -> None:
    tensors = {name: tensor.copy() for name, tensor in BUNDLE.tensors.items()}
    tensor = tensors.pop(name)
    message = {
        "missing": rf"holds the tensors .*expected .*'{re.escape(name)}'",
        "shorter": rf"tensor {re.escape(name)} is \w+ \[.*\], expected \w+ \[.*\]",
        "other type": rf"tensor {re.escape(name)} is uint16 .*, expected {tensor.dtype}",
    }[change]
    if change == "shorter":
        tensors[name] = tensor[:-1].copy()
    elif change == "other type":
        tensors[name] = np.zeros(tensor.shape, np.uint16)
    store_tensors(folder, tensors)
    with refused(message):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["block0.means", "block3.scales", "block2.atom_scales"])
def test_a_value_of_several_blocks_that_is_not_finite_is_refused(folder: Path, name: str) -> None:
    tensors = {name: tensor.copy() for name, tensor in BUNDLE.tensors.items()}
    tensors[name].flat[-1] = np.nan
    store_tensors(folder, tensors)
    with refused(f"tensor {name} has values that are not finite"):
        read_bundle(folder)


@pytest.mark.parametrize("name", ["block1.table", "block2.table"])
def test_an_atom_that_its_block_does_not_have_is_refused(folder: Path, name: str) -> None:
    tensors = {name: tensor.copy() for name, tensor in BUNDLE.tensors.items()}
    n_atoms = len(tensors[name.replace("table", "atoms")])
    tensors[name][1, 1] = n_atoms
    store_tensors(folder, tensors)
    with refused(f"{name} names atoms .* to {n_atoms}, expected 0 to {n_atoms - 1}"):
        read_bundle(folder)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("views", 1, "depth"), 3, r"tensor (view1|block1)\.\w+ is .*, expected "),
        (("views", 1, "hash"), "sine", r"holds the tensors .*expected .*view1\.hash_directions"),
        (("views", 2, "hash"), "sine", "residuals of a view whose hash is sine, expected a tree"),
        (
            ("blocks", 0, "levels"),
            [1, 1],
            r"tensor (block0\.means|classifier_weights) is .*, expected ",
        ),
        (
            ("blocks", 0, "components"),
            8,
            r"tensor (block0\.projections|block0\.scales|classifier_weights) is ",
        ),
        (("blocks", 3, "pyramid"), [2, 1], "tensor classifier_weights is .*, expected "),
        (("blocks", 2, "n_atoms"), 13, r"tensor (block2\.atom\w+|classifier_weights) is "),
    ],
)
def test_a_block_that_the_tensors_contradict_is_refused(
    folder: Path, path: tuple[str, int, str], value: object, message: str
) -> None:
    part, number, field = path
    reseal(folder, lambda whole: whole["config"][part][number].update({field: value}))
    with refused(message):
        read_bundle(folder)


@pytest.mark.parametrize(
    "name", ["block0.means", "block3.scales", "view1.tree_vectors", "classifier_scales"]
)
def test_wrong_tensors_of_several_blocks_are_found_by_the_probes(tmp_path: Path, name: str) -> None:
    image = random_png(6, 80, 60)
    probe = Probe(image, tuple(map(float, Engine(BUNDLE).scores(image))))
    bundle = replace(BUNDLE, manifest=replace(BUNDLE.manifest, probes=(probe,)))
    write_bundle(bundle, tmp_path / "1")
    store_tensors(tmp_path / "1", {**BUNDLE.tensors, name: np.flip(BUNDLE.tensors[name]).copy()})
    with refused("probe 0 scores differ"):
        Engine.load(tmp_path / "1")
