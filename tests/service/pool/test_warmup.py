"""After warming up, no request waits for the compiler."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes import environment, run

# In a process of its own, because other tests call kernels with types of their own.
REQUESTS_AFTER_WARMING = """
import importlib, json, pkgutil, sys
from service.engine import ImageLimits, kernels
from service.pool.warmup import run_every_kernel
from service.pool.frames import Frame, Kind
from service.pool.worker import Desk, Plan
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
    assert desk.answer(frame).kind is Kind.DONE

assert not any(signatures().values())
run_every_kernel()
before = signatures()
desk = Desk(Plan(0, (0,), 1, ImageLimits(), 100))
with open(sys.argv[1] + "/manifest.json") as manifest:
    ask(Kind.LOAD, path=sys.argv[1], digest=json.load(manifest)["digest"])
for data in (pictures.png(), pictures.jpeg(pictures.disc(200, 300)),
             pictures.png(pictures.noise(20, 20))):
    ask(Kind.CLASSIFY, data, top_k=5)
    ask(Kind.SCORES, data)
    ask(Kind.WRITE_CODES, data, source="image", target="npz")
for n in (0, 1, 2, 40):
    text = json.dumps({"descriptors": [[0.5] * 128] * n}).encode()
    ask(Kind.WRITE_CODES, text, source="json", target="json")
    ask(Kind.WRITE_CODES, bytes(n * 512), source="raw", target="npz")
    ask(Kind.ENCODE, bytes(n * 512), shape=[n, 128])
# Training walks the tree by itself, which serving does not.
cold = {name for name, count in before.items() if not count}
assert cold <= {"service.engine.kernels.tree.walk"}, cold
assert signatures() == before, (before, signatures())
"""


def test_requests_compile_nothing_after_warming(models: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", REQUESTS_AFTER_WARMING, str(models / "tiny" / "1")],
        check=True,
        timeout=120,
        env=environment(),
    )


def test_warming_with_an_empty_cache_says_so_while_it_compiles(tmp_path: Path) -> None:
    ended = run("warm", env=environment(NUMBA_CACHE_DIR=str(tmp_path)))
    assert ended.returncode == 0
    assert b"compiling the kernels, once for this machine" in ended.stderr
    assert b"kernels ready after" in ended.stdout
