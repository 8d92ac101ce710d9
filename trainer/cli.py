"""`python -m trainer fit | evaluate | baseline | …`: arguments in, text or JSON out."""

import argparse
import json
import logging
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, get_args

from service.engine import Engine
from trainer.cache_options import add_cache_options, cached_vectors, unfinished_fits
from trainer.check import check
from trainer.check_text import check_text
from trainer.cluster.option import add_cluster_option, find_from_anywhere, workplace_of
from trainer.command_line import command_parser, run_command
from trainer.config import FitConfig, given_settings, load_config
from trainer.data.dataset import Dataset, scan
from trainer.data.labels_file import read_labels
from trainer.data.notes import notes
from trainer.data.sampling import log_unreadable
from trainer.data.urls import folder_of
from trainer.errors import DataError
from trainer.evaluate import choose_test_images, evaluation_of, score_images
from trainer.exact.baseline import OmpDictionary, measure_baseline
from trainer.fit import WorkFiles, scratch_folder, train
from trainer.fit_report import report_fit
from trainer.page.document import REPORT_FILE, check_report_target, write_report
from trainer.page.findings import of_bundle
from trainer.predict.cli import add_predict
from trainer.publish import check_target, publish
from trainer.repeat import TOML_SETTINGS, recorded_command, typed_command
from trainer.report import (
    describe_bundle,
    evaluation_text,
    fit_text,
    inspection_text,
    known_text,
    trained_on_text,
)
from trainer.reproduce.cli import add_reproduce
from trainer.reuse import ReusedModel
from trainer.unknown import add_unknown_option, measure_unknown, with_unknown
from trainer.warmup import warm

__all__ = ["main"]

logger = logging.getLogger(__name__)

_FIT_EXAMPLES = """examples:
  python -m trainer fit photos --out models/photos
  python -m trainer fit photos --out models/photos --atoms 2048 --train-per-class 30
  python -m trainer fit photos --out models/photos --config settings.toml
  python -m trainer fit photos --out models/photos --from-bundle models/photos/1
  python -m trainer fit photos --out models/photos --unknown other_photos
"""

_REPORT_EXAMPLES = """Training images are judged on folds again, all others by the bundle itself.
What the images cannot show is as fit recorded it; the page says which is which.

examples:
  python -m trainer report models/photos/1 photos
  python -m trainer report models/photos/1 new_photos --out report.html
"""

_BASELINE_EXAMPLES = """examples:
  python -m trainer baseline photos --train-per-class 30
  python -m trainer baseline photos --train-per-class 30 --dictionary ksvd --config settings.toml
"""

