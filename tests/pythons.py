# SPDX-License-Identifier: Apache-2.0
"""Every CPython of the machine that the python plugin claims to read."""
import glob
import os
import subprocess
import zlib
from pathlib import Path

from world import DEBIAN_PYTHON, ROOT

OLDEST, NEWEST = (3, 8), (3, 15)
PYENV = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")) + "/versions"


def ask(python):
    """((3, 11, 2), "t" for a free-threaded build)."""
    code = ("import sys, sysconfig; print(*sys.version_info[:3], "
            "'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else '')")
    done = subprocess.run([python, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    words = done.stdout.decode().split()
    if done.returncode or len(words) < 3:
        return (0, 0, 0), ""
    return tuple(map(int, words[:3])), "".join(words[3:])


def version_of(python):
    return ask(python)[0]


# Set by `scons full`: tests run that take long and seldom say more than the rest.
FULL = os.environ.get("PROBING_TEST_FULL") == "1"


def pythons():
    """{"3.11.2": path}: the system's, pyenv's and newer_python.sh's, that the plugin reads.

    One of each minor version, the system's first; all of them for `scons full`.  What we read is
    laid out by the minor version; how one was built differs between the system's and the others,
    and both kinds are there."""
    found, kinds = {}, set()
    for path in [DEBIAN_PYTHON] + sorted(glob.glob(PYENV + "/*/bin/python3")) + \
            sorted(glob.glob(str(ROOT / "build" / "pythons" / "*" / "bin" / "python3"))):
        version, kind = ask(path) if Path(path).exists() else ((0, 0, 0), "")
        if (version[:2], kind) in kinds and not FULL:
            continue
        kinds.add((version[:2], kind))
        if OLDEST <= version[:2] <= NEWEST:
            found.setdefault("%d.%d.%d" % version + kind, path)
    return found


PYTHONS = pythons()


def minor_of(python):
    return [int(v.split(".")[1]) for v, path in PYTHONS.items() if path == python][0]


def is_threaded(python):
    """A free-threaded build: nobody holds a GIL."""
    return python in [path for version, path in PYTHONS.items() if version.endswith("t")]


def some(name):
    """As PYTHONS, for a test of that name which does not read what a minor version lays out anew:
    the oldest, the newest, and one between them by the name, so that each gets its share."""
    if FULL or len(PYTHONS) <= 3:
        return PYTHONS
    in_order = sorted(PYTHONS, key=lambda v: [int(n) for n in v.rstrip("t").split(".")])
    between = in_order[1 + zlib.crc32(name.encode()) % (len(in_order) - 2)]
    return {version: PYTHONS[version] for version in (in_order[0], between, in_order[-1])}


def parametrize(metafunc):
    """A test that takes `python` runs with each of them; one that is marked some_pythons, or whose
    file is, with some()."""
    if "python" in metafunc.fixturenames:
        marked = metafunc.definition.get_closest_marker("some_pythons")
        taken = some(metafunc.function.__name__) if marked else PYTHONS
        metafunc.parametrize("python", list(taken.values()), ids=list(taken))
