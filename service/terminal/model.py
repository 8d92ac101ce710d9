"""The model that a command answers with: its options, and its engine, loaded quickly."""

import argparse
import gc
import logging
import os
import warnings
from typing import TYPE_CHECKING

from service.observability.logs import start_logging
from service.setting_flags import add_setting
from service.settings import Settings

if TYPE_CHECKING:
    from service.engine import Engine

__all__ = ["add_model_options", "load_engine"]


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a model."""
    add_setting(parser, "models")
    parser.add_argument(
        "--model",
        metavar="NAME",
        help="model (default: LEAFCODE_DEFAULT_MODEL, or else the first by name)",
    )
    parser.add_argument("--version", type=int, metavar="V", help="version (default: the highest)")


def load_engine(options: argparse.Namespace, settings: Settings) -> "Engine":
    """The engine of the chosen model, checked and ready; logs warnings from now on."""
    start_logging("warning")
    logging.getLogger("service.pool.warmup").setLevel(logging.INFO)
    # No garbage collection, which finds nothing, and no threads of BLAS, which a fork forbids.
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    gc.disable()
    try:
        return _load(options, settings)
    finally:
        gc.enable()


def _load(options: argparse.Namespace, settings: Settings) -> "Engine":
    # Here, because numpy and numba take most of the start, and --help needs neither.
    from PIL import Image  # noqa: PLC0415

    from service.engine import Engine  # noqa: PLC0415
    from service.engine.cpu_level import require_cpu_level  # noqa: PLC0415
    from service.model_choice import choose_model, with_models  # noqa: PLC0415
    from service.pool.warmup import tell_if_compiling  # noqa: PLC0415

    # Our own limit rejects such an image right after Pillow has warned about it.
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    require_cpu_level()
    model = choose_model(with_models(settings), options.model, options.version)
    with tell_if_compiling():
        return Engine.load(model.path)
