"""A folder of bursts: what folds say beside what becomes of really new images."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from service.engine import Engine, Manifest
from trainer.classification import Classification, learn_classification
from trainer.config import FitConfig
from trainer.data.dataset import LabelledImage
from trainer.evaluate import evaluate
from trainer.features import FeaturePlan, learn_features
from trainer.fit import bundle_of
from trainer.learn.classifier import ClassifierSettings, fit_classifier
from trainer.parallel import one_blas_thread
from trainer.publish import UNPUBLISHED

DATA = Path(os.environ.get("CALTECH101", Path(__file__).parents[3] / "shared/data/caltech101"))

_CLASSES = 10
_ORIGINALS = 8
_BURST = 10
_NEW = 25

_CONFIG = FitConfig.of(
    {"recipe": "fast", "samples": 20_000, "atoms": 64, "iterations": 1, "max_side": 120}
)
_SETTINGS = ClassifierSettings("svm", 10.0, folds=5, seed=0, fixed_weights=True)


def _crop(source: Path, target: Path, rng: np.random.Generator) -> None:
    """A copy without up to 8 % of the image on each side."""
    with Image.open(source) as image:
        image.thumbnail((120, 120))
        left, top, right, bottom = rng.uniform(0, 0.08, 4)
        width, height = image.size
        box = left * width, top * height, (1 - right) * width, (1 - bottom) * height
        image.crop(box).save(target, quality=90)


def _bursts_and_new_images(folder: Path) -> tuple[list[LabelledImage], list[LabelledImage]]:
    rng = np.random.default_rng(0)
    counts = {path: len(list(path.iterdir())) for path in sorted(DATA.iterdir())}
    large = [path for path, count in counts.items() if count >= _ORIGINALS + _NEW]
    classes = [path for path in large if path.name != "BACKGROUND_Google"][-_CLASSES:]
    bursts, new = [], []
    for label, path in enumerate(classes):
        files = sorted(path.iterdir())
        shuffled = [files[place] for place in rng.permutation(len(files))]
        for original in shuffled[:_ORIGINALS]:
            for number in range(_BURST):
                target = folder / f"{label}-{original.stem}-{number}.jpg"
                _crop(original, target, rng)
                bursts.append(LabelledImage(target, label))
        new += [LabelledImage(file, label) for file in shuffled[_ORIGINALS:][:_NEW]]
    return bursts, new


def _accuracy(model: Classification, images: list[LabelledImage]) -> float:
    extractor = model.calibrated_extractor()
    labels = tuple(str(label) for label in range(_CLASSES))
    manifest = Manifest("bursts", UNPUBLISHED, "", extractor.config, labels)
    engine = Engine(bundle_of(extractor, model.classifier(), manifest))
    return evaluate(engine, images).mean_class_accuracy


@pytest.mark.skipif(not DATA.is_dir(), reason="Caltech 101 is not beside the repository")
def test_folds_of_bursts_tell_the_accuracy_on_new_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bursts, new = _bursts_and_new_images(tmp_path)
    with one_blas_thread():
        features = learn_features(bursts, FeaturePlan(_CONFIG))
        model = learn_classification(features, _CLASSES, _SETTINGS)
        naive = fit_classifier(replace(model.training, groups=None), _SETTINGS).fold_accuracy
    honest, true = model.fitted.fold_accuracy, _accuracy(model, new)
    assert honest is not None
    assert naive is not None
    with capsys.disabled():
        sys.stdout.write(
            f"\nbursts: naive folds {naive:.3f}, ours {honest:.3f}, new images {true:.3f}\n"
        )
    assert abs(honest - true) < 0.03
    assert naive > true + 0.1
