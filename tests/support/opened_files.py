"""Real processes in which opening a file of a certain name has a consequence.

A decoder that crashes, or a disk that does not answer, cannot be had by request. This is a
`sitecustomize` for the processes that a command starts.
"""

import os
from pathlib import Path

__all__ = ["DEADLY", "STUCK", "environment"]

DEADLY = "deadly.png"
"""Opening it kills the process."""

STUCK = "stuck.png"
"""Opening it takes for ever."""

_HOOK = f"""
import os, signal, sys

def _hook(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        if arguments[0].endswith({DEADLY!r}):
            os.kill(os.getpid(), signal.SIGKILL)
        if arguments[0].endswith({STUCK!r}):
            signal.pause()

sys.addaudithook(_hook)
"""


def environment(folder: Path) -> dict[str, str]:
    """The variable that has processes run the hook, which is written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_HOOK, "utf-8")
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}
