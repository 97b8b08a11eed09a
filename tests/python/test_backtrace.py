# SPDX-License-Identifier: Apache-2.0
"""Stacks against what the interpreter says about itself, on every CPython of the machine."""
import json
import os
import re
import signal
import socket

import pytest
from pythons import PYTHONS, is_threaded, minor_of
from scripts import python_frames
from world import wait_for

# Prints its own stacks as traceback sees them, then stays where it printed them.
KNOWN = '''# -*- coding: utf-8 -*-
import json, sys, threading, time, traceback
stop = threading.Event()

def say(label):
    rows = [(f.name, f.lineno) for f in traceback.extract_stack()]
    sys.stdout.write("stack %s %s\\n" % (label, json.dumps(rows[:-1])))

def deep(n, label):
    if n:
        return deep(n - 1,
                    label)
    else:
        value = [x for x in
                 (1, 2)]
        try:
            say(label); stop.wait(600)

        finally:
            pass


def generator(label):
    yield 1
    deep(3, label)
    yield 2

class Größe:
    def __init__(self, label):
        for _ in generator(label):
            pass

    @property
    def lazy(self):
        return deep(2, "property")

class Late(Größe):
    def __init__(self): pass

%s
def through_c(label):
    # a native call between two Python ones
    sorted([2, 1], key=lambda v: deep(
        1, label))

threads = [threading.Thread(target=t, args=a, daemon=True) for t, a in
           [(deep, (20, "recursion")), (Größe, ("generator",)), (through_c, ("sorted",)),
            (lambda: Late().lazy, ()), (exec, (compile(
                "\\n\\ndeep(1, 'exec')\\n", "<made>", "exec"), globals()))]]
for t in threads: t.start()
while threading.active_count() < 6: pass
time.sleep(0.2)
print("ready", flush=True)
deep(5, "main")
'''
KNOWN = KNOWN.replace("\n%s\n", "\n" * 300 + "lambda: 0\n")  # lines beyond a byte


def printed_stacks(target):
    """{label: [(function, line)], innermost first}, as the target's own traceback module says."""
    stacks = {}
    for label, rows in re.findall(r"^stack (\w+) (.*)$", target.output(), flags=re.M):
        stacks[label] = [tuple(row) for row in reversed(json.loads(rows))]
    return stacks


def test_known_stacks(world, python):
    target = world.start(python, KNOWN)
    target.inject()
    wait_for(lambda: len(printed_stacks(target)) == 6, "the stacks that the target prints")
    expected = printed_stacks(target)
    wait_for(lambda: all(t["state"] != "running" for t in target.threads().values()),
             "all threads to stand still")
    seen = [python_frames(t) for t in target.threads().values() if t["python"]]
    for label, rows in expected.items():
        fits = [s for s in seen if any(s[i:i + len(rows)] == rows for i in range(len(s)))]
        assert len(fits) == 1, "%s\nexpected %r\nin %r" % (label, rows, seen)
    assert target.alive()


def test_native_frames_stand_between(world, python):
    target = world.start(python, KNOWN).inject()
    wait_for(lambda: len(printed_stacks(target)) == 6, "the stacks that the target prints")
    wait_for(lambda: all(t["state"] != "running" for t in target.threads().values()), "standstill")
    thread, = [t for t in target.threads().values()
               if "through_c" in [f["func"] for f in t["frames"]]]
    kinds = [f["type"] for f in thread["frames"]]
    names = [f["func"] for f in thread["frames"]]
    outer, inner = names.index("through_c"), max(i for i, n in enumerate(names) if n == "deep")
    assert kinds[0] == "native", "what it waits in comes first: %r" % names
    if "3.11/python3" not in python and kinds[inner:outer].count("native") == 0:
        # a stripped interpreter has no names for its static functions, and they are left out
        assert not [n for n in names[inner:outer] if "sort" in n]
    text = target.probing("backtrace").stdout
    assert re.search(r"^Thread \d+ \"MainThread\" \(waiting( in futex)?\)$", text, flags=re.M), text
    assert re.search(r"^ *\d+ deep +\S+\.py:%d$" % dict(printed_stacks(target)["main"])["deep"],
                     text, flags=re.M), text
    only = target.threads("--thread", str(target.pid))
    assert list(only) == [target.pid]
    assert all(f["type"] == "python" for f in target.threads("--python")[target.pid]["frames"])
    assert all(f["type"] == "native" for f in target.threads("--native")[target.pid]["frames"])


