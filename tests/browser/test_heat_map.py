"""The heat map: true to the explanation, another one for each label, and as strong as wanted."""

import httpx
import numpy as np
import pytest
from playwright.sync_api import expect

from service.engine import STAGES
from tests.browser.visit import File, Visit
from tests.support.clients import web
from tests.support.processes import Server


@pytest.fixture
def explained(visit: Visit, yin_yang: File) -> Visit:
    """A visit with the heat map of the best label."""
    visit.pick(yin_yang)
    visit.until_done()
    return visit


def explain(server: Server, file: File, **parameters: str) -> httpx.Response:
    return web.post(f"{server.url}/v1/explain", content=file.data, params=parameters)


def test_the_map_is_red_where_the_image_speaks_for_the_label_and_blue_where_against(
    explained: Visit, embedded: Server, yin_yang: File
) -> None:
    cells = np.array(explain(embedded, yin_yang).json()["cells"])
    pixels = explained.heat().astype(int)
    for find, strong, weak in ((np.argmax, 0, 2), (np.argmin, 2, 0)):
        row, col = np.unravel_index(find(cells), cells.shape)
        y = int((row + 0.5) * pixels.shape[0] / cells.shape[0])
        x = int((col + 0.5) * pixels.shape[1] / cells.shape[1])
        assert pixels[y, x, strong] > pixels[y, x, weak] + 50


def test_another_label_has_another_map(explained: Visit) -> None:
    before, seen = explained.heat(), explained.seen()
    second = explained.labels()[1]
    explained.choose(".label >> nth=1", f"Heat map of {second}")
    assert np.abs(explained.heat().astype(int) - before).max() > 50
    assert np.abs(explained.seen().astype(int) - seen).max() > 20
    expect(explained.one("#legend")).to_contain_text(f"speak for {second}")
    explained.choose(".label >> nth=0", "Heat map of yin yang")
    np.testing.assert_array_equal(explained.heat(), before)


def test_why_not_the_second_shows_the_difference_of_two_labels(explained: Visit) -> None:
    before = explained.heat()
    second = explained.labels()[1]
    expect(explained.one("#why-not")).to_have_text(f"Why not {second}?")
    explained.choose("#why-not", f"Heat map of yin yang against {second}")
    assert np.abs(explained.heat().astype(int) - before).max() > 50
    expect(explained.one("#legend")).to_contain_text(f"yin yang rather than {second}")
    explained.screenshot("why_not")
    explained.choose("#why-not", "Heat map of yin yang")
    np.testing.assert_array_equal(explained.heat(), before)


def test_a_label_that_is_not_among_the_best_has_a_map_too(explained: Visit) -> None:
    explained.one("#other").select_option("accordion")
    explained.until('#heat[aria-label="Heat map of accordion"]')
    expect(explained.one("#why-not")).to_have_text("Why not accordion?")


def test_the_slider_makes_the_map_stronger_and_weaker(explained: Visit) -> None:
    slider = explained.one("#strength")
    slider.fill("100")
    strong = explained.seen().astype(int)
    slider.fill("0")
    none = explained.seen().astype(int)
    coloured = strong.max(axis=2) - strong.min(axis=2)
    assert coloured.max() > 100
    assert np.abs(strong - none).max() > 100
    # Without the map it is the image itself, which is black and white.
    assert (none.max(axis=2) - none.min(axis=2)).max() < 10


def test_the_score_adds_up_from_its_parts(explained: Visit) -> None:
    explained.one("#score summary").click()
    numbers = [
        float(text.replace("−", "-")) for text in explained.one("#score .number").all_inner_texts()
    ]
    score, *parts = numbers
    assert sum(parts) == pytest.approx(score, abs=0.01 * len(parts))


def test_the_times_of_all_stages_are_shown(explained: Visit) -> None:
    text = explained.one("#timing").inner_text()
    for stage in ("queue", *STAGES):
        assert stage in text
    expect(explained.one("#total")).to_contain_text("in the service")
