"""Makes the pictures of the README: `make pictures`.

All of them show drawings and shapes of our own. They are reduced to 256 colours, so that each
stays far below 200 KB.
"""

import html
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from service.engine import Engine
from service.engine.image import decode_rgb
from service.engine.overlay import draw_overlay
from tests.browser.visit import File, Visit
from tests.support.processes import ROOT, Server

PICTURES = ROOT / ".github" / "pictures"
EXAMPLES = ROOT / "service" / "examples"
MODEL = ROOT / "service" / "models" / "caltech101" / "1"

_TERMINAL = """<!doctype html><body style="margin:0;background:#101814">
<pre style="margin:0;padding:20px;width:max-content;color:#d7e4dc;font:14px/1.45 monospace">{}</pre>
"""
_CODES_HEIGHT = 640
_COMMANDS = (
    "python -m trainer fit photos --out models/photos --train-per-class 8 --split-seed 0",
    "python -m trainer evaluate models/photos/1 photos --split-seed 0",
)


def main() -> None:
    """Write every picture anew."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    _keep("heat_map", _heat_maps())
    with _chromium() as browser, Server() as server:
        visit = Visit(browser.new_page(viewport={"width": 1200, "height": 860}), server.url)
        visit.open()
        visit.until_loaded()
        files = [File(f"{name}.png", _drawing(name)) for name in ("stop_sign", "yin_yang")]
        visit.pick(*files)
        visit.one(".thumbnail >> nth=1").click()
        visit.until_done()
        _keep("page", _opened(visit.page.screenshot()))
        visit.one("#show-codes").click()
        visit.until("#patch")
        box = visit.one("#stage").bounding_box()
        assert box is not None
        visit.page.mouse.move(box["x"] + box["width"] * 0.56, box["y"] + box["height"] * 0.27)
        shown = _opened(visit.one("#result").screenshot())
        _keep("atoms", shown.crop((0, 0, shown.width, min(shown.height, _CODES_HEIGHT))))
        _keep("training", _training_report(browser))


def _drawing(name: str) -> bytes:
    return (EXAMPLES / f"{name}.png").read_bytes()


def _opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data)).convert("RGB")


@contextmanager
def _chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        yield browser
        browser.close()


def _heat_maps() -> Image.Image:
    """Each drawing beside the map of its label."""
    engine, tiles = Engine.load(MODEL), []
    for name in ("yin_yang", "stop_sign"):
        data = _drawing(name)
        pixels = decode_rgb(data, engine.config.max_side)
        tiles += [
            Image.fromarray(pixels),
            _opened(draw_overlay(pixels, engine.explain(data).cells)),
        ]
    sheet = Image.new(
        "RGB", (sum(tile.width + 10 for tile in tiles) - 10, tiles[0].height), "white"
    )
    for number, tile in enumerate(tiles):
        sheet.paste(tile, (number * (tile.width + 10), 0))
    return sheet


def _training_report(browser: Browser) -> Image.Image:
    """What training prints, as a terminal shows it."""
    with tempfile.TemporaryDirectory() as folder:
        _run("python -m service.examples.shapes photos", Path(folder))
        text = "\n\n".join(f"$ {command}\n{_run(command, Path(folder))}" for command in _COMMANDS)
    page = browser.new_page(viewport={"width": 1000, "height": 200})
    page.set_content(_TERMINAL.format(html.escape(text)))
    return _opened(page.locator("pre").screenshot())


def _run(command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command.split()[1:]],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.stdout.strip()


def _keep(name: str, picture: Image.Image) -> None:
    path = PICTURES / f"{name}.png"
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} KB")  # noqa: T201


if __name__ == "__main__":
    main()
