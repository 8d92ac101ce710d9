"""Every stage of an image is timed under its name."""

from pathlib import Path

from service.engine import STAGES, Engine, Stopwatch


def test_scores_time_every_stage_once(drawn_images: Path, trained_bundle: Path) -> None:
    image = next(drawn_images.glob("*/*"))
    watch = Stopwatch()
    Engine.load(trained_bundle).scores(image.read_bytes(), watch=watch)
    assert tuple(watch.seconds) == STAGES
    assert all(seconds >= 0 for seconds in watch.seconds.values())
