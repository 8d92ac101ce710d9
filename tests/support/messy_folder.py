"""A folder of images as people have them, with everything in it that is odd.

`python -m tests.support.messy_folder FOLDER` makes one to look at.
"""

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from service.engine.image_formats import readable_formats
from service.examples import shapes
from tests.support import pictures

__all__ = ["CLASSES", "HAS_HEIF", "make_messy_folder"]

CLASSES = ("кресты", "🔵 discs", "squares", os.fsdecode(b"caf\xe9"))
"""The folders of four classes; the last one is not UTF-8."""

HAS_HEIF = importlib.util.find_spec("pillow_heif") is not None

_PER_CLASS = 6


def make_messy_folder(root: Path) -> Path:
    """Classes of drawings in `root`, one of a single image, and what makes a folder messy.

    `root/../labels.csv` has labels for two of the classes.
    """
    rng = np.random.default_rng(0)
    for folder, kind in zip(CLASSES, shapes.CLASSES, strict=True):
        (root / folder).mkdir(parents=True)
        for number in range(_PER_CLASS):
            shapes.draw(kind, rng).save(root / folder / f"{number}.png")
    crosses, discs, squares, stripes = (root / folder for folder in CLASSES)
    _nest(crosses)
    _duplicate(crosses, discs, squares)
    _break(discs)
    _link(root, squares)
    (stripes / "telephone 📱.jpg").write_bytes(pictures.telephone_jpeg())
    _write_heic(stripes / "IMG_0001.HEIC", shapes.draw("stripes", rng))
    Image.new("L", (8, 8), 99).save(stripes / "dot.png")
    shapes.draw("stripes", rng).resize((50, 40)).save(stripes / "thumbnail.png")
    (root / "lonely").mkdir()
    shapes.draw("disc", rng).save(root / "lonely" / "only one.png")
    (root / "in no class.png").write_bytes((squares / "0.png").read_bytes())
    (squares / "notes.txt").write_text("no image", "utf-8")
    (squares / ".hidden.png").write_bytes(b"hidden")
    _write_labels(root)
    return root


def _nest(folder: Path) -> None:
    deep = folder / "2020" / "май"
    deep.mkdir(parents=True)
    (folder / "1.png").rename(deep / "1.png")


def _duplicate(crosses: Path, discs: Path, squares: Path) -> None:
    """A copy in the same class, one in another class, and a crop by two pixels."""
    (crosses / "copy of 0.png").write_bytes((crosses / "0.png").read_bytes())
    (discs / "square.png").write_bytes((squares / "2.png").read_bytes())
    photograph = pictures.noise(320, 240, seed=5)
    photograph.save(discs / "burst 1.png")
    photograph.crop((2, 2, 320, 240)).save(discs / "burst 2.png")


def _break(folder: Path) -> None:
    whole = pictures.jpeg(pictures.noise(200, 150))
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "text.png").write_text("no image", "utf-8")
    (folder / "empty.gif").touch()


def _link(root: Path, folder: Path) -> None:
    elsewhere = root.parent / "elsewhere"
    elsewhere.mkdir()
    shapes.draw("square", np.random.default_rng(9)).save(elsewhere / "linked.png")
    (folder / "links").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(folder)
    (folder / "gone.png").symlink_to(root / "nowhere.png")


def _write_heic(path: Path, picture: Image.Image) -> None:
    if HAS_HEIF and readable_formats():
        picture.convert("RGB").save(path, "HEIF")
    else:
        path.write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))


def _write_labels(root: Path) -> None:
    lines = [
        f"{root.name}/{folder}/{number}.png,{label}\n"
        for folder, label in ((CLASSES[1], "disc"), (CLASSES[2], "квадрат"))
        for number in range(_PER_CLASS)
    ]
    (root.parent / "labels.csv").write_text("path,label\n" + "".join(lines), "utf-8")


if __name__ == "__main__":
    make_messy_folder(Path(sys.argv[1]))
