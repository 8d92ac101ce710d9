"""Draw the example images: things that the embedded model knows, from a few shapes each.

They are ours, so that the repository ships no photographs of others.
"""

import math
from pathlib import Path

from PIL import Image, ImageDraw

__all__ = ["draw_stop_sign", "draw_yin_yang", "main"]

# Drawn four times larger, then shrunk: smooth edges without a drawing library.
_OVERSAMPLING = 4
_SIDE = 240 * _OVERSAMPLING

_WHITE, _BLACK = (255, 255, 255), (16, 16, 16)


def draw_yin_yang() -> Image.Image:
    """The symbol, black on white."""
    picture = Image.new("RGB", (_SIDE, _SIDE), _WHITE)
    draw = ImageDraw.Draw(picture)
    centre, radius = _SIDE / 2, _SIDE * 0.46
    half = radius / 2
    _disc(draw, centre, centre, radius, _BLACK)
    _disc(draw, centre, centre, radius * 0.97, _WHITE)
    draw.pieslice(_box(centre, centre, radius * 0.97), 90, 270, fill=_BLACK)
    _disc(draw, centre, centre - half * 0.97, half * 0.97, _BLACK)
    _disc(draw, centre, centre + half * 0.97, half * 0.97, _WHITE)
    _disc(draw, centre, centre - half, radius * 0.14, _WHITE)
    _disc(draw, centre, centre + half, radius * 0.14, _BLACK)
    return _shrunk(picture)


def draw_stop_sign() -> Image.Image:
    """A red octagon with a white border and letters, on a post, before a pale sky."""
    picture = Image.new("RGB", (_SIDE, _SIDE), (214, 226, 236))
    draw = ImageDraw.Draw(picture)
    centre = _SIDE / 2
    draw.rectangle((centre * 0.95, centre, centre * 1.05, _SIDE), fill=(120, 120, 120))
    for share, colour in ((0.44, (90, 10, 10)), (0.43, _WHITE), (0.395, (190, 22, 28))):
        draw.polygon(_octagon(centre, centre * 0.94, _SIDE * share), fill=colour)
    letters = _letters("STOP", round(_SIDE * 0.62))
    place = (round(centre - letters.width / 2), round(centre * 0.94 - letters.height / 2))
    picture.paste(_WHITE, place, letters)
    return _shrunk(picture)


def _letters(text: str, width: int) -> Image.Image:
    """A mask of `text`, from Pillow's built-in bitmap font, enlarged to `width`."""
    probe = ImageDraw.Draw(Image.new("L", (1, 1)))
    left, top, right, bottom = probe.textbbox((0, 0), text)
    mask = Image.new("L", (math.ceil(right - left), math.ceil(bottom - top)))
    ImageDraw.Draw(mask).text((-left, -top), text, fill=255)
    height = round(width * 0.42)
    return mask.resize((width, height), Image.Resampling.BICUBIC).point(lambda v: 255 * (v > 110))


def _octagon(x: float, y: float, radius: float) -> list[tuple[float, float]]:
    angles = [math.pi / 8 + i * math.pi / 4 for i in range(8)]
    return [(x + radius * math.cos(a), y + radius * math.sin(a)) for a in angles]


def _box(x: float, y: float, radius: float) -> tuple[float, float, float, float]:
    return x - radius, y - radius, x + radius, y + radius


def _disc(
    draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: tuple[int, int, int]
) -> None:
    draw.ellipse(_box(x, y, radius), fill=colour)


def _shrunk(picture: Image.Image) -> Image.Image:
    side = _SIDE // _OVERSAMPLING
    return picture.resize((side, side), Image.Resampling.LANCZOS)


def main() -> None:
    """Write the examples beside this file."""
    folder = Path(__file__).parent
    draw_yin_yang().save(folder / "yin_yang.png", optimize=True)
    draw_stop_sign().save(folder / "stop_sign.png", optimize=True)


if __name__ == "__main__":
    main()
