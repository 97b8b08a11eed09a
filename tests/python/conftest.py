# SPDX-License-Identifier: Apache-2.0
"""What the python plugin's tests share: every CPython of the machine, and targets to look into."""
import glob
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release"))
CLI = BUILD / "probing"
CORE = BUILD / "libprobing.so"
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
    for path in ["/usr/bin/python3"] + sorted(glob.glob(home + "/versions/*/bin/python3")):
        version = version_of(path) if os.path.exists(path) else (0, 0, 0)
        if OLDEST <= version[:2] <= NEWEST:
            found.setdefault("%d.%d.%d" % version, path)
    return found


PYTHONS = pythons()


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", list(PYTHONS.values()), ids=list(PYTHONS))


def wait_for(condition, what, timeout=60.0):
    """Give what `condition()` gives once it is true; fail the test after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail("waited %g s for %s" % (timeout, what))
        time.sleep(0.02)


class Target:
    """A Python process, injected once it has said "ready"."""

    def __init__(self, world, python, source, env=None, arguments=()):
        self.world, self.source = world, source
        name = "target%d" % len(world.targets)
        self.script, self.log = world.tmp / (name + ".py"), world.tmp / (name + ".log")
        self.script.write_text(source, encoding="utf-8")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([python, "-u", str(self.script), *arguments],
                                            stdout=log, stderr=subprocess.STDOUT,
                                            stdin=subprocess.DEVNULL,
                                            env=dict(world.env, **(env or {})), cwd=world.tmp)
        self.pid = self.process.pid
        world.targets.append(self)

    def output(self):
        return self.log.read_text(errors="replace")

    def wait_line(self, pattern, timeout=60.0):
        def seen():
            found = re.search(pattern, self.output(), flags=re.M)
            if not found and self.process.poll() is not None:
                pytest.fail("the target ended (%s):\n%s" % (self.process.returncode,
                                                           self.output()))
            return found
        return wait_for(seen, "%r in the target's output" % pattern, timeout)

    def probing(self, *args, timeout=60):
        return subprocess.run([str(CLI), "-t", str(self.pid), *args], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=timeout, stdin=subprocess.DEVNULL,
                              env=self.world.env, encoding="utf-8", errors="replace")

    def inject(self):
        self.wait_line("^ready")
        done = self.probing("inject")
        assert done.returncode == 0, done.stdout + done.stderr
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

    def alive(self):
        return self.process.poll() is None


def python_frames(thread):
    """[(function's own name, line)], innermost first."""
    return [(f["func"].rpartition(".")[2], f["line"]) for f in thread["frames"]
            if f["type"] == "python"]


class World:
    def __init__(self, tmp):
        self.tmp, self.targets = tmp, []
        self.data = tmp / "data"
        self.data.mkdir(mode=0o700)
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("PROBING", "PROBE", "LD_PRELOAD", "ENDPOINT"))}
        self.env.update(PROBING_DATA_DIR=str(self.data), PYTHONIOENCODING="utf-8")

    def start(self, python, source, **more):
        return Target(self, python, source, **more)


@pytest.fixture
def world(tmp_path):
    if not CLI.exists() or not CORE.exists():
        pytest.fail("%s is not built: run scons" % CLI)
    made = World(tmp_path)
    yield made
    for target in made.targets:
        if target.alive():
            target.process.send_signal(signal.SIGKILL)
        target.process.wait()
