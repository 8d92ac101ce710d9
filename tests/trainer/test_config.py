"""Settings of a training run: defaults, file, command line, and refusals."""

from pathlib import Path

import pytest

from trainer.config import FitConfig, load_config
from trainer.errors import ConfigError


def test_command_line_wins_over_file_and_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('atoms = 64\nnonzeros = 2\npyramid = [2, 1]\n[card]\ndata = "mine"\n')
    config = load_config(file, {"atoms": 32})
    assert (config.atoms, config.nonzeros, config.pyramid) == (32, 2, (2, 1))
    assert config.samples == FitConfig().samples
    assert config.card == {"data": "mine"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("atmos = 3", "unknown settings atmos"),
        ("atoms = 0", "atoms is 0"),
        ("atoms = 1.5", "atoms is 1.5"),
        ("nonzeros = 2000", "nonzeros is 2000"),
        ("depth = 99", "depth is 99, expected a whole number from 1 to 24"),
        ("depth = 0", "depth is 0"),
        ("samples = -1", "samples is -1"),
        ("radius = -0.5", "radius is -0.5"),
        ("regularisation = 0", "regularisation is 0"),
        ('classifier = "forest"', "classifier is 'forest', expected one of svm, logistic"),
        ("pyramid = [4, 3]", "pyramid level 3 does not divide"),
        ("pyramid = 4", "pyramid"),
        ("exclude = 4", "exclude"),
        ("train_per_class = 0", "train_per_class is 0"),
        ("groups = 8193", "groups is 8193, expected a whole number from 1 to 8192"),
        ("exclude = [3]", r"exclude is \[3\], expected a list of texts"),
        ("pyramid = [4.0, 1]", "pyramid is .*, expected a list of whole numbers"),
        ("samples = true", "samples is True, expected a whole number from 1 to 1000000000"),
        ("radius = nan", "radius is nan, expected a number of at least 0"),
        ("regularisation = true", "regularisation is True, expected a number above 0"),
        ("groups = 0", "groups is 0, expected a whole number of at least 1"),
        ("depth = 4\ngroups = 17", "groups is 17, expected a whole number from 1 to 16"),
        ('dictionary_update = "svd"', "'svd', expected one of least-squares, ksvd"),
        ("card = 3", "card is 3, expected a table of texts"),
        ("refinements = -1", "refinements is -1"),
        (
            'hash = "tanh"\nrefinements = 1',
            "refinements is 1 with the hash tanh, expected 0",
        ),
        ('hash = "oak"', "hash is 'oak', expected one of tree, tanh, sine"),
        ('mirroring = "yes"', "mirroring is 'yes', expected one of auto, always, never"),
        ('directions = "up"', "directions is 'up', expected one of random, pca"),
        ("atoms = ", "cannot be read as TOML"),
    ],
)
def test_wrong_settings_are_refused_by_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(file, {})
    assert str(file) in str(caught.value)


def test_groups_and_dictionary_update_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('groups = 12\ndictionary_update = "ksvd"\n')
    config = load_config(file, {})
    assert (config.groups, config.dictionary_update) == (12, "ksvd")
    assert (FitConfig().groups, FitConfig().dictionary_update) == (None, "least-squares")


def test_recipe_of_the_paper_has_mirrored_copies_only_if_asked_for() -> None:
    assert FitConfig(recipe="best").recipe_mirroring == "auto"
    assert FitConfig(recipe="paper").recipe_mirroring == "never"
    assert FitConfig(recipe="paper", mirroring="always").recipe_mirroring == "always"


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "no.toml", {})


@pytest.mark.parametrize(
    ("n_descriptors", "depth"), [(1, 1), (64, 1), (128, 2), (60_000, 10), (10**7, 13)]
)
def test_automatic_depth_leaves_32_descriptors_a_leaf(n_descriptors: int, depth: int) -> None:
    assert FitConfig().depth_for(n_descriptors) == depth


def test_a_file_of_groups_is_found_from_the_file_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('given_groups = "groups.json"\n', "utf-8")
    assert load_config(path, {}).given_groups == str(tmp_path / "groups.json")
    assert load_config(path, {"given_groups": "mine.json"}).given_groups == "mine.json"


def test_the_folder_of_a_file_of_groups_is_not_recorded() -> None:
    assert FitConfig(given_groups="/home/me/groups.json").to_json()["given_groups"] == "groups.json"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": 3}, "groups is 3 beside given_groups"),
        ({"refinements": 1}, "refinements is 1 beside given_groups"),
        ({"dictionary_update": "ksvd"}, "expected 'least-squares' for given groups"),
        ({"group_search": "lucky"}, "expected one of exhaustive, greedy"),
        ({"given_groups": ""}, "given_groups is '', expected the name of a file"),
        ({"given_groups": 3}, "given_groups is 3, expected the name of a file"),
    ],
)
def test_settings_that_do_not_go_with_given_groups_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(None, {"given_groups": "groups.json", **settings})
