"""Pooled vectors of images, as training needs them: each block of unit length.

Inside `caching`, those that an earlier run computed are read from disk. A block's part is kept
under a digest of everything that made it: the bytes of the image, the settings and tensors of the
block and its view, the engine's own source, and what it makes of a probe image here.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import PIL

from service import engine
from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from service.engine.blocks import Block
from service.engine.image import Picture
from trainer.data.dataset import LabelledImage
from trainer.learn.checkpoint import fingerprint
from trainer.parallel import map_ordered
from trainer.probes import probe_images
from trainer.vector_cache import VectorCache

__all__ = ["Pooling", "caching", "pooled_vectors"]

_current_cache: ContextVar[VectorCache | None] = ContextVar("vector cache", default=None)


@contextmanager
def caching(vectors: VectorCache | None) -> Iterator[None]:
    """Pooled vectors are read from a cache and added to it until the end of the block."""
    token = _current_cache.set(vectors)
    try:
        yield
    finally:
        _current_cache.reset(token)


class Pooling:
    """What makes the pooled vectors of an extractor; threads may share it.

    It uses the cache that is current where it is made. Vectors of more images than fit there are
    not added: they would drive out all others, and most of them would go again.
    """

    def __init__(self, extractor: FeatureExtractor, n_images: int = 1) -> None:
        self._weights = [np.float32(block.config.weight) for block in extractor.blocks]
        self._even = extractor.weighted([1.0] * len(extractor.blocks))
        self._cache = _current_cache.get()
        self._makers = [] if self._cache is None else _digests(self._even)
        size = n_images * np.dtype(np.float32).itemsize * extractor.config.n_features
        self._keeps = self._cache is not None and size <= self._cache.limit

    def vector(self, data: bytes, *, mirrored: bool = False) -> Float32Array:
        """Encoded image -> pooled vector (n_features,), left and right exchanged or not.

        Every block has unit length, whatever its weight.
        """
        if self._cache is None:
            return self._pooled(self._even.decode_picture(data), mirrored=mirrored)
        keys = self._keys(data, mirrored=mirrored)
        parts = [self._cache.get(key) for key in keys]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            return np.concatenate(known)
        picture = self._even.decode_picture(data)
        pooled = self._pooled(picture, mirrored=mirrored)
        if self._keeps:
            for key, place in zip(keys, self._even.config.slices, strict=True):
                self._cache.add(key, pooled[place])
            self._cache.add(self._blank_key(data), np.array([picture.is_blank], np.float32))
        return pooled

    def weighted_vector(self, data: bytes) -> Float32Array:
        """Encoded image -> the pooled vector (n_features,) that the extractor itself makes."""
        pooled = self.vector(data).copy()
        for place, weight in zip(self._even.config.slices, self._weights, strict=True):
            pooled[place] *= weight
        return pooled

    def is_known(self, data: bytes) -> bool:
        """Whether the vector of an encoded image is in the cache."""
        known = self._cache
        if known is None:
            return False
        return all(key in known for key in self._keys(data, mirrored=False))

    def is_blank(self, data: bytes) -> bool:
        """Whether an encoded image shows nothing but one colour."""
        found = None if self._cache is None else self._cache.get(self._blank_key(data))
        if found is not None:
            return bool(found[0])
        return self._even.decode_picture(data).is_blank

    def _pooled(self, picture: Picture, *, mirrored: bool) -> Float32Array:
        return self._even.pool_picture(picture.mirrored() if mirrored else picture)

    def _blank_key(self, data: bytes) -> bytes:
        image, size = hashlib.sha256(data).hexdigest(), self._even.config.max_side
        text = f"{image} is blank {size} {_source_digest()} {PIL.__version__}"
        return hashlib.sha256(text.encode()).hexdigest().encode()

    def _keys(self, data: bytes, *, mirrored: bool) -> list[bytes]:
        image = hashlib.sha256(data).hexdigest()
        texts = (f"{image} {mirrored} {maker}" for maker in self._makers)
        return [hashlib.sha256(text.encode()).hexdigest().encode() for text in texts]


def pooled_vectors(
    extractor: FeatureExtractor,
    images: Sequence[LabelledImage],
    are_mirrored: Sequence[bool] | None = None,
) -> Iterator[Float32Array]:
    """Pooled vectors (n_features,) of images, some with left and right exchanged."""
    pooling = Pooling(extractor, len(images))

    def vector(item: tuple[LabelledImage, bool]) -> Float32Array:
        image, is_mirrored = item
        return pooling.vector(image.path.read_bytes(), mirrored=is_mirrored)

    items = list(zip(images, are_mirrored or [False] * len(images), strict=True))
    return map_ordered(vector, items, "pooled vectors")


def _digests(even: FeatureExtractor) -> list[str]:
    """A digest of all that makes the part of each block, but for the image."""
    probes = [even.pooled_vector(data) for data in probe_images()]
    return [
        _digest(even, block, [probe[place] for probe in probes])
        for block, place in zip(even.blocks, even.config.slices, strict=True)
    ]


def _digest(even: FeatureExtractor, block: Block, probes: Sequence[Float32Array]) -> str:
    view = even.views[block.config.view]
    own = asdict(block.config)
    del own["view"], own["weight"]
    facts: dict[str, object] = {
        "engine": _source_digest(),
        "pillow": PIL.__version__,
        "max_side": even.config.max_side,
        "view": asdict(view.config),
        "kind": type(block).__name__,
        "block": own,
    }
    tensors = {**view.hash.tensors(), **block.tensors()}
    return fingerprint(facts, *(tensors[name] for name in sorted(tensors)), *probes)


@cache
def _source_digest() -> str:
    """Of all that the engine's answers are made by."""
    folder = Path(engine.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
