"""The README's commands, run as they stand there."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import drawings, processes

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
ADDRESS = "http://127.0.0.1:8000"
# Started by fixtures here, on ports that the system chooses, or the run that we are in.
ELSEWHERE = ("make serve", "make test", "python -m service serve")


def blocks(language: str) -> list[str]:
    """The README's code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[str]:
    """The README's command lines that use a program, without those run elsewhere."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if program in line and not line.startswith(ELSEWHERE)]


@pytest.fixture(scope="module")
def embedded_server() -> Iterator[processes.Server]:
    with processes.Server() as running:
        yield running


def _run(line: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", line],
        cwd=folder,
        env=processes.environment(PATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, absent here")
@pytest.mark.parametrize("line", commands("curl"))
def test_curl_commands_are_answered(line: str, embedded_server: processes.Server) -> None:
    answer = _run(line.replace(ADDRESS, embedded_server.url), ROOT)
    assert "caltech101" in answer
    assert "problem" not in answer


@pytest.mark.parametrize("line", commands("service classify"))
def test_classify_commands_print_labels(line: str) -> None:
    assert "%  stop_sign" in _run(line, ROOT)


@pytest.mark.parametrize("line", commands("service loadtest"))
def test_loadtest_commands_get_answers(line: str, embedded_server: processes.Server) -> None:
    report = _run(line.replace(ADDRESS, embedded_server.url), ROOT)
    assert report.splitlines()[1].split()[0] == "200"


def test_training_commands_work_one_after_the_other(tmp_path: Path) -> None:
    drawings.write_dataset(tmp_path / "photos")
    small = " --samples 3000 --atoms 64 --iterations 2"
    for line in commands("trainer"):
        _run(line + small if "fit" in line else line, tmp_path)
    assert (tmp_path / "models" / "photos" / "2" / "manifest.json").exists()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_code_runs(code: str, embedded_server: processes.Server) -> None:
    address = embedded_server.url.removeprefix("http://")
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS.removeprefix("http://"), address)],
        cwd=ROOT,
        env=processes.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "yin_yang" in done.stdout


def test_every_module_that_the_readme_names_exists() -> None:
    named = re.findall(r"`((?:service|trainer)/[\w/.]+\.\w+)`", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    "name",
    [
        "Algorithm 1, SOMP",
        "Algorithm 2",
        "given groups",
        "l2 costs",
        "K-flats",
        "modified OMP",
        "learned groups",
        "least-squares update",
        "K-SVD",
        "unused atoms",
        "unused groups",
        "2-means tree",
        "farthest insertion",
        "hash s(h(Hx + b))",
        "glued buckets",
        "look-up table",
        "online learning",
        "OMP, the baseline",
        "pyramidal pooling",
        "sift grid",
        "classification",
    ],
)
def test_every_algorithm_of_the_paper_has_a_row_that_names_its_module(name: str) -> None:
    table = README[README.index("| paper | here |") :].split("\n\n")[0]
    rows = [row for row in table.splitlines() if name in row.split("|")[1]]
    assert rows
    assert all(re.search(r"`(?:service|trainer)/[\w/]+\.py`", row) for row in rows)
