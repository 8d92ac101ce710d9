"""Our solver for many images beside those of scikit-learn and SciPy, on the same pooled vectors.

All minimise ½|w|² + ½b² + C Σ max(0, 1 − y f)² of one label against the rest. Images are few
enough for all of them: for many, scikit-learn's take the vectors as 64-bit numbers in memory.
"""

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from service.engine import Engine
from service.engine.arrays import Float32Array, Float64Array
from trainer.data.dataset import LabelledImage, scan
from trainer.data.vectors import VectorFile
from trainer.embedded import EMBEDDED_MODELS
from trainer.errors import DataError
from trainer.learn.feature_matrix import FeatureMatrix
from trainer.learn.least_squares import targets
from trainer.learn.primal import PrimalProblem, solve_primal
from trainer.learn.squared_hinge import solve_squared_hinge
from trainer.metrics import Labels
from trainer.parallel import one_blas_thread
from trainer.settings import Settings
from trainer.vectors import pooled_vectors

__all__ = ["SolverResult", "SolverSettings", "measure_solvers"]

logger = logging.getLogger(__name__)

_MODEL = EMBEDDED_MODELS / "caltech101" / "1"
# Of SGDClassifier: images that are given to it at a time, and how often it is given all.
_CHUNK = 512
_EPOCHS = 10
# Of L-BFGS-B: steps, each of at least one pass over the images.
_STEPS = 50


class SolverSettings(Settings):
    """How many images of which classes, and how they are fitted."""

    images: int = Field(2000, ge=2, le=10**6, description="images to train on")
    tested: int = Field(2000, ge=1, le=10**6, description="other images to test on")
    regularisation: float = Field(3.0, gt=0, description="C")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="which images")
    exclude: tuple[str, ...] = Field(
        (), strict=False, title="CLASS", description="leave a class out; may be repeated"
    )


@dataclass(frozen=True)
class SolverResult:
    """What a solver took, and what it found.

    `excess` is how far its objective is above the least one, as a share of that.
    """

    name: str
    cpu_seconds: float
    accuracy: float
    excess: float


@dataclass(frozen=True)
class _Data:
    """Vectors (n, n_features) of unit length with a constant feature, and labels (n,)."""

    train: Float32Array
    labels: Labels
    test: Float32Array
    test_labels: Labels
    n_labels: int
    slices: tuple[slice, ...]
    regularisation: float

    def objective(self, weights: Float32Array) -> float:
        """That of weights (n_features, n_labels) with the bias last."""
        missing = np.maximum(0, 1 - targets(self.labels, self.n_labels).T * (self.train @ weights))
        norm = (weights.astype(np.float64) ** 2).sum()
        return float(norm / 2 + self.regularisation * (missing**2).sum())

    def accuracy(self, weights: Float32Array) -> float:
        return float(((self.test @ weights).argmax(axis=1) == self.test_labels).mean())


Solver = Callable[[_Data], Float32Array]


def measure_solvers(folder: Path, settings: SolverSettings) -> list[SolverResult]:
    """Every solver once, on images of a folder with one sub-folder a class."""
    data = _data(folder, settings)
    results, objectives = [], []
    for name, solver in _SOLVERS.items():
        started = time.process_time()
        with one_blas_thread():
            weights = solver(data)
        seconds = time.process_time() - started
        logger.info("%s: %.1f CPU s", name, seconds)
        results.append(SolverResult(name, seconds, data.accuracy(weights), 0.0))
        objectives.append(data.objective(weights))
    least = min(objectives)
    return [
        replace(result, excess=objective / least - 1)
        for result, objective in zip(results, objectives, strict=True)
    ]


def _data(folder: Path, settings: SolverSettings) -> _Data:
    dataset = scan(folder, settings.exclude)
    wanted = settings.images + settings.tested
    if len(dataset.images) < wanted:
        raise DataError(f"{folder} has {len(dataset.images)} images, expected at least {wanted}")
    order = np.random.default_rng(settings.seed).permutation(len(dataset.images))[:wanted]
    images = [dataset.images[place] for place in order]
    engine = Engine.load(_MODEL)
    rows = _rows(engine, images)
    labels = np.array([image.label for image in images])
    return _Data(
        rows[: settings.images],
        labels[: settings.images],
        rows[settings.images :],
        labels[settings.images :],
        len(dataset.labels),
        engine.config.slices,
        settings.regularisation,
    )


