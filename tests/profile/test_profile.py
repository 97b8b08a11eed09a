# SPDX-License-Identifier: Apache-2.0
"""The profiler: what it says is so, and nobody notices it."""
import os
import re
import signal

import pytest
from pythons import FULL
from samples import by_chance, folded, handled_signals, helper, name, share
from world import DEBIAN_PYTHON, wait_for

SPLIT = '''
import sys, threading, time
def burn(n):
    total = 0
    for i in range(n):
        total += i * i
    return total
def seventy():
    end = time.thread_time() + 0.007
    while time.thread_time() < end:
        burn(200)
def thirty():
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        burn(200)
def work():
    while True:
        seventy()
        thirty()
for i in range(2):
    threading.Thread(target=work, daemon=True, name="worker %d" % i).start()
print("ready", flush=True)
work()
'''


def samples(target, least, what="count(*)", where="true"):
    """Wait until there are so many samples."""
    def enough():
        rows = target.rows("select %s from python.samples where %s" % (what, where))
        return (rows[0][0] or 0) >= least
    wait_for(enough, "%d samples" % least, 120)


def profile(target, *arguments):
    done = target.probing("flamegraph", "--format", "folded", *arguments, timeout=120)
    assert done.returncode == 0, done.stderr
    return folded(done.stdout)


@pytest.mark.some_pythons
def test_python_shares(world, python):
    """70 and 30 percent are told as such; a period as long as the sampler's fools nobody."""
    target = world.python(SPLIT, python)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    samples(target, 4 if FULL else 2, "sum(cpu_ns)::double / 1000000000")
    stacks = profile(target)
    whole = [(s, v) for s, v in stacks if name(s[0]) in ("<module>", "_bootstrap")]
    assert sum(v for _, v in whole) > 0.98 * sum(v for _, v in stacks), stacks
    part = share(whole, "seventy") / (share(whole, "seventy") + share(whole, "thirty"))
    assert abs(part - 0.7) < by_chance(target, 0.7), part
    names = {row[0] for row in target.rows("select distinct thread_name from python.samples")}
    assert {"worker 0", "worker 1"} <= names
    for stack, _ in whole:  # only what calls each other stands on each other
        words = [name(f) for f in stack if f.endswith(".py)")]
        after = words[words.index("work"):] if "work" in words else []
        assert after[:1] in ([], ["work"])
        assert after[1:2] in ([], ["seventy"], ["thirty"]), words
        assert after[2:] in ([], ["burn"]), words


def test_native_shares(world):
    target = world.start(helper("natives"), "3")
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    samples(target, 4, "sum(cpu_ns) / 1000000000")
    stacks = profile(target)
    total = sum(v for _, v in stacks)
    whole = sum(v for s, v in stacks if {"main", "on_thread"} & {name(f) for f in s})
    assert whole > 0.97 * total
    part = share(stacks, "seventy") / share(stacks, "work")
    assert abs(part - 0.7) < by_chance(target, 0.7), part
    times = target.rows("select sum(cpu_ns), count(distinct thread_id) from python.samples")[0]
    assert times[1] == 3 and times[0] >= total


@pytest.mark.parametrize("mode", ["cpu", "wall"])
def test_no_system_call_is_interrupted(world, mode):
    target = world.start(helper("waits"))
    target.wait_line("ready")
    target.inject()
    assert target.probing("plugin", "load", "profile").returncode == 0
    assert target.probing("config", "profile.mode=" + mode).returncode == 0
    assert target.probing("config", "profile.rate=1000").returncode == 0
    begun = int(re.findall(r"waited (\d+)", target.wait_line(r"waited \d+") and
                           target.output())[-1])
    wait_for(lambda: int(re.findall(r"waited (\d+)", target.output())[-1]) > begun + 3000,
             "the program's waits")
    assert set(re.findall(r"interrupted (\d+)", target.output())) == {"0"}
    if mode == "wall":
        assert target.rows("select count(distinct thread_id) from python.samples "
                           "where wall_ns > 0 and coalesce(cpu_ns, 0) = 0")[0][0] >= 10


