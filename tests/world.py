# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the built command, targets to enter, and waiting for conditions.

Each test has a data root of its own, so that tests run beside each other and beside real use.
With sanitizers in a real Python: scons mode=asan build/asan/plugins build/asan/probing, then
PROBING_BUILD=build/asan pytest ...; a finding ends the process, so the test fails.
"""
import functools
import json
import os
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("PROBING_BUILD", ROOT / "build" / "release")).resolve()
CLI = BUILD / "probing"
FAKE_RELAY = "%s %s" % (sys.executable, ROOT / "tests" / "fake_relay.py")
CORE = BUILD / "libprobing.so"
TRAIN = ROOT / "tests" / "train" / "tiny_transformer.py"
DEBIAN_PYTHON = "/usr/bin/python3"
LIMIT = 300.0  # seconds after which something hangs: a starved machine is slow, and may be so

# A shell has what it starts in the background ignore these, and what we start would do so, too.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler),
                        (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, _usual)


def sanitized():
    """Variables that a process needs to have libraries with sanitizers loaded."""
    if BUILD.name != "asan":
        return {}
    found = [subprocess.check_output(["gcc", "-print-file-name=" + name], text=True).strip()
             for name in ("libasan.so", "libubsan.so")]
    return {"LD_PRELOAD": " ".join(found), "ASAN_OPTIONS": "detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1"}


def hide(*places):
    """Shell commands that put empty file systems over these places, in a mount namespace of the
    shell's own.  A build that lies below one of them is still reached by its path."""
    mounts = " && ".join("mount -t tmpfs -o mode=1777 none %s" % place for place in places)
    build = shlex.quote(str(BUILD))
    return ("exec 9<%s && %s && { [ -e %s/probing ] || { mkdir -p %s && "
            "mount --no-canonicalize --bind /proc/self/fd/9 %s; }; } && exec 9<&- || exit 1; "
            % (build, mounts, build, build, build))


OURS = re.compile(r"/memfd:probing-|/libprobing[^/\n]*\.so|"
                  r"/\d+-\d+(\.\d+)?/(data\.mdb|lock\.mdb|rings|strings)")


def holds_ours(pid):
    """Does a process map code or data of ours?  A checkout may be called probing, too."""
    return OURS.search(Path("/proc/%d/maps" % pid).read_text()) is not None


def wait_for(condition, what, timeout=LIMIT):
    """Give what `condition()` gives once it is true; fail the test after `timeout` seconds.

    what: a text, or a function that gives it then, of what is there instead."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail("waited %g s for %s" % (timeout, what() if callable(what) else what))
        time.sleep(0.02)


def said(stream, pattern, timeout=LIMIT):
    """Read a pipe until `pattern` (of bytes) is in it; it must not have been read before."""
    deadline, text = time.monotonic() + timeout, b""
    while not re.search(pattern, text):
        left = max(0, deadline - time.monotonic())
        if not select.select([stream], [], [], left)[0]:
            pytest.fail("waited %g s for %r in %r" % (timeout, pattern, text))
        data = os.read(stream.fileno(), 4096)
        if not data:
            pytest.fail("it ended without %r: %r" % (pattern, text))
        text += data
    return text


@functools.lru_cache(maxsize=None)
def has_torch(python):
    """One of those that the torch plugin is made for: Ubuntu 22.04 has 1.8.  It is not imported:
    that takes seconds of a processor, in each worker."""
    code = ("import importlib.util, os; names = {}; "
            "home = os.path.dirname(importlib.util.find_spec('torch').origin); "
            "exec(open(os.path.join(home, 'version.py')).read(), names); "
            "assert tuple(map(int, names['__version__'].split('.')[:2])) >= (1, 13)")
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def start_in_terminal(argv, env, prepare=lambda: None):
    """(pid, master) of a program in a terminal of its own; prepare: in the child, before it.

    A child that cannot become that program ends here: back in the tests it would run all that are
    left a second time, and report them, which xdist dies of (list.remove(x): x not in list)."""
    pid, master = pty.fork()
    if pid == 0:
        try:
            prepare()
            os.execve(argv[0], argv, env)
        finally:
            os._exit(127)
    return pid, master


def begin(args, env, log):
    """The process of a target, which writes into that file and stands in its folder."""
    with open(log, "wb") as out:
        return subprocess.Popen(args, stdout=out, stderr=subprocess.STDOUT, env=env,
                                stdin=subprocess.DEVNULL, cwd=log.parent, start_new_session=True)


class Target:
    """A running process to enter, its output lines, and the command aimed at it."""

    def __init__(self, world, args, env=None, begin=begin):
        self.world = world
        self.log = world.tmp / ("target-%d.log" % len(world.targets))
        self.process = begin(args, dict(world.env, **(env or {})), self.log)
        self.pid = self.process.pid

    def output(self):
        return self.log.read_text(errors="replace")

    def wait_line(self, pattern, timeout=LIMIT):
        def seen():
            ended = self.process.poll() is not None  # before looking: its last words count
            found = re.search(pattern, self.output(), flags=re.M)
            if ended and not found:
                pytest.fail("the target ended (%s):\n%s" % (self.process.returncode,
                                                           self.output()))
            return found
        return wait_for(seen, "%r in the target's output" % pattern, timeout)

    def probing(self, *args, **kwargs):
        return self.world.probing("-t", str(self.pid), *args, **kwargs)

    def rows(self, sql, **kwargs):
        """Rows of a query as lists; the query must work."""
        done = self.probing("query", "--format", "json", sql, **kwargs)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]

    def inject(self, *args):
        done = self.probing("inject", *args)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def alive(self):
        return self.process.poll() is None

    def kill(self):
        if self.alive():
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        """It, and whatever it has forked and left behind."""
        self.kill()
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


# A program for an interpreter that does nothing, for as long as it is wanted.
IDLE = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.005)\n"

# prctl(PR_SET_NO_NEW_PRIVS), a filter under which one system call gives EPERM, then the command.
FILTERED = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, %d), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *c) for c in code))
class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code), ctypes.cast(text, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def threads_of(pid):
    """The names of a process's threads."""
    names = []
    for tid in os.listdir("/proc/%d/task" % pid):
        try:
            names.append(open("/proc/%d/task/%s/comm" % (pid, tid)).read().strip())
        except OSError:
            continue
    return names


