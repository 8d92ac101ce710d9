"""`python -m service.pool.compiling_helper`: compiles kernels while another process does others.

Whoever started it loads from the cache on disk what was compiled here. If that fails, it compiles
everything itself.
"""

import contextlib
import os
import subprocess
import sys
import threading

from service.engine.kernel_cache import can_keep_kernels
from service.pool.cores import usable_cores

__all__ = ["CompilingHelper"]


class CompilingHelper:
    """Another process that compiles some of the kernels, once it is started.

    It is started only where there is a core for it and a folder for what it compiles.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Let it begin, unless the system has no process for it."""
        if len(usable_cores()) > 1 and can_keep_kernels():
            with contextlib.suppress(OSError):
                self._process = subprocess.Popen(  # noqa: S603  # ourselves
                    [sys.executable, "-m", __name__],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                )

    def wait(self) -> None:
        """Wait until it is done."""
        if self._process is not None:
            self._process.wait()

    def close(self) -> None:
        """End it, whether it is done or not."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def main() -> None:
    """Compile until all is compiled, or until whoever started this has ended."""
    threading.Thread(target=_end_with_standard_input, daemon=True).start()
    # Here, because the module of these kernels imports this one.
    from service.pool.warmup import run_kernels_of_helper  # noqa: PLC0415

    run_kernels_of_helper()


def _end_with_standard_input() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
