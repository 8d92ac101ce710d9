"""Commands that end by themselves, in this process: to start another one takes a second."""

import io
import logging
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from service.cli import main
from tests.support.processes import environment


def run_here(*arguments: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    """`python -m service …` with these variables; the log is as it was before afterwards."""
    out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        with (
            patch.dict(os.environ, environment(**variables), clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(arguments)
    except SystemExit as end:  # by argparse
        code = int(end.code or 0)
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    written = (out.getvalue().encode(), err.getvalue().encode())
    return subprocess.CompletedProcess(arguments, code, *written)