# What matters to a pipeline without a tree.
_BASELINE_SETTINGS = frozenset(
    {
        "samples",
        "atoms",
        "nonzeros",
        "iterations",
        "descriptor",
        "max_side",
        "sign_rule",
        "classifier",
        "regularisation",
        "folds",
        "seed",
        "train_per_class",
        "split_seed",
        "exclude",
    }
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 for bad data, 2 for bad usage."""
    return run_command(_parser(), arguments)


def _parser() -> argparse.ArgumentParser:
    parser, commands = command_parser()
    _add_fit(commands)
    _add_evaluate(commands)
    add_predict(commands)
    _add_report(commands)
    _add_check(commands)
    _add_baseline(commands)
    add_reproduce(commands)
    inspect = commands.add_parser("inspect", help="check a bundle and show what is in it")
    _add_bundle(inspect)
    _add_json(inspect)
    inspect.set_defaults(run=_inspect)
    warm_parser = commands.add_parser("warm", help="compile the kernels, once for this machine")
    warm_parser.set_defaults(run=_warm)
    return parser


def _warm(_: argparse.Namespace) -> None:
    logging.disable(logging.INFO)  # the errors of noise tell nobody anything
    print(f"kernels ready after {warm():.1f} s")


def _add_fit(commands: Any) -> None:
    parser = commands.add_parser(
        "fit",
        help="train a bundle on a folder of images",
        epilog=_FIT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_images(parser, folder_of)
    add_unknown_option(parser, "to learn from")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="MODELS/NAME",
        help=f"gets a new version, with a {REPORT_FILE} in it",
    )
    parser.add_argument(
        "--from-bundle",
        type=Path,
        metavar="FOLDER",
        help="version of a model whose trees and dictionaries are used again, to learn only the "
        "classifier: adds a class, or corrects labels, in seconds",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on where a fit of the same images and settings was interrupted",
    )
    parser.add_argument(
        "--scratch",
        type=Path,
        metavar="FOLDER",
        help="folder for descriptors, and for pooled vectors of many images, that do not fit in "
        "memory [memory, and the folder for temporary files]",
    )
    parser.add_argument(
        "--no-report",
        action="store_true",
        help=f"write no {REPORT_FILE}, which has small copies of some images in it",
    )
    add_cluster_option(parser)
    add_cache_options(parser)
    _add_json(parser)
    _add_config(parser, FitConfig.model_fields.keys() - TOML_SETTINGS)
    parser.set_defaults(run=_fit)


def _add_evaluate(commands: Any) -> None:
    parser = commands.add_parser("evaluate", help="measure a bundle on a folder of images")
    _add_bundle(parser)
    _add_images(parser)
    add_unknown_option(parser, "to count how many are rejected")
    parser.add_argument(
        "--split-seed", type=int, metavar="N", help="test only on images outside this split"
    )
    parser.add_argument(
        "--train-per-class",
        type=int,
        metavar="N",
        help="training images of the split [as in the bundle]",
    )
    add_cache_options(parser)
    _add_json(parser)
    parser.set_defaults(run=_evaluate)


def _add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the report of a bundle again, for people to read",
        epilog=_REPORT_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_bundle(parser)
    _add_images(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help=f"HTML file to write [BUNDLE/{REPORT_FILE}]"
    )
    add_cache_options(parser)
    parser.set_defaults(run=_report)


def _add_check(commands: Any) -> None:
    parser = commands.add_parser(
        "check", help="tell what is in a folder of images, and what a fit will take"
    )
    _add_images(parser)
    _add_json(parser)
    parser.set_defaults(run=_check)


def _add_baseline(commands: Any) -> None:
    parser = commands.add_parser(
        "baseline",
        help="measure exact OMP in place of the tree, all else as fit does it",
        epilog=_BASELINE_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_images(parser)
    parser.add_argument(
        "--dictionary",
        choices=get_args(OmpDictionary),
        default="spams",
        help="online learning by SPAMS, or K-SVD in turns with OMP [spams]",
    )
    _add_json(parser)
    _add_config(parser, _BASELINE_SETTINGS)
    parser.set_defaults(run=_baseline)


def _add_bundle(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="version folder, such as models/photos/1")


def _add_images(parser: argparse.ArgumentParser, folder: Callable[[str], Path] = Path) -> None:
    parser.add_argument("images", type=folder, help="folder with one sub-folder of images a class")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help="CSV or JSON lines with path and label of each image [folders are the labels]",
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _add_config(parser: argparse.ArgumentParser, names: Collection[str]) -> None:
    """`--config`, and an option for each of the named settings of a fit."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file with any settings of a fit"
    )
    FitConfig.add_options(parser.add_argument_group("settings (defaults in brackets)"), names)


def _chosen_config(options: argparse.Namespace) -> FitConfig:
    """Defaults, then `--config`, then what was given on the command line."""
    return load_config(options.config, FitConfig.given(options))


