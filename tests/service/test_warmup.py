"""After warming up, no request waits for the compiler."""

import subprocess
import sys
from pathlib import Path

from tests.service.processes import environment, run

# In a process of its own, because other tests call kernels with types of their own.
REQUESTS_AFTER_WARMING = """
import asyncio, importlib, pkgutil, sys
from pathlib import Path
import httpx
from service.app import create_app
from service.engine import kernels
from service.settings import Settings
from service.warmup import warm
from tests import pictures

def signatures():
    # Private kernels are part of the public ones that call them.
    modules = [importlib.import_module(f"{kernels.__name__}.{module.name}")
               for module in pkgutil.iter_modules(kernels.__path__)]
    return {f"{module.__name__}.{name}": len(value.signatures)
            for module in modules for name, value in vars(module).items()
            if hasattr(value, "signatures") and not name.startswith("_")}

async def main(app):
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app):
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for data in (pictures.png(), pictures.jpeg(pictures.disc(200, 300)),
                         pictures.png(pictures.noise(20, 20))):
                assert (await client.post("/v1/classify", content=data)).is_success
            for n in (0, 1, 2, 40):
                rows = {"descriptors": [[0.5] * 128] * n}
                assert (await client.post("/v1/codes", json=rows)).is_success

assert not any(signatures().values())
warm()
before = signatures()
asyncio.run(main(create_app(Settings(models=Path(sys.argv[1])))))
assert len(before) >= 6 and all(before.values()), before
assert signatures() == before, (before, signatures())
"""


def test_requests_compile_nothing_after_warming(models: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", REQUESTS_AFTER_WARMING, str(models)],
        check=True,
        timeout=120,
        env=environment(),
    )


def test_warming_with_an_empty_cache_says_so_while_it_compiles(tmp_path: Path) -> None:
    ended = run("warm", env=environment(NUMBA_CACHE_DIR=str(tmp_path)))
    assert ended.returncode == 0
    assert b"compiling the kernels, once for this machine" in ended.stderr
    assert b"kernels ready after" in ended.stdout
