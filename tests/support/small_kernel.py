"""One small kernel in a file of its own, because compiling all of them takes 15 seconds."""

import importlib.util
from pathlib import Path
from typing import Any

SOURCE = """
from service.engine.compiling import kernel

@kernel
def double(value):
    return 2 * value
"""


def start(source: Path) -> Any:
    """The kernel as a new process has it: nothing of it is compiled yet."""
    spec = importlib.util.spec_from_file_location("small_kernel", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.double
