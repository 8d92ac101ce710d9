"""The estimate of a fit beside fits that were run."""

import pytest

from trainer.cost import expected_cost


@pytest.mark.parametrize(
    ("arguments", "cpu_seconds", "memory_bytes"),
    [
        ((300, 10, 0.0085), 41.1, 1.05e9),
        ((1200, 40, 0.0085), 93.1, 2.65e9),
        ((2400, 80, 0.0085), 340.3, 3.49e9),
        # Three classes of Caltech 101, and 15 scenes: no rate is made of these.
        ((1200, 3, 0.0052), 74.8, 1.54e9),
        ((600, 15, 0.0080), 53.5, 1.15e9),
    ],
)
def test_the_estimate_is_near_what_was_measured(
    arguments: tuple[int, int, float], cpu_seconds: float, memory_bytes: float
) -> None:
    cost = expected_cost(*arguments)
    assert cost.cpu_seconds == pytest.approx(cpu_seconds, rel=0.12)
    assert 0.99 * memory_bytes < cost.memory_bytes < 1.75 * memory_bytes


def test_few_images_have_few_descriptors_to_learn_from() -> None:
    assert expected_cost(4, 2, 0.0085).cpu_seconds < 5
