"""Every choice of `python -m trainer fit`, from defaults, a TOML file and the command line."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from service.engine.config import (
    MAX_ATOMS,
    ClassifierKind,
    CodesConfig,
    EngineConfig,
    HashKind,
    SignRule,
    ViewConfig,
)
from service.engine.sift import SiftKind
from trainer.errors import ConfigError
from trainer.given.file import GroupSearch
from trainer.learn.classifier import ClassWeight
from trainer.learn.dictionary import DictionaryUpdate
from trainer.learn.hashing import Directions
from trainer.recipes import Recipe, RecipeName, recipe_of
from trainer.settings import Settings

__all__ = ["FitConfig", "Mirroring", "given_settings", "load_config", "suitable_depth"]

Mirroring = Literal["auto", "always", "never"]

_LARGEST_AUTOMATIC_DEPTH = 13
_DESCRIPTORS_PER_LEAF = 32
_LARGEST_COUNT = 10**9
_LARGEST_SEED = 2**63 - 1


class FitConfig(Settings):
    """Settings of one training run; the same settings give the same tensors.

    `pyramid` (regions per side of each level, finest first) and `card` (free text about
    the data, its licence and the model's limits) are for TOML files only.
    """

    recipe: RecipeName = Field(
        "best", description="blocks of the pooled vector: the paper's codes, or more"
    )
    samples: int = Field(
        500_000, ge=1, le=_LARGEST_COUNT, description="descriptors for tree and dictionary"
    )
    depth: int | None = Field(
        None,
        ge=1,
        le=24,
        description="depth of the tree, or bits of the hash "
        "[up to 13, at least 32 descriptors a leaf]",
    )
    atoms: int = Field(1024, ge=1, le=MAX_ATOMS, description="atoms of the dictionary")
    nonzeros: int = Field(5, ge=1, le=128, description="atoms a code may use")
    iterations: int = Field(5, ge=1, le=1000, description="rounds of dictionary learning")
    groups: int | None = Field(
        None, ge=1, description="active sets that leaves share [one per leaf]"
    )
    given_groups: str | None = Field(
        None,
        title="FILE",
        min_length=1,
        description="JSON or .npy lists of atom ids to choose active sets from [learned instead]",
    )
    group_search: GroupSearch = Field(
        "exhaustive", description="how a leaf finds its given group; greedy is for very many"
    )
    dictionary_update: DictionaryUpdate = Field(
        "least-squares", description="how each round updates the dictionary"
    )
    refinements: int = Field(
        0, ge=0, le=100, description="sweeps that refit the tree's decisions to the codes"
    )
    hash: HashKind = Field("tree", description="what sends descriptors to leaves")
    directions: Directions = Field("pca", description="directions of a hash other than the tree")
    smallest_bucket: int = Field(
        16, ge=1, le=_LARGEST_COUNT, description="hash buckets with fewer descriptors are glued"
    )
    rounds: int = Field(2, ge=0, le=100, description="rounds of 2-means a split")
    radius: float = Field(
        0.0, ge=0, description="nodes within this distance of their mean are not split"
    )
    descriptor: SiftKind = Field("fast-sift", description="kind of dense SIFT")
    max_side: int = Field(
        300, ge=20, le=65_535, description="images are scaled down to this many pixels a side"
    )
    sign_rule: SignRule = Field("absolute", description="how pooling treats the sign of a value")
    pyramid: tuple[int, ...] = Field((4, 2, 1), strict=False)
    classifier: ClassifierKind = Field("svm", description="kind of the linear classifier")
    regularisation: float | None = Field(
        None, gt=0, description="C of the classifier [chosen on folds]"
    )
    folds: int = Field(
        5, ge=2, le=20, description="folds that choose it and calibrate probabilities"
    )
    class_weight: ClassWeight = Field(
        "balanced",
        description="balanced: large classes count no more than small ones; none: images count "
        "the same",
    )
    mirroring: Mirroring = Field(
        "auto",
        description="learn from mirrored copies of the training images too; auto: if they win "
        "on folds, and never with the paper's recipe",
    )
    seed: int = Field(0, ge=0, le=_LARGEST_SEED, description="the same seed gives the same tensors")
    train_per_class: int | None = Field(
        None,
        ge=1,
        le=_LARGEST_COUNT,
        description="train on so many images a class, test on the rest [all]",
    )
    split_seed: int = Field(0, ge=0, le=_LARGEST_SEED, description="which of the random splits")
    exclude: tuple[str, ...] = Field(
        (), strict=False, title="CLASS", description="leave a class out; may be repeated"
    )
    card: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        """Reject settings that are valid by themselves, but not together."""
        self.engine_config(1 if self.depth is None else self.depth)
        leaves = 2 ** (_LARGEST_AUTOMATIC_DEPTH if self.depth is None else self.depth)
        if self.groups is not None and self.groups > leaves:
            raise ConfigError(
                f"groups is {self.groups}, expected a whole number from 1 to {leaves}"
            )
        if self.refinements and self.hash != "tree":
            raise ConfigError(
                f"refinements is {self.refinements} with the hash {self.hash}, expected 0: "
                "it is for the tree"
            )
        if self.given_groups is not None:
            self._check_given_groups()
        return self

    def _check_given_groups(self) -> None:
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
        settings = self.model_dump(mode="json", exclude={"card"})
        if self.given_groups:  # the folder is private, the bundle may be published
            settings["given_groups"] = Path(self.given_groups).name
        return settings

    def engine_config(self, depth: int) -> EngineConfig:
        """The part of the settings that the bundle keeps."""
        try:
            return EngineConfig.of_codes(
                ViewConfig(depth, self.descriptor, hash=self.hash),
                CodesConfig(self.atoms, self.nonzeros, self.sign_rule, self.pyramid),
                self.max_side,
                self.classifier,
            )
        except ValueError as error:
            raise ConfigError(str(error).replace("n_atoms", "atoms")) from error

    def recipe_for(self, *, colours: bool) -> Recipe:
        """Views and blocks for images with or without colours."""
        first = self.engine_config(self.depth or _LARGEST_AUTOMATIC_DEPTH)
        recipe = recipe_of(self.recipe, first.view, first.codes)
        return recipe if colours else recipe.without_colours()

    @property
    def recipe_mirroring(self) -> Mirroring:
        """The paper mirrors no images, so its recipe does only if that is asked for."""
        is_of_paper = self.recipe == "paper" and self.mirroring == "auto"
        return "never" if is_of_paper else self.mirroring

    @property
    def view(self) -> ViewConfig:
        """The view of the first block, at a depth that depends on the number of descriptors."""
        return self.engine_config(self.depth or 1).view

    def depth_for(self, n_descriptors: int) -> int:
        """The chosen depth, or one that suits this many descriptors."""
        return self.depth or min(suitable_depth(n_descriptors), _LARGEST_AUTOMATIC_DEPTH)


def suitable_depth(n_descriptors: int) -> int:
    """The deepest tree that leaves enough descriptors a leaf."""
    return max(1, (n_descriptors // _DESCRIPTORS_PER_LEAF).bit_length() - 1)


def load_config(path: Path | None, overrides: Mapping[str, Any]) -> FitConfig:
    """Defaults, then the TOML file at `path`, then `overrides`.

    A file of groups that the TOML file names is found from where that file is.
    """
    settings = given_settings(path, overrides)
    try:
        return FitConfig.of(settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


def given_settings(path: Path | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """What the TOML file at `path` says, and what `overrides` say instead or beside it."""
    settings = _read_toml(path) if path else {}
    if path and isinstance(settings.get("given_groups"), str) and settings["given_groups"]:
        settings["given_groups"] = str(path.parent / settings["given_groups"])
    return {**settings, **overrides}


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read as TOML: {error}") from error
