"""Tasks: the same sums whoever adds them up, and errors as sentences."""

import itertools

import numpy as np
import pytest

from trainer.cluster.tasks import Tasks, _in_one_thread, spans
from trainer.errors import DataError
from trainer.parallel import n_threads


@pytest.mark.parametrize(
    ("count", "least", "most"), [(1, 5, 3), (15, 5, 3), (16, 5, 3), (99, 1, 7)]
)
def test_spans_cover_all_and_are_few(count: int, least: int, most: int) -> None:
    found = spans(count, least, most)
    assert list(itertools.chain(*found)) == list(range(count))
    assert len(found) <= most
    assert all(len(span) >= least for span in found[:-1])


@pytest.mark.parametrize("count", [1, 2, 4, 5, 23])
def test_sums_are_added_up_in_the_same_order_always(tasks: Tasks, count: int) -> None:
    numbers = np.random.default_rng(0).normal(size=count).astype(np.float32) * 1e6
    totals = {tasks.result(tasks.total([tasks.given(n) for n in numbers]), "") for _ in range(3)}
    assert len(totals) == 1
    assert totals.pop() == pytest.approx(numbers.astype(np.float64).sum(), rel=1e-5)


def test_arrays_from_elsewhere_are_aligned() -> None:
    """They were not, and a dictionary's inner products differed in their last bit."""
    anywhere = np.ndarray((3, 4), np.float32, bytearray(49), 1)
    assert not anywhere.flags.aligned
    assert _in_one_thread(lambda array: array.flags.aligned, anywhere)


def test_many_results_come_in_their_order(tasks: Tasks) -> None:
    assert list(tasks.results(tasks.each(abs, range(-70, 0)), "numbers")) == list(range(70, 0, -1))


def test_the_first_error_ends_many_results(tasks: Tasks) -> None:
    files = tasks.each(open, ["/gone/first", "/gone/second"])
    with pytest.raises(DataError, match="gone/first"):
        list(tasks.results(files, "images"))


def test_a_task_has_one_thread(tasks: Tasks) -> None:
    assert tasks.result(tasks.submit(n_threads), "threads") == 1


def test_a_file_that_a_worker_cannot_read_is_told_in_a_sentence(tasks: Tasks) -> None:
    with pytest.raises(DataError, match=r"a worker could not read or write \(images\): .*gone"):
        tasks.result(tasks.submit(open, "/gone"), "images")
