# SPDX-License-Identifier: Apache-2.0
"""A debugger that looks at a process with probing in it."""
import shutil
import subprocess

import pytest
from world import IDLE


def test_gdb_attaches_and_leaves(world):
    """It opens what the process has mapped by the names that the loader knows: of /proc/self/fd/3
    that was a pipe of its own, from which it read for ever, with the process stopped."""
    if not shutil.which("gdb"):
        pytest.skip("no gdb (Debian: gdb)")
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject("--wait", "--plugin", "python")
    done = subprocess.run(["timeout", "-s", "KILL", "60", "gdb", "-p", str(target.pid), "-batch",
                           "-ex", "info sharedlibrary"], stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=world.env)
    if "ptrace: Operation not permitted" in done.stdout:
        pytest.skip("gdb may not attach here")
    assert done.returncode == 0, done.stdout
    assert "/proc/%d/fd/" % target.pid in done.stdout and "/proc/self/fd/" not in done.stdout
    assert target.rows("select 1") == [[1]]