# A C function calls back all the time: in each true stack qsort() is called by outer() and calls
# compare(), which may be half way in or out.
CALLED_BACK = '''
import ctypes
libc = ctypes.CDLL(None)
number = ctypes.POINTER(ctypes.c_int)
def numbers():
    yield from range(32, 0, -1)
def inner(n):
    return inner(n - 1) if n else 0
@ctypes.CFUNCTYPE(ctypes.c_int, number, number)
def compare(a, b):
    inner(2)
    return a[0] - b[0]
def outer():
    array = (ctypes.c_int * 32)(*numbers())
    libc.qsort(array, 32, 4, compare)
print("ready", flush=True)
while True: outer()
'''


@pytest.mark.some_pythons
def test_callbacks_stand_where_they_were_called(world, python):
    target = world.start(python, CALLED_BACK).inject()
    looks = merged = called = 0
    while looks < 40 or called < 12:  # in one of three it is called back just then
        assert looks < 1000, (merged, called)
        looks += 1
        done = target.probing("backtrace", "--json", "--thread", str(target.pid))
        thread, = json.loads(done.stdout)["threads"]
        assert "warning" not in json.loads(done.stdout) and not done.stderr, done.stderr
        names = [f["func"] for f in thread["frames"]]
        sorts = [i for i, n in enumerate(names) if n in ("qsort", "qsort_r", "msort_with_tmp")
                 or n.startswith("msort")]
        ours = [n for n in names if n in ("inner", "compare", "outer", "<module>")]
        assert ours == sorted(ours, key=["inner", "compare", "outer", "<module>"].index), names
        if thread.get("notes"):
            continue
        merged += 1
        if "compare" in names:
            called += 1
            assert sorts and names.index("compare") < sorts[0], names
        if sorts:
            assert sorts[-1] < names.index("outer"), names
        assert "inner" not in names or "compare" in names, names
    assert merged >= 0.9 * looks, (merged, looks)  # of 500 one is not


STUCK = {
    "spin": ("while True: pass  # here", True),
    "lock": ("lock = threading.Lock(); lock.acquire(); lock.acquire()  # here", False),
    "gil": ("ctypes.PyDLL(None).sleep(600)  # here", True),
    "c": ("sum(range(10**12))  # here", True),
}


@pytest.mark.some_pythons
@pytest.mark.parametrize("case", sorted(STUCK))
def test_stuck_before_we_came(world, python, case):
    code, holds = STUCK[case]
    target = world.start(python, "import ctypes, threading\n"
                         "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
                         "def stuck():\n    print('ready', flush=True)\n    %s\nstuck()\n" % code)
    target.inject()

    def stuck():
        nonlocal main
        main = target.threads()[target.pid]
        return python_frames(main) == [("stuck", target.line("here")), ("<module>", 6)]
    main = None
    wait_for(stuck, lambda: main)
    if case != "c":  # there the GIL may be asked for and given back between two numbers
        assert main["gil"] == (holds and not is_threaded(python))
    assert target.alive()


def test_threads_without_python_and_names(world, python):
    target = world.start(python, """
import ctypes, threading, time
libc = ctypes.CDLL(None)
entry = ctypes.cast(libc.pause, ctypes.c_void_p)
handle = ctypes.c_ulong()
libc.pthread_create(ctypes.byref(handle), None, entry, None)
print("ready", flush=True)
time.sleep(600)
""").inject()
    threads = target.threads()
    assert [t["python"] for t in threads.values()] == [True, False]
    assert list(threads)[0] == target.pid, "main thread first"
    assert not [t for t in threads.values() if t["name"].startswith("probing/")]
    assert [t for t in target.threads("--all").values() if t["name"].startswith("probing/")]


