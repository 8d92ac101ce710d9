"""The estimate of a fit beside fits that were run."""

import pytest

from trainer.config import FitConfig
from trainer.cost import expected_cost


@pytest.mark.parametrize(
    ("arguments", "samples", "cpu_seconds", "memory_bytes"),
    [
        ((300, 10, 0.0085), 500_000, 42.3, 1.21e9),
        ((1200, 3, 0.0052), 500_000, 72.5, 1.60e9),
        ((3030, 101, 0.0085), 1_000_000, 259.8, 4.48e9),
    ],
)
def test_the_estimate_is_near_what_was_measured(
    arguments: tuple[int, int, float], samples: int, cpu_seconds: float, memory_bytes: float
) -> None:
    cost = expected_cost(*arguments, FitConfig(samples=samples))
    assert cost.cpu_seconds == pytest.approx(cpu_seconds, rel=0.12)
    assert 0.99 * memory_bytes < cost.memory_bytes < 1.75 * memory_bytes


def test_a_model_that_is_reused_costs_only_the_classifier() -> None:
    whole, reused = (expected_cost(360, 6, is_reused=is_reused) for is_reused in (False, True))
    assert reused.cpu_seconds < 0.2 * whole.cpu_seconds
    assert not any(reused.stage_seconds[name] for name in ("tree", "dictionary", "descriptors"))


def test_images_to_test_on_take_time_in_the_end() -> None:
    cost = expected_cost(300, 10)
    assert cost.with_evaluation(1000).cpu_seconds > cost.cpu_seconds + 5


def test_few_images_have_few_descriptors_to_learn_from() -> None:
    assert expected_cost(4, 2, 0.0085).cpu_seconds < 7
