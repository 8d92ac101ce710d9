"""The commands of the README, and of the pages beside the code, pasted into a fresh clone.

From top to bottom, one page after the other; and their Python code.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import processes

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "service/README.md", "trainer/README.md", "docker/README.md")
README = "\n".join((ROOT / page).read_text("utf-8") for page in PAGES)
ADDRESS = "127.0.0.1:8000"
# The run that we are in.
NOT_AGAIN = "make test"
# Cheaper than what stands there; all else is pasted as it is.
CHEAPER = {
    "trainer fit photos": "trainer fit photos --samples 3000 --atoms 64 --iterations 2",
    "--duration 10": "--duration 0.2",
    "--ramp": "--ramp --rate 20 --duration 0.2 --max-p99 60000",
    "--port 8001": "--port 0",
}
# Until it is ready; then it is asked to stop, and has to end well.
SERVE = """
serve() {
  mkfifo log
  "$@" 2> log &
  while read -r line; do
    echo "$line"
    case "$line" in *"ready at"*) kill $! ;; esac
  done < log
  wait $!
  rm log
}
"""


def blocks(language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


FIRST, *REST = (line for block in blocks("sh") for line in block.splitlines())


def tracked_files() -> list[str]:
    """What a clone has, with the changes that are not committed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh clone in which `make` has installed; what is compiled is what was compiled here."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a clone, this is an unpacked archive")
    folder = tmp_path_factory.mktemp("leafcode")
    compiled = [
        str(path.relative_to(ROOT))
        for package in ("service", "trainer")
        for path in (ROOT / package).rglob("__pycache__/*")
    ]
    for name in [*tracked_files(), *compiled]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    install(folder / ".venv")
    return folder


def install(environment: Path) -> None:
    """Stand in for pip, which would take a minute: the packages of this interpreter."""
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    installed = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    (packages / "installed.pth").write_text("\n".join(sorted(installed)))
    for stamp in (".uv", ".core", ".all"):
        (environment / stamp).touch()


def clean_environment(**variables: str) -> dict[str, str]:
    """That of a user who has activated nothing."""
    path = os.pathsep.join(
        folder
        for folder in os.environ["PATH"].split(os.pathsep)
        if Path(folder) != Path(sys.executable).parent
    )
    kept = {name: value for name, value in processes.environment().items() if name != "PYTHONPATH"}
    return {**kept, "PATH": path, **variables}


@pytest.fixture(scope="module")
def served(clone: Path) -> Iterator[processes.Server]:
    """The README's first command: the embedded model, on a port that the system chose."""
    assert FIRST == "make serve"
    with processes.Server(
        command=FIRST.split(), cwd=clone, env=clean_environment(LEAFCODE_PORT="0")
    ) as running:
        yield running


@pytest.fixture(scope="module")
def printed(clone: Path, served: processes.Server) -> dict[str, str]:
    """What each of the other commands printed, all of them in one shell."""
    script = ["set -e -o pipefail", SERVE]
    pasted = [line for line in REST if line != NOT_AGAIN]
    for number, line in enumerate(pasted):
        for stands_there, cheaper in CHEAPER.items():
            line = line.replace(stands_there, cheaper)  # noqa: PLW2901
        line = line.replace(ADDRESS, _address(served)).replace(  # noqa: PLW2901
            "python -m service serve", "serve python -m service serve"
        )
        script += [f"echo '<{number}>'", line]
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=clone,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
    outputs = re.split(r"<\d+>\n", done.stdout)[1:]
    return dict(zip(pasted, outputs, strict=True))


def _address(server: processes.Server) -> str:
    return server.url.removeprefix("http://")


needs_curl = pytest.mark.skipif(not shutil.which("curl"), reason="needs curl, absent here")


@needs_curl
def test_every_shell_line_works_in_a_fresh_clone(printed: dict[str, str]) -> None:
    answers = [text for line, text in printed.items() if "curl" in line]
    assert answers
    assert all("caltech101" in text and "problem" not in text for text in answers)


@needs_curl
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -m service classify", "stop_sign.png  stop_sign"),
        ("python -m service explain", "residuals of contour-sift"),
        ("python -m trainer fit", "mean per-class accuracy"),
        ("python -m trainer evaluate models/photos/2", "tested on"),
        ("python -m trainer inspect models/photos/2", "photos"),
        ("python -m service serve", "ready at"),
        ("python -m service loadtest http://127.0.0.1:8000 --clients", "status 200"),
        ("python -m service loadtest http://127.0.0.1:8000 --ramp", "knee: "),
    ],
)
def test_a_command_prints_what_the_readme_says(
    printed: dict[str, str], command: str, words: str
) -> None:
    outputs = [text for line, text in printed.items() if line.startswith(command)]
    assert outputs
    assert all(words in text for text in outputs)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_code_runs(code: str, clone: Path, served: processes.Server) -> None:
    done = subprocess.run(
        [clone / ".venv" / "bin" / "python", "-c", code.replace(ADDRESS, _address(served))],
        cwd=clone,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "yin_yang" in done.stdout


@pytest.mark.parametrize("page", [*PAGES, "tests/README.md", "CHANGELOG.md", "RESULTS.md"])
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), link
        assert not heading or heading in _anchors(target.read_text("utf-8")), link


def _anchors(text: str) -> set[str]:
    """The headings of a page as a link names them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_pictures_of_the_readme_are_small() -> None:
    sizes = [path.stat().st_size for path in (ROOT / ".github" / "pictures").glob("*.png")]
    assert len(sizes) == 4
    assert max(sizes) <= 200_000


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
