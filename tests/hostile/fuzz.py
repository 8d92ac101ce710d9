"""Coverage-guided fuzzing of one reader: `python -m tests.hostile.fuzz image --seconds 60`.

Needs the extra `fuzz` (atheris). It starts from what `corpus.py` and sound files give, and
looks for inputs that reach new branches of ours; inputs that fail are kept in the folder that
it names, and the exit code is not zero.
"""

import argparse
import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

from service.engine import kernels

_TARGETS = ("image", "npy", "inference", "bundle")
# What reads bytes.
_INSTRUMENTED = (
    *("service.engine.image", "service.engine.bundle", "service.engine.manifest"),
    *("service.engine.config", "service.formats", "numpy.lib", "PIL.Image", "PIL.ImageFile"),
    *("PIL.JpegImagePlugin", "PIL.PngImagePlugin", "PIL.WebPImagePlugin"),
    *("PIL.GifImagePlugin", "PIL.BmpImagePlugin", "PIL.TiffImagePlugin"),
)
_MAX_BYTES = 20_000
_SLOWEST_SECONDS = 10


def main() -> None:
    """Fuzz until the time is over or an input fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.fuzz", description=__doc__)
    parser.add_argument("target", choices=_TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    try:
        import atheris  # noqa: PLC0415
    except ImportError:
        parser.error("atheris is missing; install the extra: pip install -e '.[test,fuzz]'")
    # Kernels first: numba compiles them, and does not know the calls that are put in below.
    for module in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)
    # Imported here, so that the fuzzer sees which branches are taken.
    with atheris.instrument_imports(include=list(_INSTRUMENTED)):
        from tests.hostile import seeds, targets  # noqa: PLC0415
    folder = Path(tempfile.mkdtemp(prefix=f"leafcode-fuzz-{options.target}-"))
    for number, data in enumerate(seeds.SEEDS[options.target]()):
        (folder / f"seed-{number}").write_bytes(data)
    sys.stderr.write(f"inputs that fail are kept in {folder}\n")
    arguments = [
        sys.argv[0],
        f"-max_total_time={options.seconds}",
        f"-max_len={_MAX_BYTES}",
        f"-timeout={_SLOWEST_SECONDS}",
        "-rss_limit_mb=4096",
        f"-artifact_prefix={folder}/failed-",
        str(folder),
    ]
    atheris.Setup(arguments, targets.TARGETS[options.target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
