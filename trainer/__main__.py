"""Entry point of `python -m trainer` and of the command `leafcode-trainer`."""

import gc
import os
import signal
import sys

__all__ = ["main"]


def main() -> int:
    """Run one command; where its packages are missing, one sentence says how to get them."""
    if os.getpid() == 1:
        # In a container. The system keeps signals from a process 1 that does not handle them.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        # Nothing of what is imported is garbage; to look for some takes a tenth of the time.
        gc.disable()
        if sys.argv[1:2] == ["predict"]:
            # Alone, because all other commands take a second to import, which its processes
            # would wait for.
            from trainer.predict.cli import main as run  # noqa: PLC0415
        else:
            from trainer.cli import main as run  # noqa: PLC0415

        gc.enable()
        return run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("service", "trainer"):
            raise  # not a missing package but a mistake of ours
        sys.exit(
            f"leafcode: {error.name} is not installed, which training needs: "
            "make setup, or pip install 'leafcode[trainer]'"
        )


if __name__ == "__main__":
    sys.exit(main())
