# SPDX-License-Identifier: Apache-2.0
"""What we take from a process whose limits are tight, and how our threads are scheduled whatever
thread was borrowed: the process does as well as before, or it was not entered, and a line says why.
"""
import os
import re
import resource
import shutil
import subprocess
import tempfile

import pytest

from world import BUILD, DEBIAN_PYTHON, holds_ours, wait_for

PROGRAM = BUILD / "tests" / "hostile" / "limits_target"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = 65534
MIB = 1 << 20
OTHER, FIFO, DEADLINE = 0, 1, 6


class Told:
    """limits_target: told what to do by a line, answers by one."""

    def __init__(self, world, *before, arguments=(), limits=(), program=PROGRAM, **how):
        def limit():
            for which, value in limits:
                resource.setrlimit(which, (value, value))
        self.world = world
        self.process = subprocess.Popen(
            [*before, str(program), *arguments], text=True, stdin=subprocess.PIPE, env=world.env,
            stdout=subprocess.PIPE, preexec_fn=limit, **how)
        self.pid = self.process.pid
        world.targets.append(self)
        assert self.process.stdout.readline() == "ready\n"

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def probing(self, *words):
        return self.world.probing("-t", str(self.pid), *words)

    def end(self):
        self.process.kill()
        self.process.wait()


def status(pid, field, tid=None):
    text = open("/proc/%d/task/%d/status" % (pid, tid or pid)).read()
    return re.search(r"^%s:\s*(.*)$" % field, text, flags=re.M)[1]


def threads(pid, ours):
    """tid: (policy, nice, real-time priority, CPUs) of our threads, or of the others."""
    found = {}
    for tid in map(int, os.listdir("/proc/%d/task" % pid)):
        try:
            line = open("/proc/%d/task/%d/stat" % (pid, tid)).read()
            cpus = status(pid, "Cpus_allowed_list", tid)
        except OSError:
            continue  # it has just ended
        name, rest = re.match(r"\d+ \((.*)\) (.*)", line, flags=re.S).groups()
        fields = rest.split()  # the first of them is field 3 of proc(5)
        if name.startswith("probing/") == ours:
            found[tid] = (int(fields[38]), int(fields[16]), int(fields[37]), cpus)
    return found


def entered(told, *options):
    done = told.probing("inject", *options)
    assert done.returncode == 0, done.stderr
    return told


def mappings(pid):
    return open("/proc/%d/maps" % pid).read().count("\n")


def refused(told, *words, options=()):
    """One line with all words; nothing of us is there."""
    before = sorted(os.listdir("/proc/%d/fd" % told.pid))
    mapped = mappings(told.pid)
    done = told.probing("inject", *options)
    assert done.returncode == 1, done.stdout
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr
    assert not holds_ours(told.pid)
    assert not threads(told.pid, ours=True)
    assert sorted(os.listdir("/proc/%d/fd" % told.pid)) == before
    assert mappings(told.pid) == mapped


def may(*command):
    if not shutil.which(command[0]):
        pytest.skip("no %s here" % command[0])
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        pytest.skip("%s is refused here" % " ".join(command))
    return command


# ---- how our threads are scheduled ----

@pytest.mark.parametrize("how, more", [
    (("chrt", "-f", "50"), 0), (("chrt", "-r", "3"), 0), (("chrt", "-b", "0"), 0),
    (("chrt", "-i", "0"), 19), (("chrt", "-R", "-f", "20"), 0), (("nice", "-n", "7"), 7),
    (("nice", "-n", "-5"), -5), (("ionice", "-c", "1", "-n", "0"), 0)])
