"""Entry point of `python -m service` and of the command `leafcode`."""

import gc
import sys

__all__ = ["main"]


def main() -> int:
    """Run one command; where its packages are missing, one sentence says how to get them."""
    try:
        # Nothing of what is imported is garbage; to look for some takes a tenth of the time.
        gc.disable()
        from service.cli import main as run  # noqa: PLC0415

        gc.enable()
        return run()
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "service":
            raise  # not a missing package but a mistake of ours
        sys.exit(
            f"leafcode: {error.name} is not installed, which the service needs: "
            "make setup, or pip install 'leafcode[server]'"
        )


if __name__ == "__main__":
    sys.exit(main())
