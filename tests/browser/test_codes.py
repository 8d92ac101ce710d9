"""The code view: the leaf, the atoms and the values of the patch that somebody points at."""

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.visit import File, Visit
from tests.support.clients import web
from tests.support.processes import Server


@pytest.fixture(scope="module")
def codes(embedded: Server, yin_yang: File) -> dict[str, Any]:
    """The codes of the image as the service tells them."""
    headers = {"Content-Type": "image/png"}
    answer = web.post(f"{embedded.url}/v1/codes", content=yin_yang.data, headers=headers)
    told: dict[str, Any] = answer.json()
    return told


@pytest.fixture
def pointing(visit: Visit, yin_yang: File) -> Visit:
    """A visit to the codes of the image."""
    visit.pick(yin_yang)
    visit.until_done()
    visit.one("#show-codes").click()
    visit.until("#patch")
    return visit


def busiest(codes: dict[str, Any]) -> tuple[int, int]:
    """Column and row of the patch with the largest values, a few steps from all edges."""
    rows, cols = codes["grid"]["rows"], codes["grid"]["cols"]
    sums = np.abs(codes["values"]).sum(axis=1).reshape(rows, cols)[:-10, 1:-3]
    row, col = np.unravel_index(np.argmax(sums), sums.shape)
    assert sums[row, col] > 0.5
    return int(col) + 1, int(row)


def assert_code(visit: Visit, codes: dict[str, Any], place: int) -> None:
    """The page tells what the service told about a place of the grid."""
    expect(visit.one("#leaf")).to_contain_text(f"leaf {codes['leaf_ids'][place]}")
    captions = visit.one(".atom figcaption").all_inner_texts()
    pairs = zip(codes["values"][place], codes["atom_ids"][place], strict=True)
    assert captions[:-1] == [f"{value:.3f} atom {atom}" for value, atom in pairs]
    assert len(captions) == 6


def point_at(visit: Visit, grid: dict[str, int], col: int, row: int) -> None:
    """Move the mouse to the middle of a patch."""
    box = visit.one("#stage").bounding_box()
    assert box is not None
    x = (grid["left"] + col * grid["step"] + grid["side"] / 2) / grid["width"]
    y = (grid["top"] + row * grid["step"] + grid["side"] / 2) / grid["height"]
    visit.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])


def test_the_patch_under_the_mouse_has_its_leaf_atoms_and_values(
    pointing: Visit, codes: dict[str, Any]
) -> None:
    grid = codes["grid"]
    for col, row in ((0, 0), busiest(codes), (grid["cols"] - 1, grid["rows"] - 1)):
        point_at(pointing, grid, col, row)
        assert_code(pointing, codes, row * grid["cols"] + col)


def test_the_arrow_keys_move_the_patch(pointing: Visit, codes: dict[str, Any]) -> None:
    col, row = busiest(codes)
    point_at(pointing, codes["grid"], col, row)
    pointing.screenshot("codes")
    pointing.one("#stage").focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft", "Shift+ArrowDown"):
        pointing.page.keyboard.press(key)
    assert_code(pointing, codes, (row + 9) * codes["grid"]["cols"] + col + 1)
    expect(pointing.one("#announcement")).to_contain_text(f"Column {col + 1}, row {row + 9}: leaf")


def test_an_atom_is_drawn_and_not_empty(pointing: Visit, codes: dict[str, Any]) -> None:
    point_at(pointing, codes["grid"], *busiest(codes))
    lines = pointing.one(".glyph-positive").first.get_attribute("d") or ""
    assert lines.count("M") >= 1
    assert pointing.one(".glyph").count() == 6


def test_the_way_back_to_the_heat_map_is_there(pointing: Visit) -> None:
    expect(pointing.one("#heat")).to_be_hidden()
    pointing.one("#show-why").click()
    expect(pointing.one("#heat")).to_be_visible()
    expect(pointing.one("#patch")).to_be_hidden()
    assert pointing.one("#stage").get_attribute("tabindex") is None