def test_our_threads_are_ordinary_ones(world, how, more):
    """And never before the program's; those of plugins, too, and those made later."""
    nice = max(0, min(19, os.nice(0) + more))  # the tests may run under nice themselves
    told = Told(world, *may(*how))
    entered(told, "-P", "-c")
    assert told.probing("backtrace").returncode == 0
    ours = threads(told.pid, ours=True)
    assert len(ours) > 5
    assert {o[:3] for o in ours.values()} == {(OTHER, nice, 0)}
    assert not [t for t in ours if "realtime" in subprocess.run(
        ["ionice", "-p", str(t)], capture_output=True, text=True).stdout]
    assert told.probing("eject").returncode == 0


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_a_pinned_thread_does_not_pin_ours(world):
    """Threads that are pinned may be borrowed; the process has more CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    told = Told(world, arguments=["3", str(cpus[0])])
    whole = status(told.pid, "Cpus_allowed_list")
    wait_for(lambda: len({t[3] for t in threads(told.pid, ours=False).values()}) == 2, "pinning")
    os.sched_setaffinity(told.pid, {cpus[1]})  # the first thread: on another one
    entered(told)
    assert {t[3] for t in threads(told.pid, ours=True).values()} == {
        whole if len(cpus) == 2 else "%d-%d" % (cpus[0], cpus[1])}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU")
def test_a_process_that_was_given_one_cpu_keeps_to_it(world):
    cpu = str(sorted(os.sched_getaffinity(0))[-1])
    told = entered(Told(world, *may("taskset", "-c", cpu)))
    assert {t[3] for t in threads(told.pid, ours=True).values()} == {cpu}


DEADLINE_CALL = ("chrt", "-d", "--sched-runtime", "1000000", "--sched-deadline", "50000000",
                 "--sched-period", "50000000")


def test_a_deadline_thread_is_not_asked_for_threads(world):
    """It may make none: another thread is borrowed, and where there is none that is said."""
    may(*DEADLINE_CALL, "0")
    told = Told(world, arguments=["1", "0"])
    subprocess.run([*DEADLINE_CALL, "-p", "0", str(told.pid)], check=True)
    assert threads(told.pid, ours=False)[told.pid][0] == DEADLINE
    entered(told)
    assert {t[0] for t in threads(told.pid, ours=True).values()} == {OTHER}
    alone = Told(world)
    subprocess.run([*DEADLINE_CALL, "-p", "0", str(alone.pid)], check=True)
    refused(alone, "SCHED_DEADLINE", "sched(7)")


# ---- address space, data, memory of a cgroup ----

@pytest.mark.parametrize("mib", [10, 100, 400, 880, 960, 1500, 2600, 3400, 4000])
def test_address_space(world, mib):
    """Entered or not, the program has most of what it had for allocations of its own."""
    told = Told(world, limits=[(resource.RLIMIT_AS, mib * MIB)])
    done = told.probing("inject", "-c", "-P")
    if mib <= 880:
        assert done.returncode == 1 and "address space" in done.stderr, done.stdout + done.stderr
        assert "--as" in done.stderr and len(done.stderr.strip().splitlines()) == 1
        assert not holds_ours(told.pid)
    if mib >= 960:
        assert done.returncode == 0, done.stderr
    if done.returncode == 0:
        assert told.probing("backtrace").returncode == 0
        assert told.probing("query", "select count(*) from python.samples").returncode == 0
    for _ in range(3):
        assert told.tell("take %d" % (mib // 3)) == "taken"
    assert told.tell("fork") == "well"
    if done.returncode == 0:
        assert told.probing("eject").returncode == 0
        assert told.tell("take %d" % (mib // 2 - 50)) == "taken"


def test_address_space_of_a_python(world):
    """Plugins run there as far as they leave the program what it had, and a part of the rest.  It
    ended with a MemoryError: a library of 400 MB, as PyTorch has them, was mapped for its names."""
    source, made = world.tmp / "large.c", world.tmp / "large.so"
    source.write_text("#include <unistd.h>\nvoid stay_here(void) { for (;;) pause(); }\n")
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    os.truncate(made, 400 * MIB)
    target = world.python("import ctypes, resource, threading, time\n"
                          "resource.setrlimit(resource.RLIMIT_AS, (1500 << 20,) * 2)\n"
                          "stay = ctypes.CDLL(%r).stay_here\n"
                          "threading.Thread(target=stay, daemon=True).start()\n"
                          "size = 300\n"
                          "while True:\n"
                          "    b = bytearray(size << 20)\n"
                          "    del b\n"
                          "    print('took', size, flush=True)\n"
                          "    time.sleep(0.05)\n" % str(made), python=DEBIAN_PYTHON)
    target.wait_line("took 300")
    target.inject("-P", "-c")
    assert "stay_here" in target.probing("backtrace").stdout
    for name in ("memory", "system", "nccl"):
        done = target.probing("plugin", "load", name)
        assert done.returncode == 0 or "may take only" in done.stderr, done.stderr
    assert target.probing("eval", "import __main__; __main__.size = 450; 1 + 1").stdout == "2\n"
    target.wait_line("took 450")
    assert target.probing("eject").returncode == 0
    assert target.alive(), target.output()


def locked(world, *before, **how):
    told = Told(world, *before, **how)
    if told.tell("lock") != "locked":
        pytest.skip("no memory may be locked here")
    return told


@ROOT_ONLY
def test_a_process_with_its_memory_locked_keeps_its_size(world):
    """mlockall(MCL_FUTURE) makes memory of whatever is mapped: not of our files that grow."""
    told = locked(world)
    before = int(status(told.pid, "VmRSS").split()[0])
    entered(told, "-P", "--plugin", "system", "--plugin", "memory", "--plugin", "nccl")
    assert told.probing("query", "select 42").returncode == 0
    more = int(status(told.pid, "VmRSS").split()[0]) - before
    assert more < 64 << 10, "%d kB" % more


@ROOT_ONLY
def test_a_process_that_may_lock_no_more_is_not_entered(world):
    told = locked(world, *may("setpriv", "--reuid", str(NOBODY), "--clear-groups"),
                  limits=[(resource.RLIMIT_MEMLOCK, 8 * MIB)])
    refused(told, "locked memory", "mlockall", "--memlock")


def test_private_memory(world):
    refused(Told(world, limits=[(resource.RLIMIT_DATA, 30 * MIB)]), "ulimit -d", "--data")
    told = entered(Told(world, limits=[(resource.RLIMIT_DATA, 150 * MIB)]))
    assert told.tell("take 80") == "taken"


@pytest.mark.parametrize("mib", [48, 56, 66, 80, 110])
@pytest.mark.parametrize("options", [(), ("-c",), ("-P",), ("-c", "-P", "--plugin", "memory")])
def test_private_memory_of_each_part(world, mib, options):
    """Programs died of a thread or a block that they could not get: stacks for signals and the
    tables of crash reports and of the profiler are private memory, too."""
    told = Told(world, limits=[(resource.RLIMIT_DATA, mib * MIB)])
    assert told.tell("thread") == "well"
    done = told.probing("inject", *options)
    for line in done.stderr.splitlines():
        assert re.search(r"ulimit (-v, )?-d", line) or "failed" not in line, line
    if "entered" in done.stdout:
        for words in (["backtrace"], ["query", "select count(*) from generate_series(1, 1000)"],
                      ["plugin", "load", "system"]):
            told.probing(*words)
            assert told.tell("thread") == "well", words
    else:
        assert done.returncode == 1
    assert told.tell("thread") == "well"
    if "entered" in done.stdout:
        assert told.probing("eject").returncode == 0
    assert told.tell("thread") == "well"


@pytest.mark.parametrize("mib", [66, 80])
def test_private_memory_of_a_python(world, mib):
    target = world.python("import resource, threading, time\n"
                          "resource.setrlimit(resource.RLIMIT_DATA, (%d << 20,) * 2)\n"
                          "while True:\n"
                          "    t = threading.Thread(target=lambda: bytearray(4 << 20))\n"
                          "    t.start()\n"
                          "    t.join()\n"
                          "    print('again', flush=True)\n"
                          "    time.sleep(0.02)\n" % mib, python=DEBIAN_PYTHON)
    target.wait_line("again")
    for line in target.probing("inject", "-c", "-P").stderr.splitlines():
        assert re.search(r"ulimit (-v, )?-d", line) or "failed" not in line, line
    for words in (["backtrace"], ["eval", "1 + 1"], ["plugin", "load", "memory"], ["eject"]):
        target.probing(*words)
    seen = target.output().count("again")
    wait_for(lambda: target.output().count("again") > seen or not target.alive(), "a thread more")
    assert target.alive() and "Error" not in target.output(), target.output()


# ---- mappings ----

def crowded(world, room):
    """A program that may make `room` mappings more."""
    told = Told(world)
    assert told.tell("thread") == "well"  # its arena is there
    if told.tell("crowd %d" % room) != "crowded":
        pytest.skip("vm.max_map_count is too high here")
    return told


@pytest.mark.parametrize("room", [30, 60, 100, 300])
def test_too_few_mappings(world, room):
    """It ended with "cannot allocate memory for thread-local data": inject took the last ones."""
    told = crowded(world, room)
    refused(told, "vm.max_map_count", "sysctl")
    assert told.tell("thread") == "well"


@pytest.mark.parametrize("room", [380, 420, 500])
def test_mappings_are_left_to_the_program(world, room):
    most = int(open("/proc/sys/vm/max_map_count").read())
    told = crowded(world, room)
    entered(told)
    for words in (["config", "set", "crash.handler", "on"], ["plugin", "load", "profile"],
                  ["plugin", "load", "memory"], ["plugin", "load", "system"]):
        done = told.probing(*words)
        assert done.returncode == 0 or "vm.max_map_count" in done.stderr, done.stderr
        told.probing("backtrace")
        told.probing("query", "select count(*) from generate_series(1, 300000)")
        assert told.tell("thread") == "well", words
    assert most - mappings(told.pid) > 200  # of 256 in core/guest/headroom_table.c
    assert told.probing("eject").returncode == 0
    assert told.tell("thread") == "well"


def test_a_core_that_gets_no_thread_is_unloaded(world):
    """Nothing stays of it but what glibc keeps of the thread that loaded it."""
    switch = world.tmp / "no-threads"
    source = world.tmp / "no_threads.c"
    source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n"
                      "#include <pthread.h>\n#include <unistd.h>\n"
                      "int pthread_create(pthread_t *t, const pthread_attr_t *a,\n"
                      "                   void *(*run)(void *), void *arg)\n"
                      "{ __typeof__(&pthread_create) real = dlsym(RTLD_NEXT, \"pthread_create\");"
                      " return access(\"%s\", F_OK) == 0 ? EAGAIN : real(t, a, run, arg); }\n"
                      % switch)
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(world.tmp / "no_threads.so"), str(source),
                    "-ldl"], check=True)
    world.env["LD_PRELOAD"] = str(world.tmp / "no_threads.so")
    told = Told(world)
    del world.env["LD_PRELOAD"]
    assert told.tell("thread") == "well"
    before = mappings(told.pid)
    switch.touch()
    for _ in range(3):
        done = told.probing("inject")
        assert done.returncode == 1 and "cannot create a thread" in done.stderr, done.stderr
        maps = open("/proc/%d/maps" % told.pid).read()
        assert not holds_ours(told.pid), maps
        assert mappings(told.pid) <= before + 4, maps  # a stack and its guard, an arena
    switch.unlink()
    entered(told)
    assert told.probing("eject").returncode == 0
    assert told.tell("thread") == "well"


def memory_group():
    """A cgroup of our own for memory: (its directory, its file for the limit)."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
                        ("/sys/fs/cgroup", "memory.max")):
        folder = "%s/probing-test-%d" % (root, os.getpid())
        try:
            os.mkdir(folder)
        except OSError:
            continue
        if os.path.exists(folder + "/" + limit):
            return folder, limit
        os.rmdir(folder)
    pytest.skip("may not make a cgroup for memory here")