def test_names_of_threading(world, python):
    target = world.start(python, """
import threading, time
class Own(threading.Thread):
    def __init__(self, **more):
        super().__init__(daemon=True, **more)
        self.more = 1
for kind, name in (threading.Thread, "größer"), (Own, "own"):
    t = kind(target=time.sleep, args=(600,), name=name)
    t.daemon = True
    t.start()
t = Own(target=time.sleep, args=(600,))
t.__dict__
t.name = "renamed"
t.start()
print("ready", flush=True)
time.sleep(600)
""").inject()
    assert [t["name"] for t in target.threads().values()][:4] == ["MainThread", "größer", "own",
                                                                  "renamed"]


COLUMNS = """
import time
def first(x): return x
def f():
    print("ready", flush=True)
    return first(1) + first(  time.sleep(600)  )
f()
"""


def test_columns(world, python):
    target = world.start(python, COLUMNS).inject()
    wait_for(lambda: target.threads()[target.pid]["state"] == "idle", "it to sleep")
    frame, _ = [f for f in target.threads()[target.pid]["frames"] if f["type"] == "python"]
    if minor_of(python) < 11:
        assert "column" not in frame
        return
    line = COLUMNS.split("\n")[frame["line"] - 1]
    assert line[frame["column"] - 1:frame["end_column"]] == "time.sleep(600)"
    rows = target.rows("select func, colno from python.backtrace where frame_type = 'python' "
                       "order by depth")
    assert rows == [["f", frame["column"]], ["<module>", 1]]


NESTED = """
import threading, time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
inner = "import time\\ndef within(): time.sleep(600)\\nwithin()"
alone = interpreters.create()
def outer():
    run = getattr(interpreters, "run_string", None) or interpreters.exec
    print("ready", flush=True)
    run(alone, inner)
outer()
"""


def test_interpreter_in_interpreter(world, python):
    target = world.start(python, NESTED).inject()
    main = wait_for(lambda: [t for t in target.threads().values() if
                             "within" in [f["func"] for f in t["frames"]]],
                    "the inner interpreter to sleep")[0]
    names = [f["func"] for f in main["frames"] if f["type"] == "python"]
    assert names == ["within", "<module>", "outer", "<module>"]
    assert main["tid"] == target.pid and main["name"] == "MainThread"


THREADED = NESTED.replace("outer()\n", "") + """
threading.Thread(target=outer, name="guest", daemon=True).start()
time.sleep(600)
"""


def test_interpreter_of_another_thread(world, python):
    """Its first thread state says that it is the main thread's, which made it."""
    if minor_of(python) < 11:
        pytest.skip("before 3.11 nothing tells which thread runs it")
    target = world.start(python, THREADED).inject()
    wait_for(lambda: [t for t in target.threads().values()
                      if "within" in [f["func"] for f in t["frames"]]], "the inner one to sleep")
    threads = target.threads()
    assert [name for name, _ in python_frames(threads.pop(target.pid))] == ["<module>"]
    guest, = [t for t in threads.values() if t["name"] == "guest"]
    assert [name for name, _ in python_frames(guest)][:3] == ["within", "<module>", "outer"]
    assert not guest.get("notes"), guest["notes"]


DEEP = """
import sys, threading, time
sys.setrecursionlimit(20000)
threading.stack_size(256 << 20)
def deep(n):
    if n:
        return deep(n - 1)
    print("ready", flush=True)
    time.sleep(600)
threading.Thread(target=deep, args=(10000,), name="deep", daemon=True).start()
time.sleep(600)
"""


