"""The estimator: scikit-learn's own checks, and agreement with the engine."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix, issparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from service.engine.arrays import Float32Array
from trainer.estimator import Samples, TreeSparseCoder
from trainer.learn.algorithm2 import CodeSettings, learn_codes
from trainer.learn.tree import TreeSettings, build_tree


def _samples(n: int = 400, width: int = 12, seed: int = 0) -> Float32Array:
    """Samples near a few planes, positive and negative."""
    rng = np.random.default_rng(seed)
    planes = np.random.default_rng(100).normal(size=(6, 2, width))
    weights = rng.normal(size=(n, 1, 2)) + np.array([3, 0])
    points = (weights @ planes[rng.integers(6, size=n)])[:, 0]
    noisy: Float32Array = (points + 0.1 * rng.normal(size=(n, width))).astype(np.float32)
    return noisy


def _relative_error(samples: Samples, rebuilt: Samples) -> float:
    return float(((samples - rebuilt) ** 2).sum() / (samples**2).sum())


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [TreeSparseCoder(), TreeSparseCoder(n_components=4, n_nonzero_coefs=1, depth=0, n_iter=1)]
)
def test_scikit_learn_checks(
    estimator: TreeSparseCoder, check: Callable[[TreeSparseCoder], None]
) -> None:
    check(estimator)


# scikit-learn runs these on its own estimators, but not for third parties.
@pytest.mark.parametrize(
    "name",
    [
        "check_get_feature_names_out_error",
        "check_inplace_ensure_writeable",
        "check_param_validation",
        "check_set_output_transform",
        "check_transformer_get_feature_names_out",
        "check_transformer_preserve_dtypes",
    ],
)
def test_scikit_learn_checks_for_its_own_estimators(name: str) -> None:
    getattr(estimator_checks, name)("TreeSparseCoder", TreeSparseCoder())


def test_codes_are_those_of_the_engine() -> None:
    samples = _samples()
    estimator = TreeSparseCoder(20, n_nonzero_coefs=3, depth=3, random_state=0).fit(samples)
    seed = np.random.RandomState(0).randint(2**31)
    tree = build_tree(samples, TreeSettings(3))
    coder = learn_codes(samples, tree, CodeSettings(20, 3, 5), np.random.default_rng(seed)).coder
    unseen = _samples(seed=1)
    codes = coder.encode(unseen, tree.route(unseen))
    expected = np.zeros((len(unseen), 20), np.float32)
    np.put_along_axis(expected, codes.atom_ids, codes.values, axis=1)
    np.testing.assert_array_equal(estimator.transform(unseen).toarray(), expected)
    np.testing.assert_array_equal(estimator.components_, coder.dictionary)


@pytest.mark.parametrize(("share", "counts"), [(2.0**-17, False), (2.0**-10, True)])
def test_values_count_down_to_a_share_of_2_to_the_minus_15_of_the_norm(
    share: float, *, counts: bool
) -> None:
    samples = _samples()
    samples[:, 0] = 0
    estimator = TreeSparseCoder(20, n_nonzero_coefs=3, depth=3, random_state=0)
    # Atoms that contain the feature, so that it would count if it were seen.
    estimator.fit(np.concatenate([samples, samples + np.eye(1, 12, dtype=np.float32)]))
    tiny = samples.copy()
    tiny[:, 0] = share * np.linalg.norm(samples, axis=1)
    difference = estimator.transform(tiny) - estimator.transform(samples)
    assert bool(abs(difference).max() > 1e-5) is counts


def test_rebuilt_samples_have_the_relative_error_of_the_last_iteration() -> None:
    samples = _samples()
    estimator = TreeSparseCoder(24, depth=4, n_nonzero_coefs=2, random_state=0).fit(samples)
    rebuilt = estimator.inverse_transform(estimator.transform(samples))
    error = _relative_error(samples, rebuilt)
    np.testing.assert_allclose(error, estimator.relative_errors_[-1], rtol=1e-4)
    np.testing.assert_allclose(estimator.score(samples), 1 - error, rtol=1e-5)
    assert error < 0.2


def test_inverse_transform_takes_dense_codes_too() -> None:
    estimator = TreeSparseCoder(random_state=0).fit(_samples())
    codes = estimator.transform(_samples(seed=1))
    np.testing.assert_allclose(
        estimator.inverse_transform(codes.toarray()),
        estimator.inverse_transform(codes),
        rtol=1e-4,
        atol=1e-5,
    )


def test_inverse_transform_refuses_codes_of_another_dictionary() -> None:
    estimator = TreeSparseCoder(10).fit(_samples())
    with pytest.raises(ValueError, match="X has 9 columns, expected one for each of the 10 atoms"):
        estimator.inverse_transform(np.zeros((2, 9)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_codes_are_sorted_csr_of_the_dtype_of_x(dtype: type[np.floating]) -> None:
    samples = _samples().astype(dtype)
    samples[3] = 0
    estimator = TreeSparseCoder(10, n_nonzero_coefs=3, random_state=0).fit(samples)
    codes = estimator.transform(samples)
    assert isinstance(codes, csr_matrix)
    assert codes.shape == (400, 10)
    assert codes.dtype == dtype
    assert codes.has_canonical_format
    assert (codes.data != 0).all()
    assert np.diff(codes.indptr).max() == 3
    assert codes[3].nnz == 0
    assert estimator.inverse_transform(codes).dtype == dtype


@pytest.mark.parametrize("width", [1, 2, 3, 17, 100])
@pytest.mark.parametrize("n", [1, 2, 33, 100])
def test_any_width_and_few_samples(width: int, n: int) -> None:
    samples = np.random.default_rng(0).normal(size=(n, width))
    estimator = TreeSparseCoder(random_state=0).fit(samples)
    codes = estimator.transform(samples)
    assert estimator.components_.shape == (min(8 * width, n), width)
    assert codes.shape == (n, min(8 * width, n))
    assert np.isfinite(codes.data).all()


@pytest.mark.parametrize(("n", "depth"), [(1, 0), (2, 1), (127, 1), (128, 2), (1024, 5)])
def test_automatic_depth_follows_the_samples(n: int, depth: int) -> None:
    samples = _samples(n)
    assert TreeSparseCoder(1, n_iter=1, random_state=0).fit(samples).tree_.depth == depth


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"n_components": 41}, "n_samples=40 should be >= n_components=41"),
        ({"depth": 6}, "n_samples=40 should be >= 64, the leaves of depth=6"),
        ({"n_components": 3, "n_nonzero_coefs": 4}, "n_nonzero_coefs=4 should be <= "),
        ({"n_nonzero_coefs": 13}, "n_nonzero_coefs=13 should be <= n_features=12"),
        ({"depth": 2, "n_groups": 5}, "n_groups=5 should be <= 4, the leaves of depth=2"),
        ({"dictionary_update": "guess"}, "The 'dictionary_update' parameter of TreeSparseCoder"),
        ({"radius": -1.0}, "The 'radius' parameter of TreeSparseCoder must be"),
    ],
)
def test_sizes_that_the_data_cannot_give_are_refused(
    settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        TreeSparseCoder(**settings).fit(_samples(40))


def test_zero_samples_alone_are_refused() -> None:
    with pytest.raises(ValueError, match="every sample of X is zero"):
        TreeSparseCoder().fit(np.zeros((10, 3)))


def test_values_beyond_float32_are_refused() -> None:
    samples = _samples().astype(np.float64)
    estimator = TreeSparseCoder().fit(samples)
    samples[7, 2] = 1e30
    with pytest.raises(ValueError, match="sample 7 of X is too large"):
        estimator.transform(samples)


def test_values_too_small_for_float32_count_as_zero() -> None:
    samples = _samples().astype(np.float64)
    samples[::2] *= 1e-30
    estimator = TreeSparseCoder(random_state=0).fit(samples)
    codes = estimator.transform(samples)
    assert np.isfinite(codes.data).all()
    assert codes[::2].nnz == 0


def test_n_groups_limits_the_active_sets() -> None:
    estimator = TreeSparseCoder(24, depth=4, n_groups=3, random_state=0).fit(_samples())
    assert len(np.unique(np.sort(estimator.coder_.table, axis=1), axis=0)) <= 3


def test_ksvd_updates_to_another_dictionary_that_is_as_good() -> None:
    samples = _samples()
    by_least_squares, by_ksvd = (
        TreeSparseCoder(24, depth=3, dictionary_update=update, random_state=0).fit(samples)
        for update in ("least-squares", "ksvd")
    )
    assert not np.array_equal(by_least_squares.components_, by_ksvd.components_)
    assert by_ksvd.score(samples) > 0.9 * by_least_squares.score(samples)


def test_random_state_decides_the_dictionary() -> None:
    samples = _samples()
    first, again, other = (
        TreeSparseCoder(12, random_state=seed).fit(samples).components_ for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_pickled_estimator_gives_the_same_codes() -> None:
    samples = _samples()
    estimator = TreeSparseCoder(12, random_state=0).fit(samples)
    loaded = pickle.loads(pickle.dumps(estimator))
    expected, found = estimator.transform(samples), loaded.transform(samples)
    np.testing.assert_array_equal(found.toarray(), expected.toarray())


def test_clone_keeps_settings_and_forgets_what_was_learned() -> None:
    estimator = TreeSparseCoder(12, depth=2, rounds=1, radius=0.5, n_iter=2).fit(_samples())
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "components_")


def test_feature_names_count_the_atoms() -> None:
    estimator = TreeSparseCoder(3, n_nonzero_coefs=2).fit(_samples())
    assert list(estimator.get_feature_names_out()) == [
        "treesparsecoder0",
        "treesparsecoder1",
        "treesparsecoder2",
    ]
    assert estimator.n_features_in_ == 12


def test_works_in_a_pipeline_and_a_grid_search() -> None:
    digits, labels = load_digits(n_class=3, return_X_y=True)
    pipeline = make_pipeline(
        TreeSparseCoder(48, depth=3, n_iter=2, random_state=0), LogisticRegression(max_iter=2000)
    )
    search = GridSearchCV(pipeline, {"treesparsecoder__n_nonzero_coefs": [1, 4]}, cv=2)
    search.fit(digits / 16, labels)
    assert search.best_params_ == {"treesparsecoder__n_nonzero_coefs": 4}
    assert search.best_score_ > 0.8  # chance is .33
    assert issparse(search.best_estimator_[:-1].transform(digits / 16))


def test_grid_search_without_a_classifier_goes_by_the_relative_error() -> None:
    search = GridSearchCV(
        TreeSparseCoder(24, random_state=0), {"n_nonzero_coefs": [1, 2]}, cv=3
    ).fit(_samples())
    assert search.best_params_ == {"n_nonzero_coefs": 2}