@pytest.fixture
def grouped(world):
    """limit(bytes) of a cgroup for memory, and the program to put in it by enter()."""
    folder, limit = memory_group()

    class Grouped:
        told = None

        def limit(self, size):
            with open(folder + "/" + limit, "w") as f:
                f.write(str(size))

        def enter(self):
            self.told = Told(world)
            with open(folder + "/cgroup.procs", "w") as f:
                f.write(str(self.told.pid))
            return self.told

    group = Grouped()
    yield group
    if group.told:
        group.told.end()
    wait_for(lambda: not open(folder + "/cgroup.procs").read(), "the group's processes")
    os.rmdir(folder)


def test_memory_of_a_cgroup(grouped):
    """The kernel would kill the program for what we take: not entered, or not without room."""
    grouped.limit(20 * MIB)
    told = grouped.enter()
    refused(told, "cgroup", "memory.max")
    grouped.limit(100 * MIB)
    assert told.tell("take 70") == "taken"  # and given back: it may take that again
    refused(told, "cgroup", "memory.max")
    grouped.limit(170 * MIB)
    entered(told, "-c", "-P")
    assert told.tell("take 50") == "taken"


def test_a_query_in_a_small_cgroup(grouped):
    """query.max_memory is 256 MB: the kernel killed the program for such a question."""
    grouped.limit(100 * MIB)
    told = grouped.enter()
    assert told.probing("inject").returncode == 0
    done = told.probing("query", "select n from generate_series(1, 20000000) n order by n")
    assert done.returncode == 1 and "its cgroup" in done.stderr, done.stderr
    assert told.tell("take 50") == "taken"


