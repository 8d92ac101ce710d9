"""`python -m trainer reproduce …`: the paper's experiments, arguments in, text or JSON out."""

import argparse
import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from trainer.bench.bulk import BulkSettings, measure_bulk
from trainer.bench.plot import draw_speed
from trainer.bench.report import markdown_section, speed_text
from trainer.bench.run import Sources, measure_speed
from trainer.bench.settings import BenchSettings
from trainer.cluster.connection import LOCAL, connected
from trainer.cluster.option import add_cluster_option
from trainer.config import FitConfig
from trainer.embedded import EMBEDDED_MODELS
from trainer.errors import MeasurementError
from trainer.report import (
    explanations_text,
    patches_text,
    refinement_text,
    solvers_text,
    training_text,
)
from trainer.reproduce.accuracy import measure_accuracy
from trainer.reproduce.accuracy_plot import draw_accuracy
from trainer.reproduce.accuracy_report import accuracy_json, accuracy_section, accuracy_text
from trainer.reproduce.benchmarks import CALTECH101, SCENES15, Benchmark
from trainer.reproduce.cache import Cache, default_folder
from trainer.reproduce.cells import Selection, chosen_cells, whole_numbers
from trainer.reproduce.experiment import Experiment
from trainer.reproduce.explanations import ExplanationSettings, measure_explanations
from trainer.reproduce.patches import PAPER, PatchSettings, draw_figure, study_patches
from trainer.reproduce.refinement import RefinementSettings, measure_refinement
from trainer.reproduce.scattered import ScatteredSettings, measure_scattered, scattered_text
from trainer.reproduce.solvers import SolverSettings, measure_solvers
from trainer.reproduce.training import TrainingCostSettings, measure_training
from trainer.settings import Settings
from trainer.tables import in_place_of_section

__all__ = ["add_reproduce"]

logger = logging.getLogger(__name__)

# What of a fit's settings an experiment on accuracy takes; its cells have the others.
_ACCURACY_SETTINGS = (
    "samples",
    "depth",
    "iterations",
    "max_side",
    "sign_rule",
    "classifier",
    "regularisation",
    "folds",
    "seed",
    "train_per_class",
)


def add_reproduce(commands: Any) -> None:
    """Add `reproduce` and all its experiments to the commands of a parser."""
    parser = commands.add_parser("reproduce", help="run an experiment of the paper")
    experiments = parser.add_subparsers(required=True, metavar="experiment")
    patches = _add_experiment(
        experiments,
        "patches",
        PatchSettings,
        "folder of photographs",
        "what the groups look like (section 3.1): figure and statistics",
    )
    patches.add_argument(
        "--out",
        type=Path,
        default=Path("patches.png"),
        metavar="FILE",
        help="figure to write [patches.png]",
    )
    patches.set_defaults(run=_reproduce_patches)
    training = _add_experiment(
        experiments,
        "training",
        TrainingCostSettings,
        "folder with one sub-folder of images a class",
        "what training costs for more and more descriptors",
    )
    training.set_defaults(run=_reproduce_training)
    refinement = _add_experiment(
        experiments,
        "refinement",
        RefinementSettings,
        "folder with one sub-folder of images a class",
        "coding error of the plain tree, the refined tree and OMP",
    )
    refinement.set_defaults(run=_reproduce_refinement)
    solvers = _add_experiment(
        experiments,
        "solvers",
        SolverSettings,
        "folder with one sub-folder of images a class",
        "our classifier for many images beside scikit-learn's",
    )
    solvers.set_defaults(run=_reproduce_solvers)
    _add_cluster(experiments)
    _add_explanations(experiments)
    _add_bulk(experiments)
    _add_speed(experiments)
    _add_accuracy(experiments, CALTECH101)
    _add_accuracy(experiments, SCENES15)


def _add_experiment(
    experiments: Any, name: str, settings: type[Settings], data: str, explanation: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = experiments.add_parser(name, help=explanation)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help=data)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    settings.add_options(parser.add_argument_group("settings (defaults in brackets)"))
    return parser


