# SPDX-License-Identifier: Apache-2.0
"""What the other machine runs: each function test_* of CASES, one line a case on the console.

It has Python's standard library only, of whatever version that release ships.
"""
import ctypes
import os
import subprocess
import sys
import time
import traceback
import zipfile

HOME = "/probing"
CLI = HOME + "/probing"
CASE_LIMIT_S = 120
ANN = 1000
PR_CAPBSET_DROP = 24
PTRACE_SEIZE = 0x4206
CAP_SYS_PTRACE = 19

LOOP = """
import threading, time
seen = []
def refill():
    while True:
        time.sleep(0.05)
def work(n):
    total = 0
    for i in range(n):
        total += i % 7
    seen.append(total)
    time.sleep(0.001)
threading.Thread(target=refill, daemon=True, name='loader').start()
print('ready', flush=True)
while True:
    work(20000)
"""


class Target:
    """A program to enter; ended at the end of its block."""

    def __init__(self, *args, uid=0, wait=True, env=None):
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL, preexec_fn=become(uid), env=env)
        self.pid = self.process.pid
        if wait:
            self.process.stdout.readline()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def probing(self, *args, **kwargs):
        return probing("-t", str(self.pid), *args, **kwargs)

    def alive(self):
        return self.process.poll() is None


def become(uid, drop=None):
    """A child's first step: be another user, or lose a capability for good."""
    def change():
        if drop is not None:
            assert ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, drop, 0, 0, 0) == 0
        if uid:
            os.setgid(uid)
            os.setuid(uid)
    return change


