"""Which cells the command line chooses."""

import pytest

from trainer.errors import ConfigError
from trainer.reproduce.cells import DEFAULT_CELLS, Cell, Selection, chosen_cells, whole_numbers


def test_a_bare_command_has_the_cells_that_results_must_hold() -> None:
    names = [cell.file_name for cell in chosen_cells(Selection())]
    assert names == [
        "tree-fast-sift-m5-k1024-own",
        "tree-fast-sift-m5-k2048-own",
        "tree-fast-sift-m5-k4096-own",
        "tree-fast-sift-m5-k8192-foreign",
        "tree-fast-sift-m10-k1024-foreign",
        "tree-lazebnik-sift-m5-k1024-foreign",
        "tree-lazebnik-sift-m5-k2048-foreign",
        "omp-lazebnik-sift-m5-k1024-foreign",
    ]


def test_a_dictionary_alone_is_that_of_all_default_cells() -> None:
    cells = chosen_cells(Selection(dictionary="own"))
    assert len(cells) == len(DEFAULT_CELLS)
    assert {cell.dictionary for cell in cells} == {"own"}


def test_lists_are_combined() -> None:
    chosen = Selection(atoms="64,128", nonzeros="2", dictionary="own,foreign")
    assert chosen_cells(chosen) == (
        Cell("tree", "fast-sift", 2, 64, "own"),
        Cell("tree", "fast-sift", 2, 64, "foreign"),
        Cell("tree", "fast-sift", 2, 128, "own"),
        Cell("tree", "fast-sift", 2, 128, "foreign"),
    )


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("7", (7,)), ("0-3", (0, 1, 2, 3)), ("4, 1-2,4", (4, 1, 2)), ("5-5", (5,))],
)
def test_lists_of_numbers_may_have_ranges(text: str, numbers: tuple[int, ...]) -> None:
    assert whole_numbers("splits", text) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,,2", "-1", "1-", "1.5", "9-0"])
def test_what_is_no_list_of_numbers_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=f"splits is '{text}', expected"):
        whole_numbers("splits", text)


def test_an_unknown_coder_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="coder is 'tree,lasso', expected a list of tree, omp"):
        chosen_cells(Selection(coder="tree,lasso"))


def test_a_recipe_beyond_the_paper_s_has_own_trees() -> None:
    with pytest.raises(ConfigError, match=r"recipe best with .* foreign, expected the tree"):
        chosen_cells(Selection(recipe="best", dictionary="foreign"))
