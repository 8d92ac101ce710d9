"""`python -m trainer fit | evaluate | baseline | …`: arguments in, text or JSON out."""

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar, get_args

from service.engine import Engine, LeafcodeError, write_bundle
from service.engine.bundle import MODEL_NAME
from trainer.baseline import OmpDictionary, measure_baseline
from trainer.bench.plot import draw_speed
from trainer.bench.report import in_place_of_section, markdown_section, speed_text
from trainer.bench.run import EMBEDDED_MODELS, Sources, measure_speed
from trainer.bench.settings import BenchSettings
from trainer.dataset import Dataset, LabelledImage, scan
from trainer.errors import ConfigError, DataError, MeasurementError
from trainer.evaluate import evaluate
from trainer.fit import WorkFiles, fit
from trainer.options import BASELINE_SETTINGS, add_settings, chosen_settings
from trainer.report import (
    describe_bundle,
    evaluation_text,
    fit_text,
    inspection_text,
    patches_text,
    refinement_text,
    shortened,
    training_text,
)
from trainer.reproduce.patches import PAPER, PatchSettings, draw_figure, study_patches
from trainer.reproduce.refinement import RefinementSettings, measure_refinement
from trainer.reproduce.training import TrainingCostSettings, measure_training
from trainer.sampling import log_unreadable

__all__ = ["main"]

Settings = TypeVar("Settings", bound=Any)

logger = logging.getLogger(__name__)

_FIT_EXAMPLES = """examples:
  python -m trainer fit photos --out models/photos
  python -m trainer fit photos --out models/photos --atoms 2048 --train-per-class 30
  python -m trainer fit photos --out models/photos --config settings.toml
"""