@pytest.mark.some_pythons
def test_waits_have_names(world, python):
    target = world.python('''
import threading, time
lock = threading.Lock()
lock.acquire()
def waits_for_lock():
    lock.acquire()
threading.Thread(target=waits_for_lock, daemon=True).start()
def sleeps():
    while True:
        time.sleep(0.2)
print("ready", flush=True)
sleeps()
''', python)
    target.wait_line("ready")
    target.inject()
    stacks = profile(target, "--seconds", "2.5", "--mode", "wall")
    assert 0.4 < share(stacks, "sleeps") < 0.6
    assert 0.4 < share(stacks, "waits_for_lock") < 0.6
    # a process that uses no CPU time has no samples of it, and that is said
    done = target.probing("flamegraph", "--last", "1s", "--mode", "gil", "--format", "folded")
    assert done.returncode == 1 and "no samples of mode gil" in done.stderr


# Beside another process on one processor; prints the seconds of the worker and of the yielder.
CROWDED = '''
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        sum(range(10000))
    os._exit(0)
def worker(end):
    while time.monotonic() < end:
        sum(range(1000))
def yielder():
    for i in range(10):
        os.sched_yield()
times = [0, 0]
said = time.monotonic()
print("ready", flush=True)
while True:
    begin = time.monotonic()
    worker(begin + 0.002)
    middle = time.monotonic()
    yielder()
    end = time.monotonic()
    times[0] += middle - begin
    times[1] += end - middle
    if end - said > 0.5:
        said = end
        print("spent %.6f %.6f" % tuple(times), flush=True)
'''


@pytest.mark.some_pythons
def test_a_wait_for_a_processor_is_one(world, python):
    """It is counted where the thread stands, not where its last sample was, which is one of those
    moments at which it ran."""
    target = world.python(CROWDED, python)
    target.wait_line("ready")
    target.inject()

    def spent():
        said = re.findall(r"^spent ([\d.]+) ([\d.]+)$", target.output(), re.M)
        return [float(n) for n in said[-1]] if said else None
    before = wait_for(spent, "what it says first")
    stacks = profile(target, "--seconds", "3", "--mode", "wall")
    after = spent()
    worker, yielder = (b - a for a, b in zip(before, after))
    truth = yielder / (worker + yielder)  # of those seconds
    assert share(stacks, "yielder") > 0.5 * truth, stacks
    assert share(stacks, "worker") > 0.2 * (1 - truth), stacks
    waits = [stack for stack, _ in stacks if stack[-1] == "[waiting for a CPU]"]
    assert any("yielder" in map(name, stack) for stack in waits), stacks


# Code without an unwind table that uses the frame pointer for something else, called with a Python
# function and C between it and the main program.
BROKEN = '''
import ctypes, mmap
CODE = bytes.fromhex("55" "31ed" "4889f9" "48ffc9" "75fb" "5d" "c3")
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(CODE)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
kernel = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(address)
print("ready", flush=True)
def inner():
    kernel(20000000)
    sum(range(400000))
through_c = ctypes.CFUNCTYPE(None)(inner)
def outer():
    while True:
        through_c()
outer()
'''


@pytest.mark.some_pythons
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the code in it is x86-64's")
def test_a_broken_stack_stands_in_its_tower(world, python):
    """Native code between Python functions is there, too, where only a part of a stack is."""
    target = world.python(BROKEN, python)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    samples(target, 2, "sum(cpu_ns) / 1000000000")
    stacks = profile(target)
    broken = [(stack, ns) for stack, ns in stacks if stack[-1] == "[unknown]"]
    assert broken and all("[native frames not read]" in stack for stack, _ in broken), stacks
    def outside(stack):  # as C begins to call a Python function
        return "inner" not in map(name, stack)
    # That code has no table either: three instructions in anonymous memory, a call of which misses
    # every cache, so 1 us of 20 ms.  Of 200 samples 10 are that by chance once in 10^20 times.
    assert sum(ns for stack, ns in broken if outside(stack)) < 0.05 * sum(ns for _, ns in stacks)
    whole = [stack for stack, _ in stacks if "[native frames not read]" not in stack]
    def way(stack):
        words = list(map(name, stack))
        return words[words.index("outer") + 1:words.index("inner")]
    ways = {tuple(way(s)) for s in whole if {"outer", "inner"} <= set(map(name, s))}
    within = [stack for stack, _ in broken if not outside(stack)]
    assert ways and () not in ways and {tuple(way(s)) for s in within} <= ways, stacks
    for stack, _ in broken:
        last = "outer" if outside(stack) else "inner"
        assert list(map(name, stack))[-3:] == [last, "[native frames not read]", "[unknown]"], stack