def _add_cluster(experiments: Any) -> None:
    parser = experiments.add_parser(
        "cluster", help="a tree and a dictionary of made-up descriptors, and the driver's memory"
    )
    add_cluster_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    ScatteredSettings.add_options(parser.add_argument_group("settings (defaults in brackets)"))
    parser.set_defaults(run=_reproduce_cluster)


def _reproduce_cluster(options: argparse.Namespace) -> None:
    settings = ScatteredSettings.of(ScatteredSettings.given(options))
    with connected(options.cluster or LOCAL) as client:
        result = measure_scattered(client, settings)
    print(json.dumps(asdict(result)) if options.json else scattered_text(result))


def _reproduce_patches(options: argparse.Namespace) -> None:
    study = study_patches(options.data, PatchSettings.of(PatchSettings.given(options)))
    draw_figure(study).save(options.out)
    if options.json:
        print(json.dumps({"figure": str(options.out), "ours": study.figures(), "paper": PAPER}))
    else:
        print(patches_text(study.figures(), PAPER, options.out))


def _reproduce_training(options: argparse.Namespace) -> None:
    settings = TrainingCostSettings.of(TrainingCostSettings.given(options))
    costs = measure_training(options.data, settings)
    if options.json:
        print(json.dumps({"costs": [asdict(cost) for cost in costs]}))
    else:
        print(training_text(costs))


def _reproduce_refinement(options: argparse.Namespace) -> None:
    settings = RefinementSettings.of(RefinementSettings.given(options))
    errors = measure_refinement(options.data, settings)
    print(json.dumps(errors) if options.json else refinement_text(errors))


def _reproduce_solvers(options: argparse.Namespace) -> None:
    settings = SolverSettings.of(SolverSettings.given(options))
    results = measure_solvers(options.data, settings)
    if options.json:
        print(json.dumps({"solvers": [asdict(result) for result in results]}))
    else:
        print(solvers_text(results))


def _add_explanations(experiments: Any) -> None:
    parser = _add_experiment(
        experiments,
        "explanations",
        ExplanationSettings,
        "folder with one sub-folder of images a class",
        "whether explanations add up, and whether what they point at counts",
    )
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="FOLDER", help="version of a model"
    )
    parser.set_defaults(run=_reproduce_explanations)


def _reproduce_explanations(options: argparse.Namespace) -> None:
    settings = ExplanationSettings.of(ExplanationSettings.given(options))
    report = measure_explanations(options.bundle, options.data, settings)
    print(json.dumps(asdict(report)) if options.json else explanations_text(report))


def _add_bulk(experiments: Any) -> None:
    parser = _add_experiment(
        experiments,
        "bulk",
        BulkSettings,
        "folder of images that can all be read",
        "images a second of predict, beside bare engines on the same cores",
    )
    parser.add_argument(
        "--bundle", type=Path, required=True, metavar="FOLDER", help="version of a model"
    )
    parser.set_defaults(run=_reproduce_bulk)


def _reproduce_bulk(options: argparse.Namespace) -> None:
    settings = BulkSettings.of(BulkSettings.given(options))
    result = measure_bulk(options.bundle, options.data, settings)
    print(json.dumps(result.to_json()) if options.json else result.to_text())


def _add_speed(experiments: Any) -> None:
    speed = _add_experiment(
        experiments,
        "speed",
        BenchSettings,
        "folder with berkeley and caltech101 below it",
        "how fast, beside BLAS, SPAMS, OpenCV and scikit-learn; needs leafcode[bench]",
    )
    speed.add_argument(
        "--out",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="gets bench.json and bench.png [.]",
    )
    speed.add_argument(
        "--markdown", type=Path, metavar="FILE", help="page whose section on speed is replaced"
    )
    speed.add_argument(
        "--models", type=Path, metavar="FOLDER", help="keeps the models that are built [temporary]"
    )
    speed.add_argument(
        "--served",
        type=Path,
        default=EMBEDDED_MODELS,
        metavar="FOLDER",
        help="model repository of the service that is measured [the embedded one]",
    )
    speed.set_defaults(run=_reproduce_speed)


