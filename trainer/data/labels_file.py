"""Files that name images: CSV or JSON lines with a path and, in place of folders, a label each."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from trainer.data.dataset import Dataset, dataset_of
from trainer.data.image_files import find_images, printable
from trainer.data.urls import is_url
from trainer.errors import DataError

__all__ = ["read_labels", "read_paths"]

_EXPECTED = "expected the columns path and label"
# What spreadsheets write between columns, the usual one first.
_DELIMITERS = ",;\t"
_QUOTED_LENGTH = 80


@dataclass(frozen=True)
class _Line:
    """What one line says, and its number."""

    number: int
    path: str
    label: str


def read_labels(file: Path, root: Path, exclude: Sequence[str] = ()) -> Dataset:
    """The images that `file` names, with its labels; `root` is the folder they belong to.

    Paths are relative to the file or, where there is no such image, to `root`. Images that
    nobody finds stay, so that they are reported like other files that cannot be read.
    """
    if is_url(root):
        raise DataError(f"--labels beside the URL {root}, expected a folder of this machine")
    if not root.is_dir():
        raise DataError(f"{root} is not a folder, expected the folder of the images")
    lines = list(_read(file))
    if not lines:
        raise DataError(f"{file} names no image, {_EXPECTED} and a line for each image")
    places = _places(lines, file, root)
    if not any(map(_exists, places.values())):
        first = lines[0]
        raise DataError(
            f"{file} line {first.number}: there is no {printable(first.path)} in {file.parent} "
            f"nor in {root}, and none of the other images that the file names"
        )
    files: dict[str, list[Path]] = {}
    for line in _different(lines, file):
        files.setdefault(line.label, []).append(places[line.path])
    ordered = {label: sorted(paths, key=lambda path: path.parts) for label, paths in files.items()}
    named = {os.path.realpath(path) for path in places.values()}
    unlabelled = [p for p in find_images(root).images if os.path.realpath(p) not in named]
    return replace(dataset_of(root, ordered, exclude), unlabelled=tuple(unlabelled))


def read_paths(data: bytes, where: str) -> Iterator[str]:
    """The paths of a list: one a line, a column `path` of CSV, or members `path` of JSON lines.

    A list that names labels, too, is one. Errors name it as `where`.
    """
    text = _decoded(data)
    if text.lstrip().startswith("{"):
        rows = ((number, path) for number, path, _ in _json_rows(text, where))
    elif "path" in _header(text)[0]:
        rows = ((number, path) for number, path, _ in _csv_rows(text, where, ("path",)))
    else:
        lines = enumerate(text.split("\n"), 1)
        rows = ((number, line.removesuffix("\r")) for number, line in lines if line.strip())
    for number, path in rows:
        if not path:
            raise DataError(f"{where} line {number} has no path")
        if not _can_name_a_file(path):
            raise DataError(f"{where} line {number}: no file can be named {_quoted(path)}")
        yield path


def _quoted(path: str) -> str:
    """A path as text, cut where it is no path."""
    text = printable(path)
    return text if len(text) <= _QUOTED_LENGTH else f"{text[:_QUOTED_LENGTH]}…"


def _places(lines: Iterable[_Line], file: Path, root: Path) -> dict[str, Path]:
    """Where the image of each path is."""
    places: dict[str, Path] = {}
    for line in lines:
        candidates = (file.parent / line.path, root / line.path)
        places[line.path] = next((path for path in candidates if _exists(path)), candidates[0])
    return places


def _exists(path: Path) -> bool:
    # Path.exists raises errors for names that are too long.
    return os.path.exists(path)  # noqa: PTH110


def _different(lines: Iterable[_Line], file: Path) -> Iterator[_Line]:
    """The lines without repetitions; one image cannot have two labels."""
    known: dict[str, _Line] = {}
    for line in lines:
        first = known.setdefault(line.path, line)
        if first.label != line.label:
            raise DataError(
                f"{file} line {line.number}: {printable(line.path)} has the label {line.label}, "
                f"but line {first.number} gives it the label {first.label}"
            )
        if first is line:
            yield line


def _read(file: Path) -> Iterator[_Line]:
    try:
        text = _decoded(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from error
    is_json = text.lstrip().startswith("{")
    rows = _json_rows(text, file) if is_json else _csv_rows(text, file, ("path", "label"))
    for number, path, label in rows:
        if not path or not label:
            missing = "label" if path else "path"
            raise DataError(f"{file} line {number} has no {missing}, {_EXPECTED}")
        if not _can_name_a_file(path):
            raise DataError(f"{file} line {number}: no file can be named {printable(path)}")
        yield _Line(number, path, printable(label))


def _decoded(data: bytes) -> str:
    """Names that are not UTF-8 stay what they are in the file system."""
    return data.decode("utf-8-sig", "surrogateescape")


def _can_name_a_file(path: str) -> bool:
    try:
        return b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False


def _header(text: str) -> tuple[list[str], str]:
    """The names of the columns by the first line, and what is between them."""
    line = text.partition("\n")[0]
    delimiter = next((mark for mark in _DELIMITERS if mark in line), ",")
    names = next(csv.reader([line], delimiter=delimiter), [])
    return [name.strip().lower() for name in names], delimiter


def _csv_rows(
    text: str, file: Path | str, columns: Sequence[str]
) -> Iterator[tuple[int, str, str]]:
    """The number of each line, its path, and its label, empty if there is no such column."""
    names, delimiter = _header(text)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    try:
        next(reader, [])
        if not set(columns) <= set(names):
            found = f"the columns {', '.join(names)}" if names else "nothing"
            raise DataError(f"{file} line 1 has {printable(found)}, {_EXPECTED}")
        path, label = names.index("path"), names.index(columns[-1])
        for row in reader:
            if any(row):
                cells = [*row, *[""] * len(names)]
                yield reader.line_num, cells[path].strip(), cells[label].strip()
    except csv.Error as error:
        raise DataError(f"{file} line {reader.line_num} is no CSV: {error}") from error


def _json_rows(text: str, file: Path | str) -> Iterator[tuple[int, str, str]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{file} line {number} is no JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{file} line {number} is {type(row).__name__}, expected an object")
        yield number, _member(row, "path"), _member(row, "label")


def _member(row: dict[object, object], name: str) -> str:
    """A member as text; classes may be numbers."""
    value = row.get(name)
    return str(value).strip() if isinstance(value, str | int) else ""
