"""Settings models as options: help, what the command line gave, and mistakes in one sentence."""

import argparse
from typing import Literal

import pytest
from pydantic import Field

from trainer.cli import main
from trainer.errors import ConfigError
from trainer.settings import Settings


class Example(Settings):
    """One field of each kind."""

    n_atoms: int = Field(5, ge=1, le=9, description="how many")
    share: float = Field(0.5, ge=0, description="how much")
    limit: float | None = Field(None, gt=0, description="how far [no limit]")
    kind: Literal["tree", "sine"] = Field("tree", description="which")
    exclude: tuple[str, ...] = Field((), strict=False, title="CLASS", description="not these")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="example")
    Example.add_options(parser)
    return parser


def test_help_has_description_default_choices_and_metavar() -> None:
    lines = [line.split() for line in _parser().format_help().splitlines()]
    shown = [
        "--n-atoms N how many [5]",
        "--share NUMBER how much [0.5]",
        "--limit NUMBER how far [no limit]",
        "--kind {tree,sine} which [tree]",
        "--exclude CLASS not these",
    ]
    assert all(option.split() in lines for option in shown)


def test_only_what_was_given_is_given() -> None:
    assert Example.given(_parser().parse_args([])) == {}
    options = _parser().parse_args(["--n-atoms", "3", "--limit", "2"])
    assert Example.of(Example.given(options)) == Example(n_atoms=3, limit=2.0)


@pytest.mark.parametrize("name", ["a,b", "true", "none", "[1]", '"', "3"])
def test_any_text_may_be_repeated(name: str) -> None:
    options = _parser().parse_args(["--exclude", name, "--exclude", "other"])
    assert Example.of(Example.given(options)).exclude == (name, "other")


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"n_atoms": 0}, "n_atoms is 0, expected a whole number from 1 to 9"),
        ({"n_atoms": 2.0}, "n_atoms is 2.0, expected a whole number from 1 to 9"),
        ({"share": -1}, "share is -1, expected a number of at least 0"),
        ({"limit": 0}, "limit is 0, expected a number above 0"),
        ({"kind": "oak"}, "kind is 'oak', expected one of tree, sine"),
        ({"exclude": "cat"}, "exclude is 'cat', expected a list of texts"),
        (
            {"z": 1, "y": 2, "n_atoms": 0},
            "unknown settings y, z, expected exclude, kind, limit, n_atoms, share",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_a_mistake_is_one_sentence(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Example.of(values)
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (["fit", "images", "--out", "m/n", "--atoms", "0"], "atoms is 0, expected a whole number"),
        (["reproduce", "patches", "--data", ".", "--seed", "-1"], "seed is -1, expected a whole"),
    ],
    ids=["fit", "reproduce"],
)
def test_a_setting_out_of_range_ends_a_command_with_2(
    capsys: pytest.CaptureFixture[str], command: list[str], sentence: str
) -> None:
    assert main(command) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"error: {sentence}")
    assert printed.err.count("\n") == 1
    assert not printed.out


@pytest.mark.parametrize(
    "options", [["--hash", "oak"], ["--atoms", "many"], ["--pyramid", "1"]], ids=lambda o: o[0]
)
def test_an_option_that_cannot_be_read_ends_a_command_with_2(
    capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["fit", "images", "--out", "m/n", *options])
    assert exit_.value.code == 2
    assert options[0] in capsys.readouterr().err.splitlines()[-1]
