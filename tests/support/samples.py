"""Small random models and images that the engine's tests share."""

from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import settings
from PIL import Image

from service.engine import STAGES, Bundle, Engine, EngineConfig, Manifest, Probe
from service.engine.arrays import Float32Array, Float64Array, Int32Array
from service.engine.blocks import ResidualsBlock
from service.engine.classifier import LinearClassifier
from service.engine.coding import Coder
from service.engine.config import BlockConfig, CodesConfig, ResidualsConfig, ViewConfig
from service.engine.tensor_names import block_prefix, hash_specs, prefixed, view_prefix
from service.engine.tree import Tree

# The first example of a property compiles a kernel, so that a deadline would lie.
PROPERTY = settings(max_examples=30, deadline=None)

# Around the eight products that are computed together and the block of 32 descriptors.
AWKWARD_COUNTS = (0, 1, 7, 8, 9, 31, 32, 33, 63, 65)

VIEW = ViewConfig(depth=3)
CODES = CodesConfig(n_atoms=12, nonzeros=3, pyramid=(4, 2, 1))
CONFIG = EngineConfig.of_codes(VIEW, CODES, max_side=64)
LABELS = ("ant", "bee", "crab")

CLASSIFY_STAGES = STAGES[:-1]
"""The stages of an image that is not explained."""

SEVERAL = EngineConfig(
    views=(
        ViewConfig(depth=3, step=4),
        ViewConfig(depth=4, descriptor="contour-sift", reduction=2),
        ViewConfig(depth=2, descriptor="lazebnik-sift", reduction=2),
    ),
    blocks=(
        ResidualsConfig(levels=(1, 2), components=9, pyramid=(2, 1), weight=0.25),
        CodesConfig(n_atoms=20, nonzeros=3, weight=1.5, view=1),
        CodesConfig(n_atoms=12, nonzeros=2, sign_rule="split", pyramid=(2, 1)),
        ResidualsConfig(levels=(1, 0), components=5, pyramid=(3, 1), weight=3.0, view=2),
    ),
    max_side=90,
)
"""Views with residuals and codes, with codes alone, and with residuals alone."""


def random_descriptors(
    rng: np.random.Generator, n: int, width: int = 128, *, signs: bool = True
) -> Float32Array:
    """Values at random; without signs, as those of SIFT, they can be narrow directions."""
    values = rng.normal(size=(n, width)).astype(np.float32)
    return values if signs else np.abs(values)


def random_dictionary(rng: np.random.Generator, n_atoms: int, width: int = 128) -> Float32Array:
    atoms = rng.normal(size=(n_atoms, width))
    unit: Float64Array = atoms / np.linalg.norm(atoms, axis=1, keepdims=True)
    return unit.astype(np.float32)


def random_table(
    rng: np.random.Generator, n_leaves: int, n_atoms: int, nonzeros: int
) -> Int32Array:
    """Different atoms in each row, as in an active set."""
    rows = [rng.permutation(n_atoms)[:nonzeros] for _ in range(n_leaves)]
    return np.array(rows, np.int32).reshape(n_leaves, nonzeros)


def random_gray(rng: np.random.Generator, height: int, width: int) -> Float32Array:
    """Noise at a random contrast, so that strong and weak descriptors occur."""
    contrast = rng.choice([1.0, 0.3, 0.01])
    gray: Float64Array = 0.5 + contrast * (rng.random((height, width)) - 0.5)
    return gray.astype(np.float32)


def encoded(picture: Image.Image, image_format: str, **options: Any) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, image_format, **options)
    return buffer.getvalue()


def random_png(seed: int, height: int = 36, width: int = 44, levels: int = 256) -> bytes:
    """Noise of so many grey levels; of 16, no descriptor is so long that it is scaled down."""
    bounds = 128 - levels // 2, 128 + levels // 2
    pixels = np.random.default_rng(seed).integers(*bounds, (height, width), np.uint8)
    return encoded(Image.fromarray(pixels), "PNG")


def random_tensors(
    config: EngineConfig = CONFIG, n_labels: int = len(LABELS), seed: int = 0
) -> dict[str, npt.NDArray[Any]]:
    rng = np.random.default_rng(seed)
    tensors: dict[str, npt.NDArray[Any]] = {}
    for number, view in enumerate(config.views):
        tensors |= prefixed(view_prefix(number), _random_hash(view, rng))
    for number, block in enumerate(config.blocks):
        own = _random_block(block, config.views[block.view], rng)
        tensors |= prefixed(block_prefix(number), own)
    weights = random_descriptors(rng, config.n_features, n_labels)
    bias = rng.normal(size=n_labels).astype(np.float32)
    return {**tensors, **LinearClassifier.from_floats(weights, bias, config.slices).tensors()}


def _random_block(
    block: BlockConfig, view: ViewConfig, rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    if isinstance(block, ResidualsConfig):
        means = random_dictionary(rng, block.n_means)
        shape = (block.n_means, 128, block.components)
        projections = rng.normal(size=shape).astype(np.float32)
        return dict(ResidualsBlock.from_floats(block, means, projections).tensors())
    table = random_table(rng, view.n_leaves, block.n_atoms, block.nonzeros)
    dictionary = random_dictionary(rng, block.n_atoms)
    return dict(Coder.from_table(table, dictionary, wide=view.has_signs).tensors())


def _random_hash(view: ViewConfig, rng: np.random.Generator) -> dict[str, npt.NDArray[Any]]:
    """Directions and offsets at random, in the types that a bundle stores."""
    specs = hash_specs(view)
    wide, narrow = specs
    vectors = rng.normal(size=specs[wide].shape).astype(np.float32)
    offsets = rng.normal(scale=0.3, size=specs[narrow].shape).astype(np.float32)
    if view.hash == "tree":
        return dict(Tree.from_floats(vectors, offsets, wide=view.has_signs).tensors())
    return {wide: vectors, narrow: offsets}


def random_bundle(config: EngineConfig = CONFIG, *, seed: int = 0, n_probes: int = 1) -> Bundle:
    """A bundle whose probes are true; not yet written, so without digests."""
    manifest = Manifest("sample", 1, "2026-01-02T03:04:05Z", config, LABELS)
    bundle = Bundle(manifest, random_tensors(config, seed=seed))
    engine = Engine(bundle)
    images = [random_png(seed + number) for number in range(n_probes)]
    probes = tuple(Probe(image, tuple(map(float, engine.scores(image)))) for image in images)
    return replace(bundle, manifest=replace(manifest, probes=probes))


_PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))
IMAGES = {
    "jpeg": encoded(_PICTURE, "JPEG"),
    "progressive jpeg": encoded(_PICTURE, "JPEG", progressive=True),
    "png": encoded(_PICTURE, "PNG"),
    "webp": encoded(_PICTURE, "WEBP"),
    "lossless webp": encoded(_PICTURE, "WEBP", lossless=True),
    "gif": encoded(_PICTURE, "GIF"),
    "bmp": encoded(_PICTURE, "BMP"),
    "tiff": encoded(_PICTURE, "TIFF"),
    "lzw tiff": encoded(_PICTURE, "TIFF", compression="tiff_lzw"),
    "deflate tiff": encoded(_PICTURE, "TIFF", compression="tiff_adobe_deflate"),
}
"""One picture, 50 x 40, in every format and coding that is read."""
