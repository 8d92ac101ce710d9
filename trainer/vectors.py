"""Pooled vectors of images, as training needs them: each block of unit length."""

from collections.abc import Iterator, Sequence

from service.engine import FeatureExtractor
from service.engine.arrays import Float32Array
from trainer.data.dataset import LabelledImage
from trainer.parallel import map_ordered

__all__ = ["pooled_vectors"]


def pooled_vectors(
    extractor: FeatureExtractor,
    images: Sequence[LabelledImage],
    are_mirrored: Sequence[bool] | None = None,
) -> Iterator[Float32Array]:
    """Pooled vectors (n_features,) of images, some with left and right exchanged.

    The weights of the blocks are of no account.
    """
    even = extractor.weighted([1.0] * len(extractor.blocks))

    def pooled_vector(item: tuple[LabelledImage, bool]) -> Float32Array:
        image, is_mirrored = item
        picture = even.decode_picture(image.path.read_bytes())
        return even.pool_picture(picture.mirrored() if is_mirrored else picture)

    items = list(zip(images, are_mirrored or [False] * len(images), strict=True))
    return map_ordered(pooled_vector, items, "pooled vectors")
