"""A folder of images to train on, drawn by rule: four classes that a small model tells apart.

`python -m service.examples.shapes FOLDER` is for those who have no photographs at hand.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

__all__ = ["CLASSES", "draw", "main", "write_dataset"]

CLASSES = ("cross", "disc", "square", "stripes")


def draw(kind: str, rng: np.random.Generator) -> Image.Image:
    """One image of a class, its place, size and noise at random."""
    width, height = (int(side) for side in rng.integers(70, 100, 2))
    picture = Image.new("L", (width, height), int(rng.integers(170, 256)))
    pen = ImageDraw.Draw(picture)
    x, y = (float(v) for v in rng.uniform(0.4, 0.6, 2) * (width, height))
    r = float(rng.uniform(0.25, 0.35)) * min(width, height)
    ink = int(rng.integers(0, 90))
    if kind == "disc":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=ink)
    elif kind == "square":
        pen.rectangle((x - r, y - r, x + r, y + r), fill=ink)
    elif kind == "cross":
        pen.line((x - r, y - r, x + r, y + r), fill=ink, width=6)
        pen.line((x - r, y + r, x + r, y - r), fill=ink, width=6)
    else:
        for line in range(4, height, 12):
            pen.line((0, line, width, line), fill=ink, width=4)
    noisy = np.asarray(picture, np.float64) + rng.normal(0, 6, (height, width))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def write_dataset(root: Path, per_class: int = 12, seed: int = 0) -> Path:
    """`root/<class>/<number>.png`, the same files for the same seed."""
    rng = np.random.default_rng(seed)
    for kind in CLASSES:
        (root / kind).mkdir(parents=True)
        for number in range(per_class):
            draw(kind, rng).save(root / kind / f"{number:03}.png")
    return root


def main() -> None:
    """Draw a folder of 20 images a class, unless it is there."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m service.examples.shapes FOLDER")
    folder = Path(sys.argv[1])
    if folder.exists():
        sys.exit(f"{folder} exists, expected a new folder")
    write_dataset(folder, per_class=20)


if __name__ == "__main__":
    main()
