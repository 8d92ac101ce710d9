"""docker/README.md names every setting, error and alert there is, and none that there is not."""

import re

import pytest

from service.cli import main
from service.http.problems import REASONS, examples_of
from service.settings import Settings
from tests.support import promql
from tests.support.processes import ROOT

FILE = ROOT / "docker" / "README.md"
PAGE = FILE.read_text("utf-8")
STATUSES = {slug: str(status) for status in range(400, 600) for slug in examples_of(status)}


def section(title: str) -> str:
    """The text below a heading, up to the next one of its level or above."""
    level = title.partition(" ")[0]
    _, _, rest = PAGE.partition(f"\n{title}\n")
    assert rest, f"no heading {title}"
    return re.split(rf"^#{{2,{len(level)}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]


def table(title: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[2:]]


def test_the_settings_are_those_that_the_command_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["settings"]) == 0
    assert capsys.readouterr().out.strip() in section("## All settings"), (
        "paste what python -m service settings prints"
    )
    assert len(table("## All settings")) == len(Settings.model_fields)


def test_every_error_has_its_status_and_what_to_do() -> None:
    rows = table("## Every error and what to do")
    assert sorted(reason.strip("`") for reason, _, _ in rows) == sorted(REASONS)
    for reason, status, act in rows:
        assert status == STATUSES.get(reason.strip("`"), "-"), reason
        assert act


def test_every_alert_has_what_to_do() -> None:
    rows = table("## An alert has come")
    assert [name for name, _ in rows] == [alert["alert"] for alert in promql.alerts()]


def test_every_variable_that_it_names_is_a_setting() -> None:
    known = {f"LEAFCODE_{name.upper()}" for name in Settings.model_fields}
    named = set(re.findall(r"LEAFCODE_[A-Z_]*[A-Z]", PAGE))
    assert named - known == set()
    endings = set(re.findall(r"`(_[A-Z_]+)`", PAGE))
    assert [ending for ending in endings if not any(name.endswith(ending) for name in known)] == []


def test_links_lead_somewhere() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, anchor = target.partition("#")
        assert not path or (FILE.parent / path).exists(), target
        assert not anchor or anchor in anchors, target
    for path in re.findall(r"`((?:prometheus|kubernetes|grafana)/[\w./-]+)`", PAGE):
        assert (FILE.parent / path).exists(), path


def test_the_readme_leads_to_it() -> None:
    assert "(docker/README.md)" in (ROOT / "README.md").read_text("utf-8")