class World:
    def __init__(self, tmp):
        self.tmp = tmp
        self.data = tmp / "data"
        self.data.mkdir(mode=0o700)
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("PROBING", "PROBE", "LD_PRELOAD", "ENDPOINT"))
                    and not key.lower().endswith("_proxy")}
        self.env.update(sanitized(), PROBING_DATA_DIR=str(self.data), OMP_NUM_THREADS="1",
                        PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
        self.targets = []

    def probing(self, *args, timeout=LIMIT, env=None):
        return subprocess.run([str(CLI), *args], capture_output=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env=dict(self.env, **(env or {})),
                              encoding="utf-8", errors="replace")

    def start(self, *args, env=None, begin=begin):
        target = Target(self, list(args), env, begin)
        self.targets.append(target)
        return target

    def python(self, source, python=sys.executable, env=None):
        script = self.tmp / ("target-%d.py" % len(self.targets))
        script.write_text(source)
        return self.start(python, "-u", str(script), env=env)

    def plugin(self, name, source):
        """NAME.so of C text, as a stranger would build it."""
        text, made = self.tmp / (name + ".c"), self.tmp / (name + ".so")
        text.write_text(source)
        if not shutil.which("cc"):
            pytest.skip("no C compiler")
        subprocess.run(["cc", "-shared", "-fPIC", "-fvisibility=hidden", "-I",
                        str(ROOT / "include"), "-I", str(ROOT / "sdk"), str(text), "-o",
                        str(made)], check=True)
        return made

    def train(self, *args, env=None, python=DEBIAN_PYTHON):
        if not has_torch(python):
            pytest.skip("no torch for %s (Debian: python3-torch)" % python)
        target = self.start(python, "-u", str(TRAIN), *args, env=env)
        target.wait_line(r"step\D+\d+")
        return target


def lend(made):
    """A World for one test, for a fixture to yield from; nothing of it is left afterwards."""
    if not CLI.exists() or not CORE.exists():
        pytest.fail("%s is not built: run scons" % CLI)
    yield made
    for target in made.targets:
        target.end()
        if hasattr(target, "log"):  # pytest shows it of a test that failed
            print("process %d wrote:\n%s" % (target.pid, target.output()[-2000:]))
    for report in made.data.glob("*/crash"):  # who asks later has nothing else to go by
        print("%s:\n%s" % (report, report.read_text(errors="replace")[:8000]))
    made.probing("gc")  # what lies in memory file systems would outlive the test's own directory


@pytest.fixture
def world(tmp_path):
    yield from lend(World(tmp_path))


def remote_shell(world, script):
    """The environment in which other machines are reached by that script: it gets HOST and the text
    for a shell, as ssh does; %(relay)s in it is a relay that does not do as it should."""
    shell = world.tmp / "shell"
    shell.write_text(script % {"relay": FAKE_RELAY})
    shell.chmod(0o755)
    return {"PROBING_RSH": str(shell), "PROBING_REMOTE": str(CLI)}
