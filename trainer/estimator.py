"""The coder as a scikit-learn estimator, for other people's pipelines and grid searches.

`fit` builds the tree and runs Algorithm 2, `transform` is the engine's walk, look-up and
small product, on input of any width. Sizes left at None follow the data, as those of
scikit-learn's own estimators do; sizes that were asked for are kept or rejected.
"""

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self, get_args

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from service.engine.arrays import Float32Array, Float64Array
from service.engine.codes import Codes
from service.engine.coding import Coder
from service.engine.config import MAX_ATOMS
from service.engine.tree import Tree, norms_of
from trainer.config import FitConfig
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.dictionary import DictionaryUpdate
from trainer.learn.tree import TreeSettings, build_tree

__all__ = ["Samples", "TreeSparseCoder"]

Samples = Float32Array | Float64Array

# 1024 atoms for SIFT's 128 values, and the paper's 5 nonzeros.
_ATOMS_PER_FEATURE = 8
_NONZEROS = 5


class TreeSparseCoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sparse codes by a tree, a look-up table and one small product per sample.

    Parameters
    ----------
    n_components : atoms of the dictionary; None: 8 per feature, at most one per sample.
    n_nonzero_coefs : nonzeros per code; None: 5, at most one per feature and per atom.
    depth : decisions from the root to a leaf, 0 for one group that all share; None: the
        deepest tree, up to 13, that leaves 32 samples a leaf.
    n_groups : active sets that the leaves choose from; None: one for each leaf.
    n_iter : iterations of Algorithm 2.
    dictionary_update : "least-squares" or "ksvd".
    rounds : rounds of 2-means per split of the tree.
    radius : nodes within this distance of their mean are not split.
    random_state : draws the samples that become the first atoms.

    Attributes
    ----------
    components_ : dictionary, float32 (n_components, n_features), rows of unit norm.
    tree_, coder_ : the engine's own objects, ready for a bundle.
    relative_errors_ : Σ‖x - Wz‖² / Σ‖x‖² of the training samples after each iteration.

    Samples and atoms are coded as the engine does it: the direction of each in 16-bit
    integers, its length and the rest in float32. Every value is thus rounded to 2⁻¹⁵ of the
    norm of its row, and features far smaller than the others do not count: bring them to
    one scale first. The codes have the dtype of X.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_components": [Interval(Integral, 1, MAX_ATOMS, closed="both"), None],
        "n_nonzero_coefs": [Interval(Integral, 1, None, closed="left"), None],
        "depth": [Interval(Integral, 0, 24, closed="both"), None],
        "n_groups": [Interval(Integral, 1, None, closed="left"), None],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "dictionary_update": [StrOptions(set(get_args(DictionaryUpdate)))],
        "rounds": [Interval(Integral, 0, None, closed="left")],
        "radius": [Interval(Real, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(  # noqa: PLR0913  # scikit-learn wants every setting here, by name
        self,
        n_components: int | None = None,
        *,
        n_nonzero_coefs: int | None = None,
        depth: int | None = None,
        n_groups: int | None = None,
        n_iter: int = 5,
        dictionary_update: DictionaryUpdate = "least-squares",
        rounds: int = 2,
        radius: float = 0.0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_nonzero_coefs = n_nonzero_coefs
        self.depth = depth
        self.n_groups = n_groups
        self.n_iter = n_iter
        self.dictionary_update = dictionary_update
        self.rounds = rounds
        self.radius = radius
        self.random_state = random_state

    def fit(self, X: object, y: object = None) -> Self:
        """Learn tree, dictionary and active sets from X (n_samples, n_features)."""
        del y  # in the signature because pipelines pass it
        self._validate_params()
        samples = _safe_samples(self._validated(X, reset=True))
        if not samples.any():
            raise ValueError("every sample of X is zero, expected at least one that is not")
        tree_settings, code_settings = self._sizes(*samples.shape)
        seed = check_random_state(self.random_state).randint(2**31)
        self.tree_: Tree = build_tree(samples, tree_settings)
        learned = learn_codes(samples, self.tree_, code_settings, np.random.default_rng(seed))
        self.coder_: Coder = learned.coder
        self.components_: Float32Array = learned.coder.dictionary
        self.relative_errors_ = learned.relative_errors
        return self

    def transform(self, X: object) -> csr_matrix:
        """Codes of X, a CSR matrix (n_samples, n_components)."""
        check_is_fitted(self)
        validated = self._validated(X, reset=False)
        return _sparse(self._encode(validated), len(self.components_)).astype(validated.dtype)

    def inverse_transform(self, X: object) -> Samples:
        """Samples (n_samples, n_features) that codes X, sparse or dense, stand for."""
        check_is_fitted(self)
        codes = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {codes.shape[1]} columns, expected one for each of the "
                f"{len(self.components_)} atoms"
            )
        return np.asarray(codes @ self.components_.astype(codes.dtype))

    def score(self, X: object, y: object = None) -> float:
        """The share of Σ‖x‖² that the codes of X keep: one minus the relative error."""
        del y
        check_is_fitted(self)
        samples = self._validated(X, reset=False).astype(np.float64)
        rebuilt = self.inverse_transform(self.transform(X))
        energy = float((samples**2).sum())
        return 1.0 - float(((samples - rebuilt) ** 2).sum()) / energy if energy else 1.0

    @property
    def _n_features_out(self) -> int:
        """Number of names that `get_feature_names_out` gives."""
        return len(self.components_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _validated(self, X: object, *, reset: bool) -> Samples:
        return np.asarray(validate_data(self, X, dtype=[np.float64, np.float32], reset=reset))

    def _sizes(self, n_samples: int, n_features: int) -> tuple[TreeSettings, CodeSettings]:
        """The sizes that were asked for, or those that suit the data."""
        n_atoms = self.n_components or min(_ATOMS_PER_FEATURE * n_features, n_samples)
        most_nonzeros = min(n_features, n_atoms)
        nonzeros = self.n_nonzero_coefs or min(_NONZEROS, most_nonzeros)
        depth = _automatic_depth(n_samples) if self.depth is None else self.depth
        if n_atoms > n_samples:
            raise ValueError(f"n_samples={n_samples} should be >= n_components={n_atoms}")
        if nonzeros > most_nonzeros:
            raise ValueError(
                f"n_nonzero_coefs={nonzeros} should be <= n_features={n_features} "
                f"and <= n_components={n_atoms}"
            )
        if 2**depth > n_samples:
            raise ValueError(
                f"n_samples={n_samples} should be >= {2**depth}, the leaves of depth={depth}"
            )
        if self.n_groups is not None and self.n_groups > 2**depth:
            raise ValueError(
                f"n_groups={self.n_groups} should be <= {2**depth}, the leaves of depth={depth}"
            )
        return (
            TreeSettings(depth, self.rounds, self.radius),
            CodeSettings(
                n_atoms,
                nonzeros,
                self.n_iter,
                groups=self.n_groups,
                dictionary_update=self.dictionary_update,
            ),
        )

    def _encode(self, validated: Samples) -> Codes:
        samples = _safe_samples(validated)
        # Unpickled arrays are writable; `replace` freezes them again, see engine/arrays.py.
        tree, coder = replace(self.tree_), replace(self.coder_)
        return coder.encode(samples, tree.route(samples))


def _automatic_depth(n_samples: int) -> int:
    """The trainer's rule, cut down to the leaves that so few samples can fill."""
    return min(FitConfig().depth_for(n_samples), n_samples.bit_length() - 1)


def _safe_samples(validated: Samples) -> Float32Array:
    """Samples as float32 whose norms are finite; those too short for one become zero."""
    with np.errstate(over="ignore"):  # becomes infinite, which its norm reveals
        samples: Float32Array = validated.astype(np.float32, copy=False)
    norms = norms_of(samples)
    if not np.isfinite(norms).all():
        first = int(np.flatnonzero(~np.isfinite(norms))[0])
        raise ValueError(
            f"sample {first} of X is too large, expected values whose squares add up to a float32"
        )
    return np.where(norms[:, None] > 0, samples, np.float32(0)) if not norms.all() else samples


def _sparse(codes: Codes, n_atoms: int) -> csr_matrix:
    """Codes as CSR (n, n_atoms), indices in order, only true nonzeros stored."""
    n, nonzeros = codes.atom_ids.shape
    starts = np.arange(0, n * nonzeros + 1, nonzeros)
    matrix = csr_matrix((codes.values.ravel(), codes.atom_ids.ravel(), starts), (n, n_atoms))
    matrix.sort_indices()
    matrix.eliminate_zeros()
    return matrix