def test_deep_recursion(world, python):
    target = world.start(python, DEEP).inject()
    thread, = [t for t in target.threads().values() if t["name"] == "deep"]
    names = [name for name, _ in python_frames(thread)]
    assert names[:10001] == ["deep"] * 10001 and names[10001:][:1] == ["run"]
    text = target.probing("backtrace").stdout
    assert text.count(" deep ") == 4 and "... the same 9997 times more\n" in text, text[:3000]


def test_wait_that_was_interrupted(world):
    """The kernel calls it restart_syscall from then on."""
    target = world.start(list(PYTHONS.values())[0],
                         "import ctypes\nprint('ready', flush=True)\n"
                         "ctypes.CDLL(None).sleep(600)\n")
    target.wait_line("^ready")
    wait_for(lambda: open("/proc/%d/stat" % target.pid).read().split()[2] == "S", "the sleep")
    for number, state in (signal.SIGSTOP, "T"), (signal.SIGCONT, "S"):
        os.kill(target.pid, number)
        wait_for(lambda: open("/proc/%d/stat" % target.pid).read().split()[2] == state, state)
    done = target.probing("backtrace", "--external", "--json")
    thread, = json.loads(done.stdout)["threads"]
    assert (thread["state"], thread["syscall"]) == ("idle", "clock_nanosleep"), thread