def test_who_holds_the_gil(world):
    """Two threads burn, and only the one that runs Python holds the GIL."""
    target = world.python('''
import hashlib, threading
data = b"x" * 50000000
def without():
    while True:
        hashlib.sha256(data)
threading.Thread(target=without, daemon=True).start()
def with_gil():
    while True:
        pass
print("ready", flush=True)
with_gil()
''', DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject()
    both = profile(target, "--seconds", "2", "--mode", "cpu")
    held = profile(target, "--seconds", "2", "--mode", "gil")
    assert share(both, "without") > 0.2
    assert share(held, "with_gil") > 0.9


def test_live_settings(world):
    target = world.python(SPLIT, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    samples(target, 10)
    for value, word in (("profile.rate=0", "1"), ("profile.rate=10001", "10000"),
                        ("profile.mode=fast", "cpu")):
        done = target.probing("config", value)
        assert done.returncode == 1 and word in done.stderr, done.stderr
    assert target.probing("config", "profile.rate=1").returncode == 0
    assert target.probing("config", "profile.rate=1000").returncode == 0
    samples(target, 300)
    assert "1000 samples a second" in target.probing("profile").stdout


def test_rates_above_the_tick(world):
    """If the kernel permits finer clocks, 4,000 Hz is that; sums stay right."""
    target = world.start(helper("natives"))
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("config", "profile.rate=4000").returncode == 0
    samples(target, 3, "sum(cpu_ns) / 1000000000")
    if "no finer clocks" in target.probing("profile").stdout:
        pytest.skip("the kernel permits no perf events here")
    count, cpu = target.rows("select count(*), sum(cpu_ns) / 1e9 from python.samples")[0]
    lost = int(re.search(r"(\d+) lost", target.probing("profile").stdout)[1])
    assert (count + lost) / cpu > 1000
    assert abs(share(profile(target), "seventy") - 0.7) < by_chance(target, 0.7)
    before = target.rows("select count(*) from python.samples")[0][0]
    assert target.probing("config", "profile.rate=20").returncode == 0
    samples(target, before + 10)
    assert not any("perf_event" in os.readlink("/proc/%d/fd/%s" % (target.pid, f))
                   for f in os.listdir("/proc/%d/fd" % target.pid))


def test_nothing_is_left(world):
    """Off is off: no thread, no timer, no handler; on again works."""
    target = world.python(SPLIT, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject()
    before = handled_signals(target.pid)
    for rate in (100, 5000, 100):
        assert target.probing("plugin", "load", "profile").returncode == 0
        assert target.probing("config", "profile.rate=%d" % rate).returncode == 0
        samples(target, 20)
        assert handled_signals(target.pid) - before == {signal.SIGURG}
        done = target.probing("plugin", "stop", "profile")
        assert done.returncode == 0, done.stderr
        assert handled_signals(target.pid) == before
        links = [os.readlink(path) for path in
                 ("/proc/%d/fd/%s" % (target.pid, f)
                  for f in os.listdir("/proc/%d/fd" % target.pid)) if os.path.islink(path)]
        assert not any("perf_event" in link for link in links)
        names = [open(path).read() for path in
                 ("/proc/%d/task/%s/comm" % (target.pid, t)
                  for t in os.listdir("/proc/%d/task" % target.pid)) if os.path.exists(path)]
        assert "probing/profile\n" not in names
        timers = "/proc/%d/timers" % target.pid
        if os.path.exists(timers):
            assert open(timers).read() == ""
    assert target.alive()


@pytest.mark.some_pythons
def test_forks_and_execs(world, python):
    """Children, by fork and by exec, live undisturbed while the parent is sampled."""
    target = world.python('''
import os, subprocess, sys, threading, time
def burn():
    while True:
        sum(range(1000))
threading.Thread(target=burn, daemon=True).start()
print("ready", flush=True)
n = 0
while True:
    pid = os.fork()
    if pid == 0:
        end = time.process_time() + 0.03
        while time.process_time() < end:
            pass
        os._exit(7)
    assert os.waitpid(pid, 0)[1] == 7 << 8
    n += 1
    if n % 10 == 0:
        assert subprocess.run([sys.executable, "-c", "print(sum(range(300000)))"],
                              stdout=subprocess.DEVNULL).returncode == 0
        print("children", n, flush=True)
''', python)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("config", "profile.rate=10000").returncode == 0
    target.wait_line("children %d" % (50 if FULL else 20))
    samples(target, 20)
    assert "Error" not in target.output()


CHURN = '''
import sys, threading, time
def chain(n, key):
    name = "f%d_%d" % (n, key)
    scope = {"chain": chain}
    exec("def %s():\\n    " % name + ("chain(%d, %d)\\n    " % (n - 1, key) if n else "")
         + "for i in range(50): i * i\\n", scope)
    scope[name]()
def short(key):
    end = time.thread_time() + 0.002
    while time.thread_time() < end:
        chain(6, key)
n = 0
print("ready", flush=True)
while True:
    threads = [threading.Thread(target=short, args=(k,)) for k in range(8)]
    for t in threads: t.start()
    for t in threads: t.join()
    n += 8
    print("threads", n, flush=True)
'''


@pytest.mark.some_pythons
def test_threads_and_code_come_and_go(world, python):
    """At 10 kHz: no crash, and no stack that cannot be, though code objects die all the time."""
    target = world.python(CHURN, python)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("config", "profile.rate=10000").returncode == 0
    target.wait_line(r"threads ([4-9]\d\d|\d{4})", 240)
    samples(target, 200)
    assert target.alive()
    seen = 0
    for stack, _ in profile(target):
        made = [re.match(r"f(\d+)_(\d+)$", name(f)) for f in stack]
        made = [(int(m[1]), int(m[2])) for m in made if m]
        depths = [d for d, _ in made]
        assert len({key for _, key in made}) <= 1, stack
        assert depths == sorted(depths, reverse=True) and len(set(depths)) == len(depths), stack
        if depths and "[outer frames not read]" not in stack:
            assert depths == list(range(6, 6 - len(depths), -1)), stack
        seen += len(made)
    assert seen > 0


GENERATED = """
import time
def make(n):
    names = {}
    exec("def mark_%02d():\\n    end = clock() + 0.012\\n"
         "    while clock() < end: sum(range(500))\\n" % n,
         {"clock": time.thread_time, "sum": sum, "range": range}, names)
    return names["mark_%02d" % n]
marks = [make(n) for n in range(90)]
def turn(n):
    names = {}
    exec(compile("def made_%02d(f):\\n    f()\\n" % n, "<made %02d>" % n, "exec"), {}, names)
    made, = names.values()
    made(marks[n])
print("ready", flush=True)
while True:
    for n in range(90):
        turn(n)
"""


@pytest.mark.some_pythons
def test_generated_code_has_its_own_name(world, python):
    """Code objects that come one after the other to the same addresses, each with its caller."""
    target = world.python(GENERATED, python)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "profile")
    samples(target, 2, "sum(cpu_ns) / 1000000000")
    right = wrong = 0
    for stack, value in profile(target):
        text = ";".join(stack)
        mark, made = re.search(r"mark_(..) ", text), re.search(r"made_(..) \(([^)]*)\)", text)
        if mark and made:
            same = mark.group(1) == made.group(1) and made.group(2) == "<made %s>" % made.group(1)
            right, wrong = right + value * same, wrong + value * (not same)
    assert right > 0 and wrong == 0, (right, wrong)


def test_the_dead_can_be_asked(world):
    target = world.python(SPLIT, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    samples(target, 100)
    target.kill()
    directory = str(next(world.data.glob("%d-*" % target.pid)))
    done = world.probing("-t", directory, "flamegraph", "--format", "folded")
    assert done.returncode == 0, done.stderr
    assert share(folded(done.stdout), "work") > 0.9
    done = world.probing("-t", directory, "flamegraph", "--seconds", "1", "--format", "folded")
    assert done.returncode == 1 and "dead" in done.stderr


def test_python_plugin_is_not_needed(world):
    """Without the python plugin a Python process is sampled as any other."""
    target = world.python(SPLIT, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("-D", "probing.plugins=")
    assert target.rows("select count(*) from probing.plugins") == [[0]]
    assert target.probing("plugin", "load", "profile").returncode == 0
    samples(target, 50)
    stacks = profile(target)
    assert share(stacks, "_PyEval_EvalFrameDefault") > 0.5
    assert "native frames only" in target.probing("profile").stdout
    assert target.probing("eject").returncode == 0
    assert target.alive()


def test_samples_know_the_training_step(world):
    target = world.train()
    target.inject("--plugin", "profile")
    samples(target, 20)
    assert target.rows("select count(step) from python.samples") == [[0]], "nobody counts steps yet"
    assert target.probing("plugin", "load", "torch").returncode == 0
    samples(target, 4, "count(distinct step)")
    first, last = target.rows("select min(step), max(step) from python.samples")[0]
    seen = target.rows("select max(local_step) from python.torch_trace")[0][0]
    assert 0 <= first < last <= seen + 1
    assert "(torch.so)" not in target.probing("flamegraph", "--format", "folded").stdout
    assert target.alive()


def test_threads_of_ours_that_get_their_name_late(world):
    """As they do on a busy machine, where the profiler sees them first."""
    late = world.tmp / "late"
    target = world.python('''
import _thread, ctypes, os, time
def other():
    ctypes.CDLL(None).prctl(15, b"early", 0, 0, 0)
    while not os.path.exists(%r):
        time.sleep(0.01)
    ctypes.CDLL(None).prctl(15, b"probing/late", 0, 0, 0)
    print("renamed", flush=True)
    while True:
        time.sleep(0.01)
_thread.start_new_thread(other, ())
print("ready", flush=True)
while True:
    time.sleep(0.01)
''' % str(late), DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject()
    assert target.probing("plugin", "load", "profile").returncode == 0
    assert target.probing("config", "profile.mode=wall").returncode == 0
    samples(target, 1, where="thread_name = 'early'")
    late.touch()
    target.wait_line("renamed")
    seen = "(select max(ts) from python.samples where thread_name = 'early')"
    samples(target, 1, where="ts > %s + interval '3 seconds'" % seen)
    assert target.rows("select distinct thread_name from python.samples "
                       "where thread_name like 'probing%'") == []


def test_a_library_that_comes_is_named(world):
    target = world.python('''
import os, time
print("ready", flush=True)
while not os.path.exists(%r):
    time.sleep(0.02)
import bz2
data = os.urandom(1 << 20)
while True:
    bz2.compress(data)
''' % str(world.tmp / "go"), DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    (world.tmp / "go").touch()
    samples(target, 1, "sum(cpu_ns) / 1000000000")
    stacks = profile(target)
    assert share(stacks, "[unknown]") == 0, [s for s, _ in stacks if "[unknown]" in str(s)][:3]
    assert sum(v for s, v in stacks if "libbz2" in s[-1]) > 0.5 * sum(v for _, v in stacks)


@pytest.mark.parametrize("word", ["performance", "perf", "p"])
def test_its_name_of_before(world, word):
    target = world.python(SPLIT, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject()
    assert target.probing(word).returncode != 0
    assert target.probing(word, "--fast").returncode != 0
    done = target.probing(word, "--cc")
    assert done.returncode == 0 and "flamegraph" in done.stdout, done.stdout + done.stderr
    samples(target, 10)
    again = target.probing(word, "--cc")
    assert again.returncode == 0 and "loaded already" in again.stdout, again.stdout + again.stderr
    refused = target.probing(word, "--torch")
    assert refused.returncode != 0 and "torch is not imported" in refused.stderr, refused.stderr


UNSAMPLED = "threads are not sampled: the kernel gives no more timers (ulimit -i"


@pytest.mark.parametrize("timers, sampled", [(0, False), (16 + 2, True)])
def test_threads_without_a_timer_are_counted(world, timers, sampled):
    """25 busy threads, of which the kernel gives timers for none or two: the picture of one was
    taken for the whole, or the process was said to have used no time."""
    target = world.python("import resource, threading, time\n"
                          "used = [l for l in open('/proc/self/status') if l.startswith('SigQ')]\n"
                          "left = %d\n"
                          "limit = int(used[0].split()[1].split('/')[0]) + left if left else 0\n"
                          "resource.setrlimit(resource.RLIMIT_SIGPENDING, (limit, limit))\n"
                          "def work():\n"
                          "    while True:\n"
                          "        sum(range(20000))\n"
                          "        time.sleep(0.001)\n"
                          "for i in range(24):\n"
                          "    threading.Thread(target=work, daemon=True).start()\n"
                          "print('ready', flush=True)\n"
                          "work()\n" % timers, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject()
    done = target.probing("flamegraph", "-s", "2", "--format", "folded", timeout=120)
    assert re.search(r"\d+ " + re.escape(UNSAMPLED), done.stderr), done.stderr
    assert sampled or (done.returncode == 1 and not done.stdout)
    assert target.probing("plugin", "load", "profile").returncode == 0
    wait_for(lambda: UNSAMPLED in target.probing("profile").stdout, "threads without a timer")
    wait_for(lambda: target.rows("select count(*) from python.unsampled")[0][0] > 1, "a row")
    wait_for(lambda: UNSAMPLED in target.probing("top", "--once").stdout, "the line of top")
    done = target.probing("flamegraph", "--last", "3s", "--format", "folded")
    assert UNSAMPLED in done.stderr, done.stderr
    assert target.probing("backtrace").stdout.count("Thread ") >= 25
