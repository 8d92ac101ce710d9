"""After warming up, no request waits for the compiler."""

import logging
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from service.pool import warmup
from tests.support.commands import run_here
from tests.support.processes import DEADLINE_SECONDS, environment
from tests.support.small_kernel import SOURCE, start

# In a process of its own, because other tests call kernels with types of their own.
REQUESTS_AFTER_WARMING = """
import importlib, json, pkgutil, sys
from service.engine import ImageLimits, kernels
from service.engine.bundle import BundleFiles
from service.pool.warmup import run_every_kernel
from service.pool.frames import Frame, Kind
from service.pool.operations import Operations
from service.pool.worker_plan import WorkLimits
from tests.support import pictures

def signatures():
    # Parts are compiled into the kernels that call them.
    modules = [importlib.import_module(f"{kernels.__name__}.{module.name}")
               for module in pkgutil.iter_modules(kernels.__path__)]
    return {f"{module.__name__}.{name}": len(value.signatures)
            for module in modules for name, value in vars(module).items()
            if hasattr(value, "signatures") and value.targetoptions.get("inline") != "always"}

def ask(kind, body=b"", **fields):
    frame = Frame(kind, 1, {"name": "tiny", "version": 1, **fields}, body)
    assert operations.answer(frame).kind is Kind.DONE

assert not any(signatures().values())
run_every_kernel()
before = signatures()
operations = Operations(1, WorkLimits(ImageLimits(), 10, 100))
with open(sys.argv[1] + "/manifest.json") as manifest:
    files = BundleFiles.of(sys.argv[1]).to_json()
    ask(Kind.LOAD, files=files, digest=json.load(manifest)["digest"])
for data in (pictures.png(), pictures.jpeg(pictures.disc(200, 300)),
             pictures.png(pictures.noise(20, 20))):
    ask(Kind.CLASSIFY, data, top_k=5)
    ask(Kind.INFER_IMAGE, data, outputs=[["probabilities"]])
    ask(Kind.WRITE_CODES, data, source="image", target="npz")
for n in (0, 1, 2, 40):
    text = json.dumps({"descriptors": [[0.5] * 128] * n}).encode()
    ask(Kind.WRITE_CODES, text, source="json", target="json")
    ask(Kind.WRITE_CODES, bytes(n * 512), source="raw", target="npz")
    ask(Kind.INFER_DESCRIPTORS, bytes(n * 512), outputs=[["values", True]], id=None)
# Training walks the tree by itself, which serving does not.
cold = {name for name, count in before.items() if not count}
assert cold <= {"service.engine.kernels.tree.walk"}, cold
assert signatures() == before, (before, signatures())
"""


def test_requests_compile_nothing_after_warming(models: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", REQUESTS_AFTER_WARMING, str(models / "tiny" / "1")],
        check=True,
        timeout=DEADLINE_SECONDS,
        env=environment(),
    )


def test_compiling_is_told_before_and_after_and_loading_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source = tmp_path / "small_kernel.py"
    source.write_text(SOURCE)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "kernels"))
    told = []
    with caplog.at_level(logging.INFO, "service.pool.warmup"):
        for _ in range(2):
            with warmup.tell_if_compiling():
                assert start(source)(21) == 42
            told.append([record.getMessage().split(maxsplit=2)[:2] for record in caplog.records])
            caplog.clear()
    assert told == [[["compiling", "the"], ["kernels", "ready"]], []]


def test_the_command_warms_and_says_how_long_it_took() -> None:
    ended = run_here("warm")
    assert ended.returncode == 0
    assert b"kernels ready after" in ended.stdout