def test_wrong_words(world):
    python = list(PYTHONS.values())[0]
    target = world.start(python, "import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    target.inject()
    for words, part in (["--thrad"], "unexpected argument"), (["--thread"], "thread id"), \
            (["--thread", "12x"], "thread id"), (["--thread", "99999999"], "no thread"), \
            (["--native", "--python"], "exclude"), (["--local"], "unexpected argument"):
        done = target.probing("backtrace", *words)
        assert done.returncode != 0 and part in done.stderr, (words, done.stdout, done.stderr)
        assert len(done.stderr.strip().split("\n")) == 1, done.stderr
    assert target.alive()


# Threads whose every true stack is a chain f0 f1 f2 ... or g0 g1 g2 ..., up to 28 deep.
CHAINS = "\n".join(
    ["import threading, time"] +
    ["def %s%d(n):\n    return n if n == %d else %s%d(n)" % (c, i, i, c, i + 1)
     for c in "fg" for i in range(28)] +
    ["def f28(n): return n\ndef g28(n): return n",
     "def work():\n    i = 0\n    while True:\n        i += 1\n"
     "        (f0 if i & 1 else g0)(i % 29)",
     "for _ in range(4): threading.Thread(target=work, daemon=True).start()",
     "print('ready', flush=True)", "time.sleep(600)"])


def impossible(frames):
    """Is this stack one that the program above cannot have?"""
    chain = [name for name, _ in reversed(frames) if re.fullmatch(r"[fg]\d+", name)]
    return chain != ["%s%d" % (chain[0][0], i) for i in range(len(chain))] if chain else False


@pytest.mark.some_pythons
def test_no_impossible_stack(world, python):
    target = world.start(python, CHAINS).inject()
    looked = deep = 0
    while looked < 200:
        for thread in target.threads("--python").values():
            frames = python_frames(thread)
            if thread["python"] and thread["tid"] != target.pid:
                looked += 1
                deep += len(frames) > 8
                assert not impossible(frames), thread
    assert deep > looked / 20, "hardly a stack was read whole: %d of %d" % (deep, looked)
    assert target.alive()


@pytest.mark.some_pythons
def test_table(world, python):
    target = world.start(python, """
import time
def waits():
    print("ready", flush=True)
    time.sleep(600)  # here
waits()
""").inject()
    done = target.probing("query", "--format", "json",
                          "select depth, func, lineno, state from python.backtrace "
                          "where frame_type = 'python' order by depth")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [row[1:3] for row in rows] == [["waits", target.line("here")], ["<module>", 6]]
    assert rows[0][3] == "idle"


MANY_THREADS = """
import threading, time
def loads():
    time.sleep(600)
def step():
    print("ready", flush=True)
    time.sleep(600)  # here
def train():
    step()  # train
for _ in range(4):
    threading.Thread(target=loads, daemon=True).start()
train()  # start
"""


@pytest.mark.some_pythons
def test_the_table_begins_with_what_the_main_thread_does(world, python):
    """With threads, `order by depth limit n` gave each one's innermost frame, native first."""
    target = world.start(python, MANY_THREADS).inject()
    own = [["step", target.line("here")], ["train", target.line("train")],
           ["<module>", target.line("start")]]
    for order in ("", " order by depth"):
        rows = target.rows("select func, lineno, depth from python.backtrace%s limit 3" % order)
        assert rows == [row + [depth] for depth, row in enumerate(own)], order
    rows = target.rows("select depth, thread_id, frame_type, level from python.backtrace "
                       "order by depth")
    assert [row[0] for row in rows] == list(range(len(rows)))
    threads = list(dict.fromkeys(row[1] for row in rows))
    assert threads[0] == target.pid and len(threads) >= 5
    for tid in threads:  # one after the other; in each of them every level once
        mine = [row for row in rows if row[1] == tid]
        assert mine == rows[rows.index(mine[0]):][:len(mine)]
        assert sorted(row[3] for row in mine) == list(range(len(mine)))
        assert [row[2] for row in mine] == sorted((row[2] for row in mine), reverse=True)
    shown = [f["func"] for f in target.threads()[target.pid]["frames"]]
    assert shown == [row[0] for row in target.rows(
        "select func from python.backtrace where thread_id = %d order by level" % target.pid)]


@pytest.mark.some_pythons
def test_names_that_are_no_text_are_json_all_the_same(world, python):
    """By HTTP the bytes come as they are written: a thread may be called anything."""
    target = world.start(python, '''
import _thread, ctypes, time
def named():
    ctypes.CDLL(None).prctl(15, b"bad\\xff\\xc0name", 0, 0, 0)
    print("ready", flush=True)
    time.sleep(600)
_thread.start_new_thread(named, ())  # threading knows no name of it
time.sleep(600)
''')
    target.inject()
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(60)
        asked.connect(str(next(world.data.glob("%d-*/sock" % target.pid))))
        body = b'{"run":["backtrace","--json"]}'
        asked.sendall(b"POST /run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                      b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = b"".join(iter(lambda: asked.recv(65536), b""))
    head, _, text = answer.partition(b"\r\n\r\n")
    assert b" 200 " in head and b"chunked" not in head
    names = [thread["name"] for thread in json.loads(text.decode("utf-8"))["threads"]]
    assert any("bad\ufffd\ufffdname" in name for name in names), names


# Threads that all wait at one place, as those of a server do.
CROWD = """
import threading
threading.stack_size(64 * 1024)
ends = threading.Event()
def waits(): ends.wait()
for n in range(%d): threading.Thread(target=waits, daemon=True, name="one of %%d" %% n).start()
print("ready", flush=True)
ends.wait()
"""


def read_for_a_look(world, python, threads):
    """Bytes of files, /proc above all, that a look reads for each of so many threads."""
    target = world.start(python, CROWD % threads).inject()

    def bytes_read():
        with open("/proc/%d/io" % target.pid) as io:
            return int(io.readline().split()[1])

    for _ in range(2):  # the first one reads files of symbols, too
        before = bytes_read()
        names = [t["name"] for t in target.threads("--all").values()]
    assert {"one of %d" % n for n in range(threads)} < set(names)
    return (bytes_read() - before) / threads


@pytest.mark.some_pythons
def test_a_look_costs_each_thread_the_same(world, python):
    """However many there are: each has mappings of its own, and all are read once, not for each."""
    if not os.path.exists("/proc/self/io"):
        pytest.skip("this kernel does not count what is read (CONFIG_TASK_IO_ACCOUNTING)")
    few, many = (read_for_a_look(world, python, n) for n in (100, 800))
    assert many < 1.5 * few, (few, many)
