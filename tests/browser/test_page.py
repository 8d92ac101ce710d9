"""The page around the images: the lines to copy, the card, the state, and its limits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from service import __version__
from service.settings import EMBEDDED_MODELS
from tests.browser.conftest import OpenVisit
from tests.browser.visit import File, Visit
from tests.support import bundles, pictures
from tests.support.processes import DEADLINE_SECONDS, ROOT, Server, environment


def commands(visit: Visit) -> dict[str, str]:
    """The commands by their name."""
    names = visit.one(".command h3").all_inner_texts()
    return dict(zip(names, visit.one(".command code").all_inner_texts(), strict=True))


def run(*command: str) -> str:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment(),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_SECONDS,
    ).stdout


def test_the_lines_that_are_shown_do_the_same(visit: Visit) -> None:
    visit.show_example("yin_yang")
    shown = commands(visit)
    assert '"label":"yin_yang"' in run("sh", "-c", shown["curl"])
    assert "label='yin_yang'" in run(sys.executable, "-c", shown["Python"])


def test_the_line_of_the_heat_map_draws_it(visit: Visit) -> None:
    visit.show_example("stop_sign")
    line = commands(visit)["heat map"].replace("-o map.png", "-o /dev/null -w '%{content_type}'")
    assert "label=stop_sign" in line
    assert run("sh", "-c", line) == "image/png"


@pytest.mark.parametrize(
    "button", ["Copy the curl command", "Copy the Python command"], ids=["curl", "python"]
)
def test_a_line_can_be_copied(open_visit: OpenVisit, button: str) -> None:
    visit = open_visit(permissions=["clipboard-read", "clipboard-write"])
    visit.until_loaded()
    visit.page.get_by_role("button", name=button).click()
    expect(visit.page.get_by_role("button", name=button)).to_have_text("Copied")
    assert "photo.jpg" in visit.page.evaluate("navigator.clipboard.readText()")


def test_the_card_tells_accuracy_data_licence_limits_and_labels(visit: Visit) -> None:
    card = visit.one("#card")
    manifest = json.loads((EMBEDDED_MODELS / "caltech101" / "1" / "manifest.json").read_bytes())
    accuracy = f"{100 * manifest['quality']['test']['mean_class_accuracy']:.0f} % mean per class"
    for words in (accuracy, "Caltech 101", "CC BY 4.0", "Knows 101 classes"):
        expect(card).to_contain_text(words)
    card.locator("summary").click()
    expect(card.locator(".label-list li")).to_have_count(101)


def test_an_image_like_none_of_the_classes_is_told_apart(
    open_visit: OpenVisit, yin_yang: File, tmp_path: Path
) -> None:
    bundles.write_model(tmp_path, config=bundles.WITH_THRESHOLD)
    blank = File("blank.png", pictures.png(pictures.blank()))
    with Server("--models", str(tmp_path)) as server:
        visit = open_visit(server.url)
        visit.until_loaded()
        visit.pick(blank, yin_yang)
        visit.until_done()
        note = "This image looks like none of the model's 4 classes."
        expect(visit.one("#unknown")).to_contain_text(note)
        expect(visit.one("#announcement")).to_contain_text("blank.png: like none of the classes")
        expect(visit.one(".thumbnail-label").first).to_have_text("like none of the classes")
        assert len(visit.labels()) == len(bundles.LABELS)
        visit.one(".thumbnail").nth(1).click()
        expect(visit.one("#image-name")).to_have_text(yin_yang.name)
        expect(visit.one("#unknown")).to_be_hidden()
        expect(visit.one("#card")).to_contain_text("whose best score is below -1000.00")


def test_the_state_tells_workers_queue_and_version(visit: Visit) -> None:
    expect(visit.one("#state")).to_have_attribute("data-kind", "ready")
    expect(visit.one("#state-text")).to_contain_text(f"ready · 0 waiting · version {__version__}")


def test_the_browser_refuses_a_script_that_somebody_put_into_the_page(visit: Visit) -> None:
    inject = """async () => {
      const refused = new Promise(resolve => document.addEventListener(
        "securitypolicyviolation", event => resolve(event.effectiveDirective)));
      const script = document.createElement("script");
      script.textContent = "window.attacked = true";
      document.body.append(script);
      return refused;
    }"""
    assert visit.page.evaluate(inject) == "script-src-elem"
    assert visit.page.evaluate("window.attacked") is None
    assert len(visit.complaints) == 1
    visit.complaints.clear()


def test_a_name_with_markup_is_shown_as_text(visit: Visit) -> None:
    name = "<img src=x onerror=alert(1)>'; rm -rf $HOME.png"
    visit.pick(File(name, (ROOT / "service/examples/yin_yang.png").read_bytes()))
    visit.until_done()
    expect(visit.one("#image-name")).to_have_text(name)
    assert r"'\''; rm -rf $HOME.png'" in commands(visit)["curl"]
