"""One visit to the page: what a person does there, and what that person can see."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from playwright.sync_api import (
    ConsoleMessage,
    Error,
    FilePayload,
    Locator,
    Page,
    Request,
    expect,
)

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
DEADLINE_MS = 60_000

# What a drop or a paste carries, made in the page: Playwright has files for inputs only.
_TRANSFER = """files => {
  const transfer = new DataTransfer();
  for (const {name, type, data} of files) {
    const bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], name, {type}));
  }
  return transfer;
}"""
_PASTE = """transfer => document.activeElement.dispatchEvent(
  new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true, cancelable: true}))"""


@dataclass(frozen=True)
class File:
    """A file that somebody has at hand."""

    name: str
    data: bytes
    kind: str = "image/png"


@dataclass
class Visit:
    """A page, all that its browser complained about, and all that it asked for."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def open(self) -> None:
        self.page.set_default_timeout(DEADLINE_MS)
        self.page.on("console", self._hear)
        self.page.on("pageerror", self._note)
        self.page.on("request", self._see)
        self.page.goto(self.url)

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _note(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _see(self, request: Request) -> None:
        self.requests.append(request.url)

    def one(self, selector: str) -> Locator:
        return self.page.locator(selector)

    def until(self, selector: str) -> None:
        """Wait until the page shows it."""
        expect(self.one(selector)).to_be_visible(timeout=DEADLINE_MS)

    def until_loaded(self) -> None:
        """Wait until the model's card is there."""
        self.until("dl.card")

    def until_done(self, state: Literal["done", "failed"] = "done") -> None:
        self.until(f"#result[data-state={state}]")

    def pick(self, *files: File) -> None:
        with self.page.expect_file_chooser() as chooser:
            self.one("#pick").click()
        chooser.value.set_files(
            [FilePayload(name=file.name, mimeType=file.kind, buffer=file.data) for file in files]
        )

    def drop(self, *files: File) -> None:
        transfer = self._transfer(files)
        self.page.dispatch_event("#drop", "dragover", {"dataTransfer": transfer})
        self.page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})

    def paste(self, *files: File) -> None:
        self.page.evaluate(_PASTE, self._transfer(files))

    def _transfer(self, files: Sequence[File]) -> object:
        described = [
            {"name": file.name, "type": file.kind, "data": base64.b64encode(file.data).decode()}
            for file in files
        ]
        return self.page.evaluate_handle(_TRANSFER, described)

    def show_example(self, name: str) -> None:
        self.one(f"[data-example={name}]").click()
        self.until_done()
        expect(self.one("#image-name")).to_have_text(f"{name}.png")

    def labels(self) -> list[str]:
        names: list[str] = self.one(".label-name").all_inner_texts()
        return names

    def map_of(self) -> str:
        """Whose heat map is shown, by the name that a screen reader tells."""
        return self.one("#heat").get_attribute("aria-label") or ""

    def choose(self, selector: str, map_of: str) -> None:
        """Press something and wait for the map that it asks for."""
        self.one(selector).click()
        self.until(f'#heat[aria-label="{map_of}"]')

    def heat(self) -> npt.NDArray[np.uint8]:
        """The pixels of the heat map as they are drawn, red, green, blue and alpha."""
        data = str(self.page.evaluate("document.getElementById('heat').toDataURL()"))
        return _pixels(base64.b64decode(data.partition(",")[2]), "RGBA")

    def seen(self) -> npt.NDArray[np.uint8]:
        """The pixels of the image with what lies over it, as somebody sees them."""
        return _pixels(self.one("#stage").screenshot(), "RGB")

    def screenshot(self, name: str) -> None:
        """Write what the whole page looks like, for a person."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def _pixels(data: bytes, mode: str) -> npt.NDArray[np.uint8]:
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))
