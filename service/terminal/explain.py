"""`python -m service explain`: where in an image the score of a label comes from."""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from service.errors import SettingsError
from service.settings import Settings, load_settings
from service.terminal.images import STDIN
from service.terminal.model import add_model_options, load_engine

if TYPE_CHECKING:
    from service.engine import Engine, Explanation

__all__ = ["add_explain"]

_DESCRIPTION = """\
Tell what the score of a label is made of, and draw where in the image it comes from: red speaks
for the label, blue against it.
"""


def add_explain(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command `explain`."""
    parser = commands.add_parser(
        "explain", help="show where a label comes from", description=_DESCRIPTION
    )
    parser.add_argument("image", metavar="IMAGE", help="image file, or - for stdin")
    parser.add_argument("--out", metavar="PNG", type=Path, help="picture to draw")
    parser.add_argument("--label", help="label to explain (default: the best one)")
    parser.add_argument("--against", help="label to compare it with")
    add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_explain)


def _explain(options: argparse.Namespace) -> int:
    settings = load_settings(models=options.models)
    if options.out is not None and not options.out.parent.is_dir():
        raise SettingsError(f"{options.out.parent} is no folder, expected one to draw into")
    engine = load_engine(options, settings)
    try:
        data = _read(options.image, settings)
        found = engine.explain(data, options.label, options.against, settings.image_limits)
        picture = None if options.out is None else _draw(engine, data, found, settings)
    except OSError as error:
        print(f"{options.image}: cannot be read: {error.strerror}", file=sys.stderr)
        return 1
    code = 0
    try:
        if picture is not None:
            _write(options.out, picture)
    except OSError as error:
        print(f"{options.out}: cannot be written: {error.strerror}", file=sys.stderr)
        code = 1
    _tell(options, engine, found)
    return code


def _read(image: str, settings: Settings) -> bytes:
    from service.terminal.labeller import read_within  # noqa: PLC0415

    if image == STDIN:
        return read_within(sys.stdin.buffer, settings.image_limits)
    with Path(image).open("rb") as file:
        return read_within(file, settings.image_limits)


def _draw(engine: "Engine", data: bytes, found: "Explanation", settings: Settings) -> bytes:
    from service.engine.image import decode_rgb  # noqa: PLC0415
    from service.engine.overlay import draw_overlay  # noqa: PLC0415

    pixels = decode_rgb(data, engine.config.max_side, settings.image_limits)
    return draw_overlay(pixels, found.cells)


def _tell(options: argparse.Namespace, engine: "Engine", found: "Explanation") -> None:
    from service.formats.explanations import write  # noqa: PLC0415

    if options.json:
        document = {"image": options.image, **json.loads(write(engine.manifest, found))}
        print(json.dumps(document))
        return
    against = "" if found.against is None else f" against {found.against}"
    print(f"{options.image}: {found.label}{against}, score {found.score:.3f}")
    for block in found.blocks:
        print(f"  {block.contribution:+.3f}  {block.kind} of {block.descriptor}")
    print(f"  {found.bias:+.3f}  bias")


def _write(path: Path, picture: bytes) -> None:
    """All of the picture, or nothing of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(picture)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
    print(f"{path}: red is for the label, blue against it", file=sys.stderr)
