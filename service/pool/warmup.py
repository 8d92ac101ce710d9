"""Runs every kernel once, so that no request has to wait for the compiler.

numba compiles a kernel at its first call and keeps the machine code on disk: half a minute on a
new machine, a fraction of a second afterwards. A tiny synthetic model takes the same road as a
real one, with the same argument types. As numba compiles one kernel at a time, a second process
compiles about half of them, which the first one then loads.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from io import BytesIO
from typing import get_args

import numpy as np
from PIL import Image

from service.engine import DESCRIPTOR_WIDTH, Bundle, Engine, EngineConfig, Manifest, strips
from service.engine.arrays import Tensors
from service.engine.compilation_notice import compiling_is_told
from service.engine.config import (
    CodesConfig,
    Descriptor,
    HashKind,
    ResidualsConfig,
    ViewConfig,
)
from service.engine.cpu_level import require_cpu_level
from service.engine.tensor_names import expected_tensors
from service.pool.compiling_helper import CompilingHelper

__all__ = [
    "run_every_kernel",
    "run_kernels_of_helper",
    "sample_image",
    "tell_if_compiling",
    "warm",
]

logger = logging.getLogger(__name__)

_VIEW, _CODES = ViewConfig(depth=1), CodesConfig(n_atoms=2, nonzeros=1)
_SIGNED = ViewConfig(depth=1, descriptor="colour", reduction=2)
_RESIDUALS = ResidualsConfig(levels=(1, 1), components=2, pyramid=(2, 1))
_PLAIN = EngineConfig.of_codes(_VIEW, _CODES)
_LABELS = ("one", "other")


def warm() -> float:
    """Compile what is not compiled yet; how many seconds it took."""
    require_cpu_level()
    start = time.perf_counter()
    with tell_if_compiling() as helper:
        run_every_kernel(helper.wait)
    return time.perf_counter() - start


@contextmanager
def tell_if_compiling() -> Iterator[CompilingHelper]:
    """A line of the log before the first kernel is compiled, and one when all are ready.

    Meanwhile a helper compiles those of `run_kernels_of_helper`.
    """
    start, helper = time.perf_counter(), CompilingHelper()
    with closing(helper), compiling_is_told(lambda: _begin_compiling(helper)) as compiled:
        yield helper
    level = logging.INFO if compiled() else logging.DEBUG
    logger.log(level, "kernels ready after %.1f s", time.perf_counter() - start)


def _begin_compiling(helper: CompilingHelper) -> None:
    logger.info("compiling the kernels, once for this machine; this takes half a minute or more")
    helper.start()


def run_every_kernel(wait_for_helper: Callable[[], object] | None = None) -> None:
    """Call each kernel with the argument types of a request."""
    plain = _run(_PLAIN)
    plain.classify(sample_image(64, "JPEG"))
    for descriptor in get_args(Descriptor):
        view = ViewConfig(depth=1, descriptor=descriptor, reduction=2)
        if not view.has_signs:
            _run(_with_residuals(_VIEW, view))
    if wait_for_helper is not None:
        wait_for_helper()
    run_kernels_of_helper()
    for sign in (1, -1):
        plain.encode(np.full((1, DESCRIPTOR_WIDTH), sign, np.float32))
    strips.show_rows(strips.cut(1, 1, threads=2))  # as while an image is decoded


def run_kernels_of_helper() -> None:
    """Call about half of the kernels: those of other hashes, and of descriptors with signs."""
    for hash_ in get_args(HashKind):
        if hash_ != _VIEW.hash:
            _run(_with_residuals(replace(_VIEW, hash=hash_), _SIGNED))


def _with_residuals(*views: ViewConfig) -> EngineConfig:
    """Codes of each view, and residuals of the last one."""
    codes = tuple(replace(_CODES, view=number) for number in range(len(views)))
    return replace(_PLAIN, views=views, blocks=(*codes, replace(_RESIDUALS, view=len(views) - 1)))


def _run(config: EngineConfig) -> Engine:
    """Use a model of a configuration, and return it."""
    engine = Engine(Bundle(Manifest("warm", 1, "", config, _LABELS), _tensors(config)))
    engine.classify(sample_image(64))
    engine.explain(sample_image(64))
    return engine


def _tensors(config: EngineConfig) -> Tensors:
    specs = expected_tensors(config, len(_LABELS))
    return {name: np.zeros(spec.shape, spec.dtype) for name, spec in specs.items()}


def sample_image(side: int, kind: str = "PNG") -> bytes:
    """A square grey gradient."""
    stream = BytesIO()
    Image.linear_gradient("L").resize((side, side)).save(stream, kind)
    return stream.getvalue()
