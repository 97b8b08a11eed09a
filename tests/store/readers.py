# SPDX-License-Identifier: Apache-2.0
"""Others' readers of the formats that probing writes, each in a Python of its own."""
import fcntl
import subprocess
import sys

import pytest

from world import BUILD


def python_with(package):
    """A folder with a python3 that has the package: made once, of PyPI, beside what is built."""
    venv = BUILD.parent / "venv" / package
    with open(BUILD.parent / ("venv-%s.lock" % package), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (venv / "whole").exists():
            for words in ((sys.executable, "-m", "venv", "--clear", str(venv)),
                          (str(venv / "bin" / "pip"), "install", "-q", package)):
                try:
                    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
                except (OSError, subprocess.TimeoutExpired) as why:
                    pytest.skip("no %s here: %s" % (package, why))
                if done.returncode != 0:
                    pytest.skip("no %s here: %s" % (package, done.stderr.strip()[-200:]))
            (venv / "whole").touch()
    return venv / "bin"
