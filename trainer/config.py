"""Every choice of `python -m trainer fit`, from defaults, a TOML file and the command line."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, get_args

from service.engine.config import ClassifierKind, Descriptor, EngineConfig, HashKind, SignRule
from trainer.errors import ConfigError
from trainer.given.file import GroupSearch
from trainer.learn.dictionary import DictionaryUpdate
from trainer.learn.hashing import Directions

__all__ = ["FitConfig", "load_config"]

_LARGEST_AUTOMATIC_DEPTH = 13
_DESCRIPTORS_PER_LEAF = 32


@dataclass(frozen=True)
class FitConfig:
    """Settings of one training run; the same settings give the same tensors.

    `depth` None: the deepest tree, up to 13, that leaves 32 descriptors a leaf.
    `groups` None: every leaf is a group; else the leaves are glued into that many.
    `given_groups` names a file of groups to choose from instead; see `given/file.py`.
    `regularisation` None: chosen on folds of the training images.
    `train_per_class` None: train on all images; else on that many of `split_seed`.
    `card` is free text about the data, its licence and the model's limits.
    """

    samples: int = 500_000
    depth: int | None = None
    atoms: int = 1024
    nonzeros: int = 5
    iterations: int = 5
    groups: int | None = None
    given_groups: str | None = None
    group_search: GroupSearch = "exhaustive"
    dictionary_update: DictionaryUpdate = "least-squares"
    refinements: int = 0
    hash: HashKind = "tree"
    directions: Directions = "pca"
    smallest_bucket: int = 16
    rounds: int = 2
    radius: float = 0.0
    descriptor: Descriptor = "fast-sift"
    max_side: int = 300
    sign_rule: SignRule = "absolute"
    pyramid: tuple[int, ...] = (4, 2, 1)
    classifier: ClassifierKind = "svm"
    regularisation: float | None = None
    folds: int = 5
    seed: int = 0
    train_per_class: int | None = None
    split_seed: int = 0
    exclude: tuple[str, ...] = ()
    card: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("samples", 1, 10**9),
            ("iterations", 1, 1000),
            ("rounds", 0, 100),
            ("refinements", 0, 100),
            ("smallest_bucket", 1, 10**9),
            ("folds", 2, 20),
            ("seed", 0, 2**63 - 1),
            ("split_seed", 0, 2**63 - 1),
        ):
            _require_whole(name, getattr(self, name), low, high)
        if self.train_per_class is not None:
            _require_whole("train_per_class", self.train_per_class, 1, 10**9)
        if not _is_number(self.radius) or self.radius < 0:
            raise ConfigError(f"radius is {self.radius!r}, expected a number of at least 0")
        if self.regularisation is not None and (
            not _is_number(self.regularisation) or self.regularisation <= 0
        ):
            raise ConfigError(
                f"regularisation is {self.regularisation!r}, expected a positive number"
            )
        if not isinstance(self.pyramid, tuple) or not isinstance(self.exclude, tuple):
            raise ConfigError("pyramid and exclude are not both lists")
        if not isinstance(self.card, dict) or not all(
            isinstance(text, str) for text in self.card.values()
        ):
            raise ConfigError("card is not a table of texts")
        self.engine_config(1 if self.depth is None else self.depth)
        self._check_groups()

    def _check_groups(self) -> None:
        deepest = _LARGEST_AUTOMATIC_DEPTH if self.depth is None else self.depth
        if self.groups is not None:
            _require_whole("groups", self.groups, 1, 2**deepest)
        for name in ("directions", "dictionary_update", "group_search"):
            if getattr(self, name) not in CHOICES[name]:
                raise ConfigError(
                    f"{name} is {getattr(self, name)!r}, expected one of {', '.join(CHOICES[name])}"
                )
        if self.refinements and self.hash != "tree":
            raise ConfigError("refinements are for the tree, expected 0 with another hash")
        if self.given_groups is not None:
            self._check_given_groups()

    def _check_given_groups(self) -> None:
        if not isinstance(self.given_groups, str) or not self.given_groups:
            raise ConfigError(f"given_groups is {self.given_groups!r}, expected a file")
        for name in ("groups", "refinements"):
            if getattr(self, name):
                raise ConfigError(
                    f"{name} is {getattr(self, name)} beside given_groups, expected none: "
                    "it is for groups that are learned"
                )
        if self.dictionary_update != "least-squares":
            raise ConfigError(
                f"dictionary_update is {self.dictionary_update!r}, "
                "expected 'least-squares' for given groups"
            )

    def to_json(self) -> dict[str, object]:
        """The settings as plain JSON values, without the card."""
        settings = asdict(self)
        del settings["card"]
        if self.given_groups:  # where it was is nobody's business
            settings["given_groups"] = Path(self.given_groups).name
        return {**settings, "pyramid": list(self.pyramid), "exclude": list(self.exclude)}

    def engine_config(self, depth: int, probability_scale: float = 1.0) -> EngineConfig:
        """The part of the settings that the bundle keeps."""
        try:
            return EngineConfig(
                depth=depth,
                n_atoms=self.atoms,
                nonzeros=self.nonzeros,
                hash=self.hash,
                descriptor=self.descriptor,
                max_side=self.max_side,
                sign_rule=self.sign_rule,
                pyramid=self.pyramid,
                classifier=self.classifier,
                probability_scale=probability_scale,
            )
        except ValueError as error:
            raise ConfigError(str(error).replace("n_atoms", "atoms")) from error

    def depth_for(self, n_descriptors: int) -> int:
        """The chosen depth, or one that suits this many descriptors."""
        if self.depth is not None:
            return self.depth
        suitable = max(1, n_descriptors // _DESCRIPTORS_PER_LEAF).bit_length() - 1
        return max(1, min(_LARGEST_AUTOMATIC_DEPTH, suitable))


CHOICES: dict[str, tuple[str, ...]] = {
    "hash": get_args(HashKind),
    "directions": get_args(Directions),
    "dictionary_update": get_args(DictionaryUpdate),
    "group_search": get_args(GroupSearch),
    "descriptor": get_args(Descriptor),
    "sign_rule": get_args(SignRule),
    "classifier": get_args(ClassifierKind),
}


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> FitConfig:
    """Defaults, then the TOML file at `path`, then `overrides`.

    A file of groups that the TOML file names is found from where that file is.
    """
    settings = _read_toml(path) if path else {}
    if path and isinstance(settings.get("given_groups"), str):
        settings["given_groups"] = str(path.parent / settings["given_groups"])
    settings = {**settings, **overrides}
    for name in ("pyramid", "exclude"):
        if isinstance(settings.get(name), list):
            settings[name] = tuple(settings[name])
    known = {item.name for item in fields(FitConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(
            f"{path}: unknown settings {', '.join(unknown)}, expected {', '.join(sorted(known))}"
        )
    try:
        return FitConfig(**settings)
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error


def _require_whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}, expected a whole number from {low} to {high}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
