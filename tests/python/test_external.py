# SPDX-License-Identifier: Apache-2.0
"""`backtrace --external`: a process that is only read, never entered."""
import glob
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys

import pytest

from pythons import PYENV, PYTHONS
from test_backtrace import CHAINS, KNOWN, impossible, printed_stacks
from scripts import python_frames
from world import CLI, DEBIAN_PYTHON, World, holds_ours, wait_for

SLEEPER = """import time
def waits(n):
    print('ready', flush=True)
    time.sleep(600)
waits(7)
"""


def external(target, *words):
    target.wait_line("^ready")
    done = target.probing("backtrace", "--external", "--json", *words)
    assert done.returncode == 0, done.stderr
    return {t["tid"]: t for t in json.loads(done.stdout)["threads"]}


def memory_of(target):
    """Things that a core in the process would change."""
    return holds_ours(target.pid), len(os.listdir("/proc/%d/task" % target.pid))


def test_known_stacks(world, python):
    target = world.start(python, KNOWN)
    wait_for(lambda: len(printed_stacks(target)) == 6, "the stacks that the target prints")
    expected = printed_stacks(target)
    wait_for(lambda: all(t["state"] != "running" for t in external(target).values()), "standstill")
    threads = external(target)
    seen = [python_frames(t) for t in threads.values() if t["python"]]
    for label, rows in expected.items():
        assert [s for s in seen if any(s[i:i + len(rows)] == rows for i in range(len(s)))], label
    assert threads[target.pid]["name"] == "MainThread"
    assert threads[target.pid]["frames"][0]["type"] == "native"
    assert threads[target.pid]["syscall"]
    assert memory_of(target)[0] is False and target.alive()


def test_locals_and_words(world, python):
    target = world.start(python, SLEEPER)
    frame = external(target, "--locals", "--python", "--thread", str(target.pid))[target.pid]
    assert frame["frames"][0]["func"] == "waits" and frame["frames"][0]["locals"] == {"n": 7}
    native = wait_for(lambda: external(target, "--native")[target.pid]["frames"], "standstill")
    assert all(f["type"] == "native" for f in native)
    for words, part in (["--thread", "99999999"], "no thread"), (["--thrad"], "unexpected"):
        done = target.probing("backtrace", "--external", *words)
        assert done.returncode != 0 and part in done.stderr, done.stderr


def test_wrong_words_have_one_answer(world):
    """A process that has a core, has none, is looked at from outside, or is dead."""
    target, bare = (world.start(list(PYTHONS.values())[0], SLEEPER) for _ in range(2))
    bare.wait_line("ready")
    target.inject()
    for words in ["--thrad"], ["--thread"], ["--thread", "x"], ["--native", "--python"], \
            ["--interval"], ["--locals=all", "--json"]:
        answers = [target.probing("backtrace", *words), bare.probing("backtrace", *words),
                   target.probing("backtrace", "--external", *words)]
        assert len({(a.returncode, a.stderr) for a in answers}) == 1, answers
        assert answers[0].stderr.startswith("probing: backtrace: "), answers
    target.kill()
    assert target.probing("backtrace", "--thrad").stderr == \
        bare.probing("backtrace", "--thrad").stderr


@pytest.mark.some_pythons
def test_no_impossible_stack(world, python):
    target = world.start(python, CHAINS)
    looked = deep = 0
    while looked < 100:
        for thread in external(target, "--python").values():
            frames = python_frames(thread)
            if thread["python"] and thread["tid"] != target.pid:
                looked += 1
                deep += len(frames) > 8
                assert not impossible(frames), thread
    assert deep > looked / 20, "hardly a stack was read whole: %d of %d" % (deep, looked)


def test_of_a_stopped_process(world):
    target = world.start(list(PYTHONS.values())[0], SLEEPER)
    target.wait_line("^ready")
    os.kill(target.pid, signal.SIGSTOP)
    wait_for(lambda: open("/proc/%d/stat" % target.pid).read().split()[2] == "T", "the stop")
    assert [f["func"] for f in external(target, "--python")[target.pid]["frames"]] == \
        ["waits", "<module>"]
    os.kill(target.pid, signal.SIGCONT)


