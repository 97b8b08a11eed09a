# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of packages: the packages that were built, and fresh places for them."""
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pythons import PYTHONS
from world import BUILD, CORE, ROOT

sys.path.insert(0, str(ROOT / "scripts" / "tools"))
import archives  # noqa: E402

PACKAGES = BUILD / "packages"
VERSION = (ROOT / "VERSION").read_text().strip()
STRANGER = """
import time
def waits_here():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)
waits_here()
"""


def build_of(path):
    found = re.search(rb"@\(#\)probing (\d[^\0]*)\0", Path(path).read_bytes())
    return found.group(1).decode() if found else ""


def package(pattern):
    """The one package of this name, made of what stands in the build folder."""
    found = sorted(PACKAGES.glob(pattern))
    if len(found) != 1:
        pytest.skip("%s holds %d of %s: run `scons all wheel deb tarball`"
                    % (PACKAGES, len(found), pattern))
    stripped = BUILD / "stripped" / "libprobing.so"
    if build_of(stripped) != build_of(CORE):
        pytest.skip("the packages are of another build: run `scons all wheel deb tarball`")
    return found[0]


def wheel():
    return package("libprobing-%s-*.whl" % VERSION)


def run(*words, env=None, **more):
    """Run and give (exit code, stdout, stderr)."""
    full = {k: v for k, v in os.environ.items()
            if not k.startswith(("PROBING", "PROBE", "PYTHON", "ENDPOINT"))}
    full.update(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_ROOT_USER_ACTION="ignore",
                PIP_BREAK_SYSTEM_PACKAGES="1", PYTHONDONTWRITEBYTECODE="1", LC_ALL="C.UTF-8")
    full.update(env or {})
    full = {k: v for k, v in full.items() if v is not None}
    done = subprocess.run([str(w) for w in words], env=full, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300, **more)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def worked(*words, env=None, **more):
    """stdout of what must work."""
    code, out, err = run(*words, env=env, **more)
    assert code == 0, "%s gave %d\n%s%s" % (" ".join(map(str, words)), code, out, err)
    return out


@functools.lru_cache(maxsize=None)
def pip_version(python):
    """(23, 0), or () where it has none.  Asking takes half a second."""
    code, out, _ = run(python, "-m", "pip", "--version")
    version = re.match(r"pip (\d+)\.(\d+)", out)
    return (int(version[1]), int(version[2])) if code == 0 and version else ()


def pip(own=None):
    """The words that run a pip which can install for another Python (22.3 or later): its own where
    it has one, else the newest, as an older one cannot read the environments of newer Pythons."""
    enough = (22, 3)
    if own and pip_version(own) >= enough:
        return [own, "-m", "pip"]
    version, python = max((pip_version(str(p)), str(p)) for p in PYTHONS.values())
    if version < enough:
        pytest.skip("no Python here has pip 22.3 or later")
    return [python, "-m", "pip"]


def venv(python, folder):
    """An environment without a copy of pip, which takes seconds to make; its Python."""
    worked(python, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def native(folder):
    """The folder probing/_native below an installation."""
    found = [p for p in folder.rglob("_native") if p.parent.name == "probing"]
    assert len(found) == 1, found
    return found[0]


def put_build(path, build):
    """The file says that it is of another build."""
    data = path.read_bytes()
    own = build_of(path).encode()
    assert data.count(own) >= 1 and len(build) == len(own)
    os.chmod(path, 0o755)
    path.write_bytes(data.replace(own, build.encode()))


def another(build):
    return build.replace("(build ", "(build 0")[:len(build) - 1] + ")"


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """An environment with the wheel in it, which nobody changes: its folder."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    python = venv(sys.executable, folder)
    worked(*pip(sys.executable), "--python", python, "install", "-q", wheel())
    return folder


@pytest.fixture
def home(installed, tmp_path):
    """A fresh copy of it: of an environment without pip nothing knows its own path."""
    return Path(shutil.copytree(installed, tmp_path / "venv", symlinks=True))


def one_line(text):
    """The one line of it; folders that other tests have in /tmp, and are told to all, aside."""
    lines = [line for line in text.splitlines()
             if line and not re.search(r"/probing-\S+ is ignored: it belongs to uid", line)]
    assert len(lines) == 1, text
    return lines[0]


def starts(home, env=None):
    """The answer of `PROBING=1` in an environment; the program runs in any case."""
    code, out, err = run(home / "bin" / "python", "-c", "print('program runs')",
                         env=dict({"PROBING": "1"}, **(env or {})))
    assert code == 0 and out == "program runs\n"
    return err


def files_below(folder):
    """Names of all files, but for what an interpreter caches."""
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*")
                  if not p.is_dir() and "__pycache__" not in p.parts)
