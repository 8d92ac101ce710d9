"""Images come in by every way there is, and each gets its label and its heat map."""

from io import BytesIO

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import OpenVisit
from tests.browser.visit import File, Visit
from tests.support import pictures


def assert_explained(visit: Visit, label: str) -> None:
    visit.until_done()
    assert visit.labels()[0] == label
    assert visit.map_of() == f"Heat map of {label}"
    assert visit.heat()[..., 3].max() > 200


def test_a_picked_image_has_a_label_and_a_heat_map(visit: Visit, yin_yang: File) -> None:
    visit.screenshot("start")
    visit.pick(yin_yang)
    assert_explained(visit, "yin yang")
    expect(visit.one("#image-name")).to_have_text(yin_yang.name)
    visit.screenshot("result")


def test_a_dropped_image_has_a_label_and_a_heat_map(visit: Visit, stop_sign: File) -> None:
    visit.drop(stop_sign)
    assert_explained(visit, "stop sign")
    expect(visit.one("#drop-cover")).to_be_hidden()


def test_a_pasted_image_has_a_label_and_a_heat_map(visit: Visit, yin_yang: File) -> None:
    visit.paste(yin_yang)
    assert_explained(visit, "yin yang")


@pytest.mark.parametrize("name", ["yin_yang", "stop_sign"])
def test_an_example_drawing_has_its_label(visit: Visit, name: str) -> None:
    visit.show_example(name)
    assert_explained(visit, name.replace("_", " "))


def test_an_image_that_comes_before_the_models_are_known_waits_for_them(
    open_visit: OpenVisit, yin_yang: File
) -> None:
    visit = open_visit()
    visit.pick(yin_yang)
    assert_explained(visit, "yin yang")


def test_a_picture_of_the_camera_has_labels(visit: Visit) -> None:
    visit.one("#camera").click()
    visit.one("#shoot").click()
    visit.until_done()
    assert len(visit.labels()) == 5
    expect(visit.one("#image-name")).to_have_text("camera.jpg")
    assert visit.page.evaluate("document.getElementById('video').srcObject") is None


def test_several_images_are_listed_and_each_can_be_looked_at(
    visit: Visit, yin_yang: File, stop_sign: File
) -> None:
    many = [File(f"{i}.png", (yin_yang, stop_sign)[i % 2].data) for i in range(9)]
    visit.pick(*many)
    expect(visit.one(".thumbnail[data-state=done]")).to_have_count(9)
    captions = visit.one(".thumbnail-label").all_inner_texts()
    assert [text.partition(",")[0] for text in captions] == ["yin yang", "stop sign"] * 4 + [
        "yin yang"
    ]
    visit.one(".thumbnail").nth(3).click()
    assert_explained(visit, "stop sign")
    expect(visit.one(".thumbnail[aria-current=true]")).to_contain_text("3.png")
    visit.screenshot("several")
    visit.one("#clear").click()
    expect(visit.one("#result")).to_be_hidden()
    expect(visit.one(".thumbnail")).to_have_count(0)


def test_a_drop_without_a_file_says_what_to_do(visit: Visit) -> None:
    visit.drop()
    expect(visit.one("#message")).to_contain_text("Save the image first")


def test_an_image_that_the_browser_cannot_show_is_classified(visit: Visit, yin_yang: File) -> None:
    scan = pictures.encode(Image.open(BytesIO(yin_yang.data)), "TIFF")
    visit.pick(File("scan.tiff", scan, "image/tiff"))
    assert_explained(visit, "yin yang")
    expect(visit.one("#no-picture")).to_be_visible()


def test_another_model_answers_for_the_images_that_are_there(visit: Visit, yin_yang: File) -> None:
    visit.pick(yin_yang)
    assert_explained(visit, "yin yang")
    visit.one("#model").select_option(label="scenes15, version 1")
    expect(visit.one("dl.card")).to_contain_text("fifteen kinds of places")
    expect(visit.one(".label-name").first).not_to_have_text("yin yang")
    visit.until_done()
    expect(visit.one("#commands")).to_contain_text("model=scenes15&version=1")
