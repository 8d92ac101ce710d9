"""Runs every kernel once, so that no request has to wait for the compiler.

numba compiles a kernel at its first call and keeps the machine code on disk: some
seconds on a new machine, a fraction of one afterwards. A tiny synthetic model takes
the same road as a real one, with the same argument types.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from typing import get_args

import numpy as np
from PIL import Image

from service.engine import DESCRIPTOR_WIDTH, Bundle, Engine, EngineConfig, Manifest, strips
from service.engine.bundle import Tensor, expected_tensors
from service.engine.compilation_notice import compiling_is_told
from service.engine.config import (
    CodesConfig,
    Descriptor,
    HashKind,
    ResidualsConfig,
    ViewConfig,
)
from service.engine.cpu_level import require_cpu_level

__all__ = ["run_every_kernel", "sample_image", "tell_if_compiling", "warm"]

logger = logging.getLogger(__name__)

_VIEW, _CODES = ViewConfig(depth=1), CodesConfig(n_atoms=2, nonzeros=1)
_RESIDUALS = ResidualsConfig(levels=(1, 1), components=2, pyramid=(2, 1))
_PLAIN = EngineConfig.of_codes(_VIEW, _CODES)
_LABELS = ("one", "other")


def warm() -> float:
    """Compile what is not compiled yet; how many seconds it took."""
    require_cpu_level()
    start = time.perf_counter()
    with tell_if_compiling():
        run_every_kernel()
    return time.perf_counter() - start


@contextmanager
def tell_if_compiling() -> Iterator[None]:
    """A line of the log before the first kernel is compiled, and one when all are ready."""
    start = time.perf_counter()
    with compiling_is_told(_tell_compiling) as compiled:
        yield
    level = logging.INFO if compiled() else logging.DEBUG
    logger.log(level, "kernels ready after %.1f s", time.perf_counter() - start)


def _tell_compiling() -> None:
    logger.info("compiling the kernels, once for this machine; this takes some seconds")


def run_every_kernel() -> None:
    """Call each kernel with the argument types of a request."""
    for config in (_PLAIN, *_other_configs()):
        engine = Engine(Bundle(Manifest("warm", 1, "", config, _LABELS), _tensors(config)))
        engine.classify(sample_image(64))
        engine.explain(sample_image(64))
    engine.classify(sample_image(64, "JPEG"))
    for sign in (1, -1):  # which kernels of the last configuration take as well
        engine.encode(np.full((1, DESCRIPTOR_WIDTH), sign, np.float32))
    strips.show_rows(strips.cut(1, 1, threads=2))  # as while an image is decoded


def _other_configs() -> Iterator[EngineConfig]:
    """Every hash, and every descriptor with both kinds of blocks beside the plain ones."""
    for hash_ in get_args(HashKind):
        yield replace(_PLAIN, views=(replace(_VIEW, hash=hash_),))
    for descriptor in get_args(Descriptor):
        view = ViewConfig(depth=1, descriptor=descriptor, reduction=2)
        blocks = (_CODES, replace(_CODES, view=1), replace(_RESIDUALS, view=1))
        yield replace(_PLAIN, views=(_VIEW, view), blocks=blocks)


def _tensors(config: EngineConfig) -> dict[str, Tensor]:
    specs = expected_tensors(config, len(_LABELS))
    return {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}


def sample_image(side: int, kind: str = "PNG") -> bytes:
    """A square grey gradient."""
    stream = BytesIO()
    Image.linear_gradient("L").resize((side, side)).save(stream, kind)
    return stream.getvalue()