def _reproduce_speed(options: argparse.Namespace) -> None:
    settings = BenchSettings.of(BenchSettings.given(options))
    options.out.mkdir(parents=True, exist_ok=True)
    report = measure_speed(Sources(options.data, options.models, options.served), settings)
    document = json.dumps(report.to_json(), indent=1)
    (options.out / "bench.json").write_text(f"{document}\n", "utf-8")
    print(document if options.json else speed_text(report))
    draw_speed(report, options.out / "bench.png")
    if options.markdown:
        _replace_section(options.markdown, markdown_section(report))
    if report.missing:
        raise MeasurementError(f"not measured: {', '.join(report.missing)}")


def _replace_section(path: Path, section: str) -> None:
    page = path.read_text("utf-8") if path.exists() else ""
    path.write_text(in_place_of_section(page, section), "utf-8")


def _add_accuracy(experiments: Any, benchmark: Benchmark) -> None:
    parser = experiments.add_parser(
        benchmark.name, help=f"accuracy on {benchmark.title}, beside the paper's table"
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="folder of all data sets"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--atoms", metavar="LIST", help="such as 1024,2048")
    parser.add_argument("--nonzeros", metavar="LIST", help="such as 5,10")
    parser.add_argument("--coder", metavar="LIST", help="of tree, omp")
    parser.add_argument("--descriptor", metavar="LIST", help="of fast-sift, lazebnik-sift")
    parser.add_argument(
        "--dictionary",
        metavar="LIST",
        help="own: of the training images of each split; foreign: of the other data sets "
        "[own; if no cells are chosen, foreign for all but fast SIFT, m=5, K up to 4096]",
    )
    parser.add_argument("--recipe", metavar="LIST", help="of paper, fast, best [paper]")
    parser.add_argument("--splits", default="0-9", metavar="LIST", help="seeds of the splits [0-9]")
    if benchmark.exclude:
        parser.add_argument(
            "--with-background",
            action="store_true",
            help="with the class of clutter: 102 classes, as in older work",
        )
    _add_outputs(parser)
    FitConfig.add_options(
        parser.add_argument_group("settings (defaults in brackets)"), _ACCURACY_SETTINGS
    )
    parser.set_defaults(run=_reproduce_accuracy, benchmark=benchmark)


def _as_options(values: Mapping[str, object]) -> str:
    """The values that were given, as they stand on the command line."""
    return "".join(
        f" --{name.replace('_', '-')} {value}"
        for name, value in values.items()
        if value is not None
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_folder(),
        metavar="FOLDER",
        help=f"keeps models, Gram matrices and results, to go on from [{default_folder()}]",
    )
    parser.add_argument(
        "--finished", action="store_true", help="show what is on disk, compute nothing"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="page whose section on this is replaced"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="picture to draw, such as x.png")


def _reproduce_accuracy(options: argparse.Namespace) -> None:
    benchmark: Benchmark = options.benchmark
    if getattr(options, "with_background", False):
        benchmark = benchmark.with_background()
    given = FitConfig.given(options)
    config = FitConfig.of({name: given[name] for name in _ACCURACY_SETTINGS if name in given})
    chosen = {field.name: getattr(options, field.name) for field in fields(Selection)}
    cells = chosen_cells(Selection(**chosen))
    seeds = whole_numbers("splits", options.splits)
    cache = Cache(options.cache)
    logger.info("results are kept in %s", options.cache)
    experiment = Experiment(benchmark, options.data, config, cache, not options.finished)
    try:
        report = measure_accuracy(experiment, cells, seeds)
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from {options.cache}", file=sys.stderr)
        raise SystemExit(130) from None
    print(json.dumps(accuracy_json(report)) if options.json else accuracy_text(report))
    if options.markdown:
        given_options = {**chosen, **config.model_dump(include=given.keys() - chosen.keys())}
        _replace_section(options.markdown, accuracy_section(report, _as_options(given_options)))
    if options.plot:
        draw_accuracy(report, options.plot)
