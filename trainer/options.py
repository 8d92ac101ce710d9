"""The settings of a training run as options of a command, and back as a `FitConfig`."""

import argparse
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

from trainer.config import CHOICES, FitConfig, load_config

__all__ = ["BASELINE_SETTINGS", "add_settings", "chosen_settings"]

_NUMBERS = (
    ("samples", int, "descriptors for tree and dictionary [500000]"),
    ("depth", int, "depth of the tree [up to 13, at least 32 descriptors a leaf]"),
    ("atoms", int, "atoms of the dictionary [1024]"),
    ("nonzeros", int, "atoms a code may use [5]"),
    ("iterations", int, "rounds of dictionary learning [5]"),
    ("groups", int, "active sets that leaves share [one per leaf]"),
    ("refinements", int, "sweeps that refit the tree's decisions to the codes [0]"),
    ("smallest-bucket", int, "hash buckets with fewer descriptors are glued [16]"),
    ("rounds", int, "rounds of 2-means a split [2]"),
    ("radius", float, "pieces within this distance of their mean are not split [0]"),
    ("max-side", int, "largest side of an image at work, in pixels [300]"),
    ("regularisation", float, "C of the classifier [chosen on folds]"),
    ("folds", int, "folds that choose it and calibrate probabilities [5]"),
    ("seed", int, "the same seed gives the same tensors [0]"),
    ("train-per-class", int, "train on so many images a class, test on the rest [all]"),
    ("split-seed", int, "which of the random splits [0]"),
)

# What matters to a pipeline without a tree.
BASELINE_SETTINGS = frozenset(
    {
        "samples",
        "atoms",
        "nonzeros",
        "iterations",
        "max-side",
        "regularisation",
        "folds",
        "seed",
        "train-per-class",
        "split-seed",
        "descriptor",
        "sign-rule",
        "classifier",
    }
)


def add_settings(parser: argparse.ArgumentParser, only: Collection[str] | None = None) -> None:
    """An option for each setting, or only for those named, and `--config`."""
    parser.add_argument("--config", type=Path, help="TOML file with any settings of a fit")
    settings = parser.add_argument_group("settings (defaults in brackets)")

    def add(name: str, **details: Any) -> None:
        if only is None or name in only:
            settings.add_argument(f"--{name}", **details)

    for name, kind, explanation in _NUMBERS:
        add(name, type=kind, help=explanation)
    add(
        "given-groups",
        metavar="FILE",
        help="JSON or .npy lists of atom ids to choose active sets from [learned instead]",
    )
    for name, choices in CHOICES.items():
        add(name.replace("_", "-"), choices=choices, help=f"[{getattr(FitConfig(), name)}]")
    settings.add_argument("--exclude", action="append", metavar="CLASS", help="leave a class out")


def chosen_settings(options: argparse.Namespace) -> FitConfig:
    """Defaults, then `--config`, then what was given on the command line."""
    given = vars(options)
    names = [field.name for field in fields(FitConfig) if given.get(field.name) is not None]
    return load_config(options.config, {name: given[name] for name in names})
