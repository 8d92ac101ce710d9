"""Atoms are drawn alike by the report and by the service's page."""

import json
import re
import shutil
import subprocess

import numpy as np
import pytest

from tests.support.html_pages import parse
from tests.support.processes import ROOT
from trainer.page.glyphs import glyph

# As much of a browser as the page's function needs.
_SCRIPT = """
const made = [];
const element = {
  setAttribute(name, value) { if (name === "d") made.push(value); },
  append() {},
};
globalThis.document = { createElementNS: () => element };
const { glyph } = await import(process.argv[1]);
glyph(Float32Array.from(JSON.parse(process.argv[2])), "Atom");
console.log(JSON.stringify(made));
"""


def _numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?", path)]


@pytest.mark.skipif(not shutil.which("node"), reason="needs node, absent here")
def test_paths_are_those_of_the_services_page() -> None:
    atom = np.random.default_rng(5).normal(size=128).astype(np.float32)
    source = (ROOT / "service" / "web" / "glyphs.js").as_uri()
    command = ["node", "--input-type=module", "-e", _SCRIPT, source, json.dumps(atom.tolist())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = [_numbers(path) for path in json.loads(done.stdout)]
    drawn = parse(f"<!doctype html>\n<html>{glyph(atom, 'Atom 1')}</html>").all("path")
    found = [_numbers(path.attributes["d"] or "") for path in drawn]
    assert [len(path) for path in found] == [len(path) for path in expected]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, atol=0.0101)


def test_an_atom_of_zeros_has_no_lines() -> None:
    drawn = parse(f"<!doctype html>\n<html>{glyph(np.zeros(128, np.float32), 'Atom')}</html>")
    frame, *lines = [path.attributes["d"] for path in drawn.all("path")]
    assert frame
    assert lines == ["", ""]
