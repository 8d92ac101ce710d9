"""The estimate of a fit agrees with the fits that it was measured by."""

import pytest

from trainer.cost import expected_cost


@pytest.mark.parametrize(
    ("n_images", "cpu_seconds", "memory_bytes"),
    [(300, 41, 1.05e9), (1200, 93, 2.65e9), (2400, 340, 3.49e9)],
)
def test_the_estimate_is_near_what_was_measured(
    n_images: int, cpu_seconds: float, memory_bytes: float
) -> None:
    cost = expected_cost(n_images, n_images // 30, pooling_seconds=0.0085)
    assert cost.cpu_seconds == pytest.approx(cpu_seconds, rel=0.1)
    assert cost.memory_bytes == pytest.approx(memory_bytes, rel=0.1)


def test_a_machine_of_half_the_speed_takes_twice_as_long() -> None:
    fast, slow = (expected_cost(500, 10, seconds) for seconds in (0.01, 0.02))
    assert slow.cpu_seconds == pytest.approx(2 * fast.cpu_seconds)
    assert slow.memory_bytes == fast.memory_bytes


def test_few_images_have_few_descriptors_to_learn_from() -> None:
    assert expected_cost(4, 2, 0.0085).cpu_seconds < 5