# ---- files and threads ----

@pytest.mark.parametrize("size", [0, 4096, 300000, 3 * MIB, 20 * MIB])
def test_file_size(world, size):
    """SIGXFSZ would end the program when a file of ours meets the limit."""
    told = Told(world, limits=[(resource.RLIMIT_FSIZE, size)])
    done = told.probing("inject", "-c", "-P")
    assert done.returncode == 0 or len(done.stderr.strip().splitlines()) == 1, done.stderr
    if done.returncode == 0:
        assert told.probing("query", "select count(*) from python.samples").returncode == 0
        assert told.probing("eject").returncode == 0
    assert told.tell("fork") == "well"


def test_few_files(world):
    told = Told(world, limits=[(resource.RLIMIT_NOFILE, 16)])
    refused(told, "descriptors", "--nofile")
    told = entered(Told(world, limits=[(resource.RLIMIT_NOFILE, 64)]), "-c", "-P")
    assert told.probing("backtrace").returncode == 0


@ROOT_ONLY
def test_few_threads(world):
    """The limit is the user's: the test's own user has other processes, so nobody's is taken."""
    def start(limit):
        return Told(world, limits=[(resource.RLIMIT_NPROC, limit)], user=NOBODY, group=NOBODY,
                    extra_groups=[], cwd="/", program=program)
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to others
        os.chown(folder, NOBODY, NOBODY)
        program = shutil.copy(PROGRAM, folder)  # and the checkout may be
        world.env["PROBING_DATA_DIR"] = folder
        refused(start(4), "threads", "--nproc")
        told = entered(start(1000), "-c", "-P")
        assert told.tell("fork") == "well"
        told.end()