def test_watch(world):
    target = world.start(list(PYTHONS.values())[0], SLEEPER)
    target.wait_line("^ready")
    watch = subprocess.Popen([str(CLI), "-t", str(target.pid), "backtrace", "--external",
                              "--watch", "--interval", "50ms"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, env=world.env, text=True)
    seen = 0
    while seen < 3:
        line = watch.stdout.readline()
        assert line, watch.stderr.read()
        seen += bool(re.match(r"-- \d\d:\d\d:\d\d$", line))
    watch.send_signal(signal.SIGINT)
    assert watch.wait(timeout=120) in (0, -signal.SIGINT)
    target.kill()
    assert target.probing("backtrace", "--external", "--watch").returncode != 0


def look_at(world, args, *words):
    process = subprocess.Popen(args, stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: os.readlink("/proc/%d/exe" % process.pid) != sys.executable, "the exec")
        wait_for(lambda: open("/proc/%d/stat" % process.pid).read().split()[2] == "S", "the sleep")
        return world.probing("-t", str(process.pid), "backtrace", "--external", *words)
    finally:
        process.kill()
        process.wait()


def test_process_without_python(world):
    done = look_at(world, ["/bin/sleep", "600"])
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert re.search(r'^Thread \d+ "sleep" \(idle in clock_nanosleep\)$', done.stdout, flags=re.M)
    assert re.search(r"^ +0 \S*nanosleep \(libc", done.stdout, flags=re.M), done.stdout
    assert "Python" not in done.stdout, done.stdout
    done = look_at(world, ["/bin/sleep", "600"], "--python")
    assert done.returncode == 1 and "no Python" in done.stderr, done.stderr


def test_target_elsewhere(world):
    done = world.probing("-t", "127.0.0.1:1", "backtrace", "--external")
    assert done.returncode != 0 and "this machine" in done.stderr, done.stderr


def test_python_that_is_too_old(world):
    old = PYENV + "/2.7.18/bin/python2.7"
    if not os.path.exists(old):
        pytest.skip("no CPython 2.7 (pyenv)")
    done = look_at(world, [old, "-c", "import time; time.sleep(600)"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("(found no Python that can be read"), done.stdout
    assert '"python2.7" (idle' in done.stdout, done.stdout


# A CPython that has a thread run another one, which it loads for itself alone.
GUEST = """import ctypes, os, sys, threading, time
def hosts():
    guest = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
    sys.argv[2] and guest.Py_InitializeEx(0)
    print("ready", flush=True)
    if sys.argv[2]:
        guest.PyRun_SimpleString(sys.argv[2].encode())
    time.sleep(600)
threading.Thread(target=hosts, daemon=True).start()
time.sleep(600)
"""
GUEST_CODE = """import time, threading
def in_the_guest(): time.sleep(600)
threading.Thread(target=in_the_guest, daemon=True).start()
time.sleep(600)
"""


@pytest.mark.parametrize("code", [GUEST_CODE, ""])
def test_two_pythons_in_one_process(world, code):
    """Threads of both are shown; one that has not begun is in nobody's way."""
    libraries = sorted(glob.glob(PYENV + "/3.*/lib/libpython3.*.so.1.0"))
    known = [(path, re.search(r"libpython3\.(\d+)\.so", path)) for path in libraries]
    known = [path for path, found in known if found and int(found[1]) in (10, 12)]
    host = PYTHONS.get("3.11") or DEBIAN_PYTHON
    if not known or not os.path.exists(host):
        pytest.skip("needs a CPython 3.10 or 3.12 with a shared library (pyenv)")
    target = world.start(host, GUEST, arguments=[known[-1], code])

    def functions():
        return [[f["func"] for f in t["frames"] if f["type"] == "python"]
                for t in external(target).values()]
    if code:
        wait_for(lambda: any("in_the_guest" in names for names in functions()),
                 "the thread of the second Python")
    assert ["<module>"] in functions() and any("hosts" in names for names in functions())


def test_pypy_is_called_by_its_name(world):
    """A library of that name stands in for it."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    library = world.plugin("libpypy3.9-c", "int nothing;")
    target = World.start(world, "/bin/sleep", "600", env={"LD_PRELOAD": str(library)})
    wait_for(lambda: b"libpypy3.9" in open("/proc/%d/maps" % target.pid, "rb").read(), "the start")
    for words in ["--external"], []:
        done = target.probing("backtrace", *words)
        assert done.stdout.startswith("(this is PyPy, not CPython: its native stacks"), done
        assert "nanosleep (libc" in done.stdout, done.stdout
        done = target.probing("backtrace", "--python", *words)
        assert done.returncode == 1 and "this is PyPy, not CPython" in done.stderr, done.stderr
        target.inject()
    assert "this is PyPy" in target.probing("eval", "1").stderr


def test_process_of_somebody_else(world):
    if os.getuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root, to be another user")
    target = world.start(list(PYTHONS.values())[0], SLEEPER)
    done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                           str(CLI), "-t", str(target.pid), "backtrace", "--external"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.strip().split("\n")) == 1, done.stderr
    assert re.search("ermission|may not", done.stderr), done.stderr


THREADED = """import threading, time
def waits(n):
    if n:
        threading.Thread(target=waits, args=(n - 1,), daemon=True).start()
    else:
        print('ready', flush=True)
    time.sleep(600)
waits(1)
"""


@pytest.mark.some_pythons
def test_process_in_a_pid_namespace(world, python):
    """Python knows its threads by the ids that they have in there."""
    flags = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
    if not shutil.which("unshare") or subprocess.run(["unshare", *flags, "true"],
                                                     capture_output=True).returncode:
        pytest.skip("no namespaces may be made here")
    starter = World.start(world, "unshare", *flags, python, "-c", THREADED)
    starter.wait_line("^ready")
    with open("/proc/%d/task/%d/children" % (starter.pid, starter.pid)) as children:
        pid = int(children.read())

    def stacks():
        done = world.probing("-t", str(pid), "backtrace", "--external", "--python", "--json")
        assert done.returncode == 0, done.stderr
        return {t["tid"]: [f["func"].split(".")[-1] for f in t["frames"]]
                for t in json.loads(done.stdout)["threads"]}
    wait_for(lambda: "start" not in stacks()[pid], "the end of Thread.start()")
    threads = stacks()
    assert sorted(threads) == sorted(map(int, os.listdir("/proc/%d/task" % pid)))
    assert threads.pop(pid) == ["waits", "<module>"]
    assert list(threads.values()) == [["waits", "run", "_bootstrap_inner", "_bootstrap"]]


def test_id_of_a_thread(world):
    target = world.start(list(PYTHONS.values())[0], THREADED)
    target.wait_line("^ready")
    tid, = set(os.listdir("/proc/%d/task" % target.pid)) - {str(target.pid)}
    for words in (["backtrace", "--external"], ["inject"], ["query", "select 1"]):
        done = world.probing("-t", tid, *words)
        assert done.returncode != 0
        assert "%s is a thread of process %d" % (tid, target.pid) in done.stderr, done.stderr
    assert target.alive()


def test_without_memory(world):
    done = world.probing("-t", "2", "backtrace", "--external")
    if os.path.exists("/proc/2/maps") and done.returncode:
        assert "thread" in done.stderr or "permission" in done.stderr, done.stderr
    else:
        pytest.skip("process 2 is no thread of the kernel's here")


def test_watch_on_a_terminal(world):
    """Each look clears the screen; no pager waits for a key between them."""
    target = world.start(list(PYTHONS.values())[0], SLEEPER)
    target.wait_line("^ready")
    ours, theirs = pty.openpty()
    env = dict(world.env, TERM="xterm", PROBING_PAGER="cat >/dev/null")
    watch = subprocess.Popen([str(CLI), "-t", str(target.pid), "backtrace", "--external",
                              "--watch", "--interval", "50ms"], stdin=theirs, stdout=theirs,
                             stderr=theirs, env=env, start_new_session=True)
    os.close(theirs)
    seen = b""
    while seen.count(b"\033[H\033[J") < 3:
        seen += os.read(ours, 4096)
    watch.send_signal(signal.SIGINT)
    while True:
        try:
            if not os.read(ours, 4096):
                break
        except OSError:
            break
    assert watch.wait(timeout=120) in (0, -signal.SIGINT)
    os.close(ours)
    assert b"waits" in seen


BOMB = """
#include <stdio.h>
#include <unistd.h>
void bomb(void) __asm__("%s");
void __attribute__((noinline)) bomb(void) { puts("ready"); fflush(stdout); for (;;) sleep(600); }
int main(void) { bomb(); return 0; }
"""


def resident_most(pid):
    """KB."""
    with open("/proc/%s/status" % pid) as status:
        return int(re.search(r"VmHWM:\s+(\d+)", status.read())[1])


def run_measured(world, *words):
    """The command's output, and its peak memory in KB; ours before exec() counts, too."""
    command = subprocess.Popen([str(CLI), *words], stdout=subprocess.PIPE, env=world.env, text=True)
    text = command.stdout.read()
    _, status, usage = os.wait4(command.pid, 0)
    command.returncode = status
    assert status == 0, text
    return text, usage.ru_maxrss


def test_a_name_that_grows_without_end(world):
    """Each part has the one before twice: C++'s library made 500 MB and 12 s of it, from outside
    in the command, from inside in the program."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    name = "_Z1f1aPFvS_S_E"
    for n in range(1, 51, 2):
        index = "S%s_" % (digits[n] if n < 36 else digits[n // 36] + digits[n % 36])
        name += "PFv%s%sE" % (index, index)
    source, program = world.tmp / "bomb.c", world.tmp / "bomb"
    source.write_text(BOMB % name)
    subprocess.run(["cc", "-o", str(program), str(source)], check=True)
    target = World.start(world, str(program))
    target.wait_line("ready")
    text, most = run_measured(world, "-t", str(target.pid), "backtrace", "--external")
    assert name[:100] in text and " main " in text
    assert most - run_measured(world, "--version")[1] < 50000
    target.inject()
    assert name[:100] in target.probing("backtrace").stdout
    assert resident_most(target.pid) < 100000