def _rows(engine: Engine, images: list[LabelledImage]) -> Float32Array:
    rows = np.ones((len(images), engine.config.n_features + 1), np.float32)
    for row, vector in enumerate(pooled_vectors(engine, images)):
        rows[row, :-1] = vector / np.float32(np.sqrt(len(engine.blocks)))
    return rows


def _over_a_file(data: _Data) -> Float32Array:
    problem = PrimalProblem(
        data.labels,
        data.n_labels,
        np.full(len(data.labels), data.regularisation),
        np.zeros(len(data.labels), np.bool_),
    )
    norm = np.float32(np.sqrt(len(data.slices)))
    with VectorFile.opened(Path(tempfile.gettempdir()), data.slices) as file:
        for row in data.train:
            file.append(row[:-1] * norm)
        with FeatureMatrix(file, [1.0] * len(data.slices)) as matrix:
            found = solve_primal(matrix, problem)
    return np.vstack([found.weights, found.bias])


def _on_gram_matrix(data: _Data) -> Float32Array:
    points = data.train[:, :-1]
    found = solve_squared_hinge(points @ points.T, data.labels, data.n_labels, data.regularisation)
    weights = points.T @ found.coefficients.astype(np.float32)
    return np.vstack([weights, found.bias.astype(np.float32)])


def _liblinear(data: _Data) -> Float32Array:
    from sklearn.svm import LinearSVC  # noqa: PLC0415

    model = LinearSVC(C=data.regularisation, tol=1e-2, fit_intercept=False, random_state=0)
    return np.asarray(model.fit(data.train, data.labels).coef_.T, np.float32)


def _stochastic(data: _Data) -> Float32Array:
    from sklearn.linear_model import SGDClassifier  # noqa: PLC0415

    model = SGDClassifier(
        "squared_hinge",
        alpha=1 / (data.regularisation * len(data.labels)),
        fit_intercept=False,
        learning_rate="invscaling",  # with its own, "optimal", weights become infinite
        eta0=0.1,
        power_t=0.25,
        average=True,
        random_state=0,
    )
    rng = np.random.default_rng(0)
    for _ in range(_EPOCHS):
        order = rng.permutation(len(data.labels))
        for rows in _chunks(order):
            model.partial_fit(data.train[rows], data.labels[rows], np.arange(data.n_labels))
    return np.asarray(model.coef_.T, np.float32)


def _chunks(order: Labels) -> Iterator[Labels]:
    for start in range(0, len(order), _CHUNK):
        yield order[start : start + _CHUNK]


def _lbfgs(data: _Data) -> Float32Array:
    """All labels in one vector, as SciPy takes it."""
    from scipy.optimize import minimize  # noqa: PLC0415

    signs = targets(data.labels, data.n_labels).T.astype(np.float32)
    shape = data.train.shape[1], data.n_labels

    def value_and_gradient(flat: Float64Array) -> tuple[float, Float64Array]:
        weights = flat.reshape(shape).astype(np.float32)
        missing = np.maximum(0, 1 - signs * (data.train @ weights))
        value = float(flat @ flat) / 2 + data.regularisation * float((missing**2).sum())
        pull = np.float32(2 * data.regularisation) * missing * signs
        return value, flat - (data.train.T @ pull).ravel()

    start = np.zeros(shape[0] * shape[1])
    options = {"maxiter": _STEPS, "maxcor": 4}
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x.reshape(shape), np.float32)


_SOLVERS: dict[str, Solver] = {
    "over a file (ours, for many images)": _over_a_file,
    "on a Gram matrix (ours)": _on_gram_matrix,
    f"SciPy L-BFGS-B, {_STEPS} steps": _lbfgs,
    f"scikit-learn SGDClassifier, {_EPOCHS} epochs": _stochastic,
    "scikit-learn LinearSVC, tolerance .01": _liblinear,
}
