# SPDX-License-Identifier: Apache-2.0
"""What the python plugin's tests share: every CPython of the machine, and scripts run by them."""
import glob
import json
import os
import subprocess
from pathlib import Path

import pytest
import world as shared
from world import CLI, CORE, ROOT, wait_for  # noqa: F401  (the tests' own names for them)

PACKAGE = ROOT / "plugins" / "python" / "package"
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
    for path in [shared.DEBIAN_PYTHON] + sorted(glob.glob(home + "/versions/*/bin/python3")):
        version = version_of(path) if Path(path).exists() else (0, 0, 0)
        if OLDEST <= version[:2] <= NEWEST:
            found.setdefault("%d.%d.%d" % version, path)
    return found


PYTHONS = pythons()


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", list(PYTHONS.values()), ids=list(PYTHONS))


class Script(shared.Target):
    """A Python script that runs, entered once it has said "ready"."""

    def __init__(self, world, python, source, env=None, arguments=()):
        self.source = source
        script = world.tmp / ("target-%d.py" % len(world.targets))
        script.write_text(source, encoding="utf-8")
        super().__init__(world, [python, "-u", str(script), *arguments], env)

    def inject(self):
        self.wait_line("^ready")
        super().inject()
        return self

    def threads(self, *options):
        """`backtrace --json`'s threads by id."""
        done = self.probing("backtrace", "--json", *options)
        assert done.returncode == 0, done.stderr
        return {t["tid"]: t for t in json.loads(done.stdout)["threads"]}

    def eval(self, code, *options):
        return self.probing("eval", *options, code)

    def line(self, mark):
        """Number of the source line that holds `# mark`."""
        for number, line in enumerate(self.source.split("\n"), 1):
            if line.endswith("# " + mark):
                return number
        raise KeyError(mark)


def python_frames(thread):
    """[(function's own name, line)], innermost first."""
    return [(f["func"].rpartition(".")[2], f["line"]) for f in thread["frames"]
            if f["type"] == "python"]


class Scripts(shared.World):
    def start(self, python, source, **more):
        target = Script(self, python, source, **more)
        self.targets.append(target)
        return target


@pytest.fixture
def world(tmp_path):
    yield from shared.lend(Scripts(tmp_path))