def probing(*args, uid=0, ok=True, timeout=60, drop=None, command=CLI):
    done = subprocess.run([command, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=timeout, preexec_fn=become(uid, drop),
                          universal_newlines=True)
    text = done.stdout
    assert not ok or done.returncode == 0, "%s: %d %s" % (" ".join(args), done.returncode, text)
    return text if ok else (done.returncode, text)


def python_loop(uid=0):
    return Target(sys.executable, "-u", "-c", LOOP, uid=uid)


def has(text, *words):
    for word in words:
        assert word in text, "no %r in:\n%s" % (word, text)


# ------------------------------------------------------------------------------ the main job

def test_main_job_in_python():
    with python_loop() as target:
        text = target.probing("inject")
        has(text, "entered process %d" % target.pid)
        say(text.splitlines()[0])
        has(target.probing("backtrace"), "work", "refill", "loader")
        has(target.probing("eval", "len(seen) > 0, 6 * 7"), "(True, 42)")
        has(target.probing("query", "select count(*) > 1 as threads from python.backtrace"),
            "t")
        target.probing("eject")
        assert "probing/" not in threads_of(target.pid)
        has(target.probing("inject"), str(target.pid))
        assert target.alive()


def test_dead_process_is_asked():
    with python_loop() as target:
        target.probing("inject")
        target.probing("plugin", "load", HOME + "/heartbeat.so")
        enough = "select case when max(number) > 4 then 6 * 7 end from heartbeat.beats"
        for _ in range(600):
            if "42" in target.probing("query", enough):
                break
            time.sleep(0.1)
        target.process.kill()
        target.process.wait()
        has(target.probing("query", enough), "42")


def test_main_job_in_c():
    with Target("busybox", "sleep", "10000", wait=False) as target:
        while open("/proc/%d/stat" % target.pid).read().rsplit(")", 1)[1].split()[0] != "S":
            time.sleep(0.1)  # it is not there yet
        has(target.probing("inject"), "entered process")
        has(target.probing("query", "select table_name from information_schema.tables"),
            "settings")
        target.probing("eject")
        assert target.alive()


def threads_of(pid):
    folder = "/proc/%d/task" % pid
    return " ".join(open("%s/%s/comm" % (folder, t)).read().strip() for t in os.listdir(folder))


def test_wheel():
    """The files that pip would put there: it runs from there, and so does `PROBING=1`."""
    site = "/wheel/lib/python%d.%d/site-packages/" % sys.version_info[:2]
    with zipfile.ZipFile(HOME + "/probing.whl") as packed:
        for name in packed.namelist():
            kind, _, rest = name.partition(".data/")[2].partition("/")
            path = {"scripts": "/wheel/bin/" + rest, "data": "/wheel/" + rest}.get(kind,
                                                                                    site + name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(packed.read(name))
            os.chmod(path, packed.getinfo(name).external_attr >> 16 & 0o777)
    command = "/wheel/bin/probing"
    text = probing("--version", "-v", command=command)
    has(text, "library   %sprobing/_native/libprobing.so" % site)
    assert "beware" not in text and "not used" not in text, text
    env = dict(os.environ, PYTHONPATH=site)
    text = subprocess.check_output([sys.executable, "-m", "probing", "--version"], env=env)
    assert text.decode() == probing("--version", command=command)
    hook = "import site; site.addsitedir(%r)\n" % site  # the loop has no site directory of its own
    with Target(sys.executable, "-u", "-c", hook + LOOP, env=dict(env, PROBING="1")) as target:
        for _ in range(600):
            code, text = target.probing("query", "select 6 * 7", ok=False, command=command)
            if code == 0:
                break
            time.sleep(0.1)
        has(text, "42")
        has(target.probing("backtrace", command=command), "work", "refill")


# ------------------------------------------------------------------------------ CPython 3.14

SLEEP = "import time; print('ready', flush=True); time.sleep(1000)"


def test_python_3_14_by_ptrace():
    with python_loop() as target:
        has(target.probing("inject"), "stopped for")
        has(target.probing("eval", "len(seen) > 0, 6 * 7"), "(True, 42)")
        has(target.probing("backtrace"), "refill", '"loader"', "clock_nanosleep", "work")
        target.probing("plugin", "load", HOME + "/heartbeat.so")
        target.probing("eject")


def test_python_3_14_by_remote_exec():
    with python_loop() as target:
        has(target.probing("inject", "--dry-run", "--way", "remote"), str(target.pid))
        has(target.probing("inject", "--way", "remote"), "by its interpreter")
        has(target.probing("eval", "len(seen) > 0, 6 * 7"), "(True, 42)")
        has(target.probing("inject", "--way", "remote"), "already")
        for path in os.listdir("/proc/%d/task" % target.pid):
            task = "/proc/%d/task/%s/" % (target.pid, path)
            if open(task + "comm").read().startswith("probing"):
                has(open(task + "status").read(), "SigBlk:\tfffffff")
        target.probing("eject")
        has(target.probing("inject", "--way", "remote"), "entered")
        has(target.probing("eval", "'exec' in dir(), 'settings' in dir()"), "(False, False)")
    assert not [n for n in os.listdir("/dev/shm") + os.listdir("/tmp") if "probing-core" in n]


def test_remote_exec_beside_a_debugger():
    libc = ctypes.CDLL(None, use_errno=True)
    with python_loop() as target:
        assert libc.ptrace(PTRACE_SEIZE, target.pid, None, None) == 0
        refusal = target.probing("inject", "--way", "ptrace", ok=False)
        assert refusal[0] != 0
        has(refusal[1], "already traced")
        has(target.probing("inject"), "by its interpreter")
        has(target.probing("eval", "6 * 7"), "42")


def test_remote_exec_gives_up_and_leaves_nothing():
    with Target(sys.executable, "-u", "-c", SLEEP) as target:
        code, text = target.probing("inject", "--way", "remote", "--timeout", "1s", ok=False)
        assert code != 0
        has(text, "ran no Python")
        assert not [n for n in os.listdir("/dev/shm") + os.listdir("/tmp") if "probing-core" in n]
        has(target.probing("inject"), "stopped for")
    with Target(sys.executable, "-X", "disable-remote-debug", "-u", "-c", LOOP) as target:
        code, text = target.probing("inject", "--way", "remote", ok=False)
        has(text, "has remote debugging off")


# ------------------------------------------------------------------------------ unit tests

def unit_test(path):
    def run():
        with open("/tmp/output", "w+") as out:
            test = subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT, cwd="/tmp")
            try:
                code = test.wait(CASE_LIMIT_S)
            except subprocess.TimeoutExpired:
                test.kill()
                code = "none, it hangs"
            out.seek(0)
            lines = out.read().splitlines()
        for line in lines:
            if line.startswith(("#", "not ok")):
                say(line)
        assert code in (0, 77), "exit code %s after %s" % (code, lines[-1:])
        say("%d cases" % len([n for n in lines if n.startswith("ok ")]))
    run.__name__ = "unit_" + os.path.basename(path)
    return run


# ------------------------------------------------------------------------------ who may trace

def set_scope(scope):
    with open("/proc/sys/kernel/yama/ptrace_scope", "w") as out:
        out.write(str(scope))


def test_yama_0_lets_the_same_user():
    set_scope(0)
    with python_loop(ANN) as target:
        has(target.probing("inject", uid=ANN), "entered process")
        has(target.probing("eval", "6 * 7", uid=ANN), "42")


def refused(target, uid, *words, drop=None):
    code, text = target.probing("inject", uid=uid, ok=False, drop=drop)
    assert code != 0, text
    assert len(text.strip().splitlines()) == 1, "one line:\n" + text
    has(text, *words)
    assert target.alive()
    say(text.strip())


def test_yama_1_names_itself_and_root_may():
    set_scope(1)
    with python_loop(ANN) as target:
        refused(target, ANN, "ptrace_scope is 1", "sudo", "PROBING=1")
        has(target.probing("inject"), "entered process")


def test_yama_1_is_not_asked_about_others():
    set_scope(1)
    with python_loop() as target:
        refused(target, ANN, "belongs to uid 0", "sudo")


def test_yama_2_wants_a_capability():
    set_scope(2)
    with python_loop(ANN) as target:
        refused(target, ANN, "ptrace_scope is 2", "sudo", "PROBING=1")
        has(target.probing("inject"), "entered process")


def test_yama_2_root_without_the_capability():
    set_scope(2)
    with python_loop() as target:
        refused(target, 0, "CAP_SYS_PTRACE", drop=CAP_SYS_PTRACE)


def test_yama_3_refuses_even_root():
    """Last: it cannot be lowered again."""
    set_scope(3)
    with python_loop() as target:
        refused(target, 0, "ptrace_scope is 3", "PROBING=1")
    with python_loop(ANN) as target:
        refused(target, ANN, "ptrace_scope is 3", "PROBING=1")


# ------------------------------------------------------------------------------ running it all

def say(text):
    for line in text.splitlines():
        print("# " + line, flush=True)


def run_case(case):
    name = case.__name__
    name = name[5:] if name.startswith("test_") else name
    begin = time.time()
    try:
        case()
        verdict = "ok"
    except Exception:
        say(traceback.format_exc())
        verdict = "not ok"
    print("%s %s (%.1f s)" % (verdict, name, time.time() - begin), flush=True)


def main():
    words = open(HOME + "/cases").read().split()
    cases = [unit_test(w) if w.startswith("/") else globals()["test_" + w] for w in words]
    print("# kernel %s, Python %s, libc %s" % (os.uname().release, sys.version.split()[0],
                                               os.confstr("CS_GNU_LIBC_VERSION")), flush=True)
    for case in cases:
        run_case(case)
    print("end of %d cases" % len(cases), flush=True)


if __name__ == "__main__":
    main()