# ---- what stays ----

def test_the_allocator_is_as_it_was(world):
    """malloc() puts 200 KB where it did, and no arena of it stays for each of our threads."""
    told = Told(world)
    assert told.tell("block") == "mapped"
    for _ in range(3):
        entered(told, "-c", "-P")
        for words in (["backtrace"], ["query", "select sum(v) from (select a.value v from "
                                      "generate_series(1, 300000) a(n)"]):
            told.probing(*words)
        assert told.probing("eject").returncode == 0
    assert told.tell("block") == "mapped"
    reserved = re.findall(r"^(\w+)-(\w+) ---p 00000000 00:00 0\s*$",
                          open("/proc/%d/maps" % told.pid).read(), flags=re.M)
    arenas = [a for a, end in reserved if int(end, 16) - int(a, 16) > 48 * MIB]
    assert len(arenas) <= 4, arenas  # who loads, who makes threads; it was each thread of ours
    assert told.tell("fork") == "well"


def test_little_stays(world):
    """Ten rounds leave what the first ones left: code, and stacks that libc keeps."""
    told = Told(world)
    seen = []
    for _ in range(10):
        entered(told, "-c", "-P")
        assert told.probing("backtrace").returncode == 0
        assert told.probing("eject").returncode == 0
        seen.append([int(n) for n in told.tell("resident").split()])
    anonymous, all_of_it = zip(*seen)
    assert anonymous[-1] < 2500, seen  # kB; 2.4 MB were left before, and 6.7 after a hundred
    assert anonymous[-1] - anonymous[2] < 500, seen
    assert all_of_it[-1] < 9000, seen