_BASELINE_EXAMPLES = """examples:
  python -m trainer baseline photos --train-per-class 30
  python -m trainer baseline photos --train-per-class 30 --dictionary ksvd --config settings.toml
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for bad data, 2 for bad usage."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        options.run(options)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except LeafcodeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainer", description="Train and judge Leafcode bundles."
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    _add_fit(commands)
    _add_evaluate(commands)
    _add_baseline(commands)
    _add_reproduce(commands)
    inspect = commands.add_parser("inspect", help="check a bundle and show what is in it")
    inspect.add_argument("bundle", type=Path, help="version folder, such as models/photos/1")
    inspect.add_argument("--json", action="store_true", help="print one JSON object")
    inspect.set_defaults(run=_inspect)
    return parser


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a bundle on a folder of images",
        epilog=_FIT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("images", type=Path, help="folder with one sub-folder of images a class")
    parser.add_argument("--out", type=Path, required=True, help="MODELS/NAME, gets a new version")
    parser.add_argument(
        "--checkpoint", type=Path, help="file to resume an interrupted run from, removed at the end"
    )
    parser.add_argument(
        "--scratch", type=Path, help="folder for descriptors that do not fit in memory [memory]"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser)
    parser.set_defaults(run=_fit)


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="measure a bundle on a folder of images")
    parser.add_argument("bundle", type=Path, help="version folder, such as models/photos/1")
    parser.add_argument("images", type=Path, help="folder with one sub-folder of images a class")
    parser.add_argument("--split-seed", type=int, help="test only on images outside this split")
    parser.add_argument(
        "--train-per-class", type=int, help="training images of the split [as in the bundle]"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_evaluate)


def _add_baseline(commands: Any) -> None:
    parser = commands.add_parser(
        "baseline",
        help="measure exact OMP in place of the tree, all else as fit does it",
        epilog=_BASELINE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("images", type=Path, help="folder with one sub-folder of images a class")
    parser.add_argument(
        "--dictionary",
        choices=get_args(OmpDictionary),
        default="spams",
        help="online learning by SPAMS, or K-SVD in turns with OMP [spams]",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, BASELINE_SETTINGS)
    parser.set_defaults(run=_baseline)


def _add_reproduce(commands: Any) -> None:
    parser = commands.add_parser("reproduce", help="run an experiment of the paper")
    experiments = parser.add_subparsers(required=True, metavar="experiment")
    patches = experiments.add_parser(
        "patches", help="what the groups look like (section 3.1): figure and statistics"
    )
    patches.add_argument("--data", type=Path, required=True, help="folder of photographs")
    patches.add_argument("--out", type=Path, default=Path("patches.png"), help="[patches.png]")
    _add_numbers(patches, PatchSettings())
    patches.set_defaults(run=_reproduce_patches)
    training = experiments.add_parser(
        "training", help="what training costs for more and more descriptors"
    )
    training.add_argument("--data", type=Path, required=True, help="one sub-folder a class")
    _add_numbers(training, TrainingCostSettings())
    training.set_defaults(run=_reproduce_training)
    refinement = experiments.add_parser(
        "refinement", help="coding error of the plain tree, the refined tree and OMP"
    )
    refinement.add_argument("--data", type=Path, required=True, help="one sub-folder a class")
    _add_numbers(refinement, RefinementSettings())
    refinement.set_defaults(run=_reproduce_refinement)
    _add_speed(experiments)


def _add_served(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--served",
        type=Path,
        default=EMBEDDED_MODELS,
        help="model repository of the service that is measured [the embedded one]",
    )


def _add_speed(experiments: Any) -> None:
    speed = experiments.add_parser(
        "speed", help="how fast, beside BLAS, SPAMS, OpenCV and scikit-learn; needs leafcode[bench]"
    )
    speed.add_argument(
        "--data", type=Path, required=True, help="folder with berkeley and caltech101 below it"
    )
    speed.add_argument("--out", type=Path, default=Path(), help="gets bench.json and bench.png [.]")
    speed.add_argument("--markdown", type=Path, help="page whose section on speed is replaced")
    speed.add_argument("--models", type=Path, help="folder that keeps the models [temporary]")
    _add_served(speed)
    _add_numbers(speed, BenchSettings())
    speed.set_defaults(run=_reproduce_speed)


def _add_numbers(parser: argparse.ArgumentParser, defaults: Any) -> None:
    """An option for each field of a settings dataclass of whole numbers, and `--json`."""
    for name, default in asdict(defaults).items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=int, default=default, help=f"[{default}]"
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _numbers(options: argparse.Namespace, kind: type[Settings]) -> Settings:
    """What the options that `_add_numbers` made say."""
    names = [field.name for field in fields(kind)]
    settings: Settings = kind(**{name: getattr(options, name) for name in names})
    return settings


def _reproduce_speed(options: argparse.Namespace) -> None:
    settings = _numbers(options, BenchSettings)
    options.out.mkdir(parents=True, exist_ok=True)
    report = measure_speed(Sources(options.data, options.models, options.served), settings)
    document = json.dumps(report.to_json(), indent=1)
    (options.out / "bench.json").write_text(f"{document}\n", "utf-8")
    print(document if options.json else speed_text(report))
    draw_speed(report, options.out / "bench.png")
    if options.markdown:
        page = options.markdown.read_text("utf-8") if options.markdown.exists() else ""
        options.markdown.write_text(in_place_of_section(page, markdown_section(report)), "utf-8")
    if report.missing:
        raise MeasurementError(f"not measured: {', '.join(report.missing)}")


def _reproduce_refinement(options: argparse.Namespace) -> None:
    settings = _numbers(options, RefinementSettings)
    errors = measure_refinement(options.data, settings)
    print(json.dumps(errors) if options.json else refinement_text(errors))


def _reproduce_training(options: argparse.Namespace) -> None:
    settings = _numbers(options, TrainingCostSettings)
    costs = measure_training(options.data, settings)
    if options.json:
        print(json.dumps({"costs": [asdict(cost) for cost in costs]}))
    else:
        print(training_text(costs))


def _reproduce_patches(options: argparse.Namespace) -> None:
    settings = _numbers(options, PatchSettings)
    study = study_patches(options.data, settings)
    draw_figure(study).save(options.out)
    if options.json:
        print(json.dumps({"figure": str(options.out), "ours": study.figures(), "paper": PAPER}))
    else:
        print(patches_text(study.figures(), PAPER, options.out))


def _fit(options: argparse.Namespace) -> None:
    config = chosen_settings(options)
    _check_target(options.out)
    dataset = scan(options.images, config.exclude)
    _log_skipped(dataset)
    version = _next_version(options.out)
    with _scratch_folder(options.scratch) as scratch:
        files = WorkFiles(options.checkpoint, scratch)
        bundle = fit(dataset, config, options.out.name, version, files)
    folder = options.out / str(version)
    manifest = write_bundle(bundle, folder)
    if options.checkpoint:
        options.checkpoint.unlink(missing_ok=True)
    if options.json:
        print(json.dumps({"bundle": str(folder), "digest": manifest.digest, **manifest.quality}))
    else:
        print(fit_text(manifest, folder))


@contextmanager
def _scratch_folder(parent: Path | None) -> Iterator[Path | None]:
    """A folder of our own below `parent`, gone afterwards."""
    if parent is None:
        yield None
        return
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"--scratch {parent} is not a writable folder")
    with tempfile.TemporaryDirectory(prefix="leafcode-", dir=parent) as folder:
        yield Path(folder)


def _check_target(out: Path) -> None:
    """Refuse a target that cannot be written before hours go into training."""
    if not MODEL_NAME.fullmatch(out.name):
        raise ConfigError(
            f"--out ends in {out.name!r}, expected a model name of letters, digits, . _ and -"
        )
    existing = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigError(f"--out {out} cannot be created: {existing} is not a writable folder")


def _next_version(out: Path) -> int:
    taken = [int(path.name) for path in out.glob("*") if path.name.isdecimal()]
    return max(taken, default=0) + 1


def _log_skipped(dataset: Dataset) -> None:
    if dataset.skipped:
        logger.warning(
            "%d files are not named like images and are skipped, the first is %s",
            len(dataset.skipped),
            dataset.skipped[0],
        )


def _evaluate(options: argparse.Namespace) -> None:
    engine = Engine.load(options.bundle)
    images = _test_images(engine, scan(options.images), options)
    evaluation = evaluate(engine, images)
    log_unreadable(evaluation.unreadable)
    print(json.dumps(evaluation.to_json()) if options.json else evaluation_text(evaluation))


def _baseline(options: argparse.Namespace) -> None:
    config = chosen_settings(options)
    dataset = scan(options.images, config.exclude)
    _log_skipped(dataset)
    evaluation = measure_baseline(dataset, config, options.dictionary)
    if options.json:
        facts = {"coder": "omp", "dictionary": options.dictionary}
        print(json.dumps({**facts, **evaluation.to_json()}))
    else:
        print(f"OMP with a dictionary by {options.dictionary}")
        print(evaluation_text(evaluation))


def _test_images(
    engine: Engine, found: Dataset, options: argparse.Namespace
) -> tuple[LabelledImage, ...]:
    """All images of the bundle's labels, or those outside the training part of a split."""
    left_out = sorted(set(found.labels) - set(engine.labels))
    if left_out:
        logger.warning("left out, not among the bundle's labels: %s", shortened(left_out))
    dataset = found.restricted_to(engine.labels)
    if not dataset.images:
        raise DataError(f"{found.root} has no images of the bundle's {len(engine.labels)} labels")
    if options.split_seed is None:
        if _trained_on_split(engine):
            logger.warning("all images are tested; --split-seed leaves the training images out")
        return dataset.images
    split = dataset.split(_train_per_class(engine, options), options.split_seed)
    if dataset.fingerprint(split.train) == engine.manifest.provenance.get("training_files_sha256"):
        logger.info("the training images left out are exactly those of the bundle")
    else:
        logger.warning(
            "this split's training images are not the bundle's: it may have seen test images"
        )
    if not split.test:
        raise DataError(f"{found.root} has no images outside the training part of the split")
    return split.test


def _trained_on_split(engine: Engine) -> bool:
    return _settings_of(engine).get("train_per_class") is not None


def _train_per_class(engine: Engine, options: argparse.Namespace) -> int:
    count = options.train_per_class or _settings_of(engine).get("train_per_class")
    if not isinstance(count, int) or count < 1:
        raise ConfigError(
            "the bundle was not trained on a split, so --split-seed needs --train-per-class"
        )
    return count


def _settings_of(engine: Engine) -> dict[str, object]:
    settings = engine.manifest.provenance.get("settings")
    return settings if isinstance(settings, dict) else {}


def _inspect(options: argparse.Namespace) -> None:
    engine = Engine.load(options.bundle)
    print(json.dumps(describe_bundle(engine)) if options.json else inspection_text(engine))
