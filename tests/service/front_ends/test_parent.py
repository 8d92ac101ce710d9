"""What a parent does beside its front ends: as process 1 it is left what they leave behind."""

import subprocess
import sys

import pytest

from tests.support.processes import environment

# In a process of its own, which has no other children.
PROGRAM = """
import os, sys
from service.front_ends.parent import reap_one_but
child = os.posix_spawn("/bin/true", ["true"], {})
os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
reap_one_but({child} if sys.argv[1] == "own" else {None})
try:
    print(os.waitpid(child, os.WNOHANG)[0] == child)
except ChildProcessError:
    print("reaped")
reap_one_but(())
"""


@pytest.mark.parametrize(("whose", "found"), [("own", "True"), ("stranger", "reaped")])
def test_a_child_that_nobody_waits_for_is_reaped(whose: str, found: str) -> None:
    command = [sys.executable, "-c", PROGRAM, whose]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == found