def _fit(options: argparse.Namespace) -> None:
    check_target(options.out)
    find_from_anywhere(options)
    reused = ReusedModel.load(options.from_bundle) if options.from_bundle else None
    if reused is None:
        config = _chosen_config(options)
    else:
        config = reused.config(given_settings(options.config, FitConfig.given(options)))
    dataset = _dataset(options, config.exclude, options.unknown)
    try:
        with scratch_folder(options.scratch) as scratch, cached_vectors(options):
            files = WorkFiles(unfinished_fits(options), scratch, options.resume)
            with workplace_of(options) as workplace:
                trained = train(dataset, config, options.out.name, files, reused, workplace)
        folder, manifest = publish(trained.bundle, options.out)
    except KeyboardInterrupt:
        print(f"interrupted; nothing was written; {_way_on(options)}", file=sys.stderr)
        raise SystemExit(130) from None
    if trained.state:
        trained.state.remove()
    report = None
    if not options.no_report:
        report = report_fit(trained, dataset, folder, manifest, typed_command(options.typed))
    if options.json:
        facts = {"bundle": str(folder), "digest": manifest.digest, "report": report and str(report)}
        figures = {each.part: each.evaluation.to_json() for each in trained.judged}
        print(json.dumps({**facts, **figures}))
    else:
        print(fit_text(manifest, folder, report))


def _way_on(options: argparse.Namespace) -> str:
    if options.no_cache:
        return "with --no-cache, nothing was kept to go on from"
    return "the same command with --resume goes on"


def _report(options: argparse.Namespace) -> None:
    engine = Engine.load(options.bundle)
    path = options.out or options.bundle / REPORT_FILE
    check_report_target(path)
    with cached_vectors(options):
        findings = of_bundle(engine, _dataset(options))
    out = options.bundle.absolute().parent
    command = recorded_command(engine.manifest, options.images, options.labels, out)
    write_report(path, engine, engine.manifest, findings, command)
    print(f"report {path}")


def _check(options: argparse.Namespace) -> None:
    report = check(_found(options), options.labels)
    print(json.dumps(report.to_json()) if options.json else check_text(report))
    if not report.can_be_fitted:
        raise DataError(f"{options.images} has fewer than two classes with a readable image")


def _found(options: argparse.Namespace, exclude: tuple[str, ...] = ()) -> Dataset:
    """The images that a command names."""
    if options.labels:
        return read_labels(options.labels, options.images, exclude)
    return scan(options.images, exclude)


def _dataset(
    options: argparse.Namespace, exclude: tuple[str, ...] = (), unknown: Sequence[Path] = ()
) -> Dataset:
    """The images that a command names; files that have no part in it are counted."""
    dataset = with_unknown(_found(options, exclude), unknown)
    for note in notes(dataset, options.labels):
        logger.warning("%s", note)
    return dataset


def _evaluate(options: argparse.Namespace) -> None:
    engine = Engine.load(options.bundle)
    split = (options.split_seed, options.train_per_class)
    selection = choose_test_images(engine, _dataset(options), *split)
    with cached_vectors(options):
        scored = score_images(engine, selection.images)
        log_unreadable(scored.unreadable)
        unknown = [measure_unknown(engine, scored, folder) for folder in options.unknown]
    evaluation = evaluation_of(engine, scored)
    if options.json:
        facts = {"trained_on": selection.trained_on, "unknown": [f.to_json() for f in unknown]}
        print(json.dumps({**evaluation.to_json(), **facts}))
    else:
        print(evaluation_text(evaluation))
        print(trained_on_text(selection))
        print(known_text(evaluation, unknown))


def _baseline(options: argparse.Namespace) -> None:
    config = _chosen_config(options)
    dataset = _dataset(options, config.exclude)
    evaluation = measure_baseline(dataset, config, options.dictionary)
    if options.json:
        facts = {"coder": "omp", "dictionary": options.dictionary}
        print(json.dumps({**facts, **evaluation.to_json()}))
    else:
        print(f"OMP with a dictionary by {options.dictionary}")
        print(evaluation_text(evaluation))


def _inspect(options: argparse.Namespace) -> None:
    engine = Engine.load(options.bundle)
    print(json.dumps(describe_bundle(engine)) if options.json else inspection_text(engine))
