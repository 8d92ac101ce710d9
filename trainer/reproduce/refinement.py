"""How much a learned tree gains (the paper's first open question): coding error on new images.

Three coders with the same number of nonzeros, evaluated on descriptors of images that
training did not see: the plain tree, the refined tree, and exact OMP on the plain
tree's dictionary.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import Field

from service.engine.arrays import Float32Array
from service.engine.coding import Coder
from service.engine.config import MAX_ATOMS
from service.engine.hashing import Hash
from trainer.data.dataset import scan
from trainer.data.sampling import SampleSettings, sample_descriptors
from trainer.errors import DataError
from trainer.exact.omp import OmpCoder
from trainer.learn.algorithm2 import CodeSettings
from trainer.learn.dictionary import residual_energies
from trainer.learn.refine import coding_errors, relative_error
from trainer.learn.training_run import RunSettings, learn_tree_codes
from trainer.learn.tree import TreeSettings, build_tree
from trainer.parallel import n_threads
from trainer.settings import Settings

__all__ = ["RefinementSettings", "measure_refinement"]


class RefinementSettings(Settings):
    """Descriptors for training and for testing, size of the model, sweeps of refinement."""

    samples: int = Field(3_000_000, ge=1, le=10**9, description="descriptors to learn from")
    held_out: int = Field(
        50_000,
        ge=1,
        le=10**9,
        description="descriptors of the test images",
    )
    depth: int = Field(16, ge=1, le=24, description="depth of the tree")
    atoms: int = Field(1024, ge=1, le=MAX_ATOMS, description="atoms of the dictionary")
    nonzeros: int = Field(5, ge=1, le=128, description="atoms a code may use")
    iterations: int = Field(5, ge=1, le=1000, description="rounds of dictionary learning")
    refinements: int = Field(
        2, ge=0, le=100, description="sweeps that refit the tree's decisions to the codes"
    )
    train_per_class: int = Field(
        30, ge=1, le=10**9, description="training images a class, the others test"
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="the same seed gives the same result")


def measure_refinement(folder: Path, settings: RefinementSettings) -> dict[str, float]:
    """Relative error Σ‖x - Wz‖² / Σ‖x‖² on held-out descriptors, by coder."""
    split = scan(folder).split(settings.train_per_class, settings.seed)
    if not split.test:
        raise DataError(f"{folder} has no images beyond {settings.train_per_class} a class")
    training, test = (
        sample_descriptors(images, SampleSettings(count, seed=settings.seed))
        for images, count in (
            (split.train, settings.samples),
            (split.test, settings.held_out),
        )
    )
    tree = build_tree(training.descriptors, TreeSettings(settings.depth, wide=False))
    codes = CodeSettings(settings.atoms, settings.nonzeros, settings.iterations, wide=False)
    errors: dict[str, float] = {}
    with TemporaryDirectory() as scratch:
        # Both begin with the same iterations: the second finds them in the checkpoint.
        checkpoint = Path(scratch) / "iterations.npz"
        for name, sweeps in (("plain_tree", 0), ("refined_tree", settings.refinements)):
            run = RunSettings(codes, sweeps, settings.seed, checkpoint)
            hash_, learned = learn_tree_codes(training.descriptors, tree, run, training.image_ids)
            errors[name] = _tree_error(test.descriptors, hash_, learned.coder)
            if not sweeps:
                dictionary = learned.coder.dictionary
                errors["omp"] = _omp_error(test.descriptors, dictionary, settings.nonzeros)
    return errors


def _tree_error(descriptors: Float32Array, hash_: Hash, coder: Coder) -> float:
    return relative_error(descriptors, coding_errors(descriptors, hash_.route(descriptors), coder))


def _omp_error(descriptors: Float32Array, dictionary: Float32Array, nonzeros: int) -> float:
    coder = OmpCoder(dictionary, nonzeros, n_threads())
    codes = coder.encode(descriptors)
    return relative_error(descriptors, residual_energies(descriptors, codes, dictionary))
