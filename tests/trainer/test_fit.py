"""A whole fit in this process: what it gives, whatever the machine lends it."""

from pathlib import Path

from threadpoolctl import threadpool_limits

from service.engine import Bundle
from trainer.config import FitConfig
from trainer.data.dataset import scan
from trainer.fit import fit

CONFIG = FitConfig(
    recipe="best",
    samples=3000,
    atoms=128,
    nonzeros=3,
    iterations=1,
    depth=3,
    regularisation=3.0,
    mirroring="always",
)


def _fit_with_blas_threads(images: Path, count: int) -> Bundle:
    with threadpool_limits(count, "blas"):
        return fit(scan(images), CONFIG, "drawn")


def test_tensors_do_not_depend_on_how_many_threads_blas_has(drawn_images: Path) -> None:
    one, several = (_fit_with_blas_threads(drawn_images, threads) for threads in (1, 4))
    assert one.manifest.provenance["mirrored"] is True
    assert one.manifest.config == several.manifest.config
    assert one.manifest.probes == several.manifest.probes
    for name, tensor in one.tensors.items():
        assert tensor.tobytes() == several.tensors[name].tobytes(), name
