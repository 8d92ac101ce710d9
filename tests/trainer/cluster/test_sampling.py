"""Descriptors that workers draw while they have nothing else to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.config import ViewConfig
from trainer.cluster import workplace
from trainer.cluster.tasks import Tasks
from trainer.cluster.workplace import ClusterWorkplace
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage, scan
from trainer.features import FeaturePlan

VIEW = ViewConfig(depth=3)
PLAN = FeaturePlan(FitConfig(samples=1000))


@pytest.fixture
def images(drawn_images: Path) -> tuple[LabelledImage, ...]:
    return scan(drawn_images).images


def drawn(place: ClusterWorkplace, images: tuple[LabelledImage, ...], tasks: Tasks) -> Any:
    sample: Any = place.draw(images, VIEW, PLAN)
    return np.concatenate(list(tasks.results(sample.sample.parts, "descriptors")))


@pytest.mark.parametrize("n_ahead", [5, None])
def test_descriptors_are_the_same_whatever_was_drawn_ahead(
    threads: Any, tasks: Tasks, images: tuple[LabelledImage, ...], n_ahead: int | None
) -> None:
    place = ClusterWorkplace(threads)
    expected = drawn(place, images, tasks)
    place.draw_ahead(images[:n_ahead], VIEW, PLAN)
    np.testing.assert_array_equal(drawn(place, images, tasks), expected)


def test_of_very_many_descriptors_none_are_drawn_ahead(
    threads: Any, images: tuple[LabelledImage, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workplace, "_MOST_AHEAD", 999)
    place = ClusterWorkplace(threads)
    place.draw_ahead(images, VIEW, PLAN)
    assert place._ahead == {}
