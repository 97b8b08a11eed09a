# SPDX-License-Identifier: Apache-2.0
"""Every CPython of the machine that the python plugin claims to read."""
import glob
import os
import subprocess
from pathlib import Path

from world import DEBIAN_PYTHON

OLDEST, NEWEST = (3, 8), (3, 13)


def version_of(python):
    done = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3])"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    words = done.stdout.split()
    return tuple(map(int, words)) if done.returncode == 0 and len(words) == 3 else (0, 0, 0)


def pythons():
    """{"3.11.2": path}: the system's and pyenv's, that the plugin claims to read."""
    home = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    found = {}
    for path in [DEBIAN_PYTHON] + sorted(glob.glob(home + "/versions/*/bin/python3")):
        version = version_of(path) if Path(path).exists() else (0, 0, 0)
        if OLDEST <= version[:2] <= NEWEST:
            found.setdefault("%d.%d.%d" % version, path)
    return found


PYTHONS = pythons()


def parametrize(metafunc):
    """A test that takes `python` runs with each of them."""
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", list(PYTHONS.values()), ids=list(PYTHONS))
