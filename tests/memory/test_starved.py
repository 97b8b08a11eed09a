# SPDX-License-Identifier: Apache-2.0
"""The memory plugin in programs that have no address space, threads, descriptors, disk or processor
left: it says so, and the program goes on as before."""
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from test_hooks import build
from world import threads_of, wait_for

# It checks all that it allocates and maps; a file whose name it is given says which of its limits
# it is to lower.
SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
static const char *order;
static void wrong(const char *why)
{
    printf("wrong: %s\n", why);
    fflush(stdout);
    abort();
}
static void obey(void)
{
    static int done;
    int which, value;
    FILE *f = done ? NULL : fopen(order, "r");
    if (f && fscanf(f, "%d %d", &which, &value) == 2) {
        struct rlimit limit;
        getrlimit(which, &limit);
        limit.rlim_cur = (rlim_t)value;
        if (setrlimit(which, &limit) != 0)
            wrong("setrlimit");
        done = 1;
        printf("limited\n");
    }
    if (f)
        fclose(f);
}
static void *work(void *first)
{
    for (unsigned round = 1;; round++) {
        for (unsigned i = 1; i < 100; i++) {
            size_t n = i * 97 % 30000 + 1;
            unsigned char *p = malloc(n), *q;
            if (!p)
                wrong("malloc");
            memset(p, (int)i, n);
            if (!(q = realloc(p, n * 2)) || q[n - 1] != (unsigned char)i)
                wrong("realloc");
            free(q);
        }
        char *m = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (m == MAP_FAILED)
            wrong("mmap");
        munmap(m, 1 << 20);
        if (first) {
            printf("round %u\n", round);
            fflush(stdout);
            obey();
        }
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return first;
}
int main(int argc, char **argv)
{
    pthread_t t;
    order = argv[argc - 1];
    puts("ready");
    pthread_create(&t, NULL, work, NULL);
    work(&t);
}
"""
DENSE = ("-D", "memory.sample_bytes=16KB", "-D", "memory.max_overhead_pct=0")
NOBODY = 65534


class Starving:
    """That program, entered."""

    def __init__(self, world, *before, env=None):
        source = world.tmp / "starving.c"
        source.write_text(SOURCE)
        self.order = world.tmp / "order"
        path = build(world.tmp / "starving", source=source)
        self.target = world.start(*before, str(path), str(self.order), env=env)
        self.target.wait_line("^round")
        self.pid, self.probing, self.rows = self.target.pid, self.target.probing, self.target.rows

    def limit(self, which, value):
        resource.prlimit(self.pid, which, (value, resource.prlimit(self.pid, which)[1]))

    def obeys(self, which, value):
        """It lowers the limit itself: of another user's process nobody else may."""
        new = self.order.with_suffix(".new")
        new.write_text("%d %d" % (which, value))
        new.rename(self.order)
        self.target.wait_line("^limited")

    def goes_on(self):
        def rounds():
            return self.target.output().count("round")
        before = rounds()
        wait_for(lambda: rounds() > before + 20 or not self.target.alive(), "more rounds")
        assert self.target.alive() and "wrong" not in self.target.output(), \
            self.target.output()[-200:]

    def refused(self, *words):
        """The plugin is, in one line that has the words."""
        done = self.probing("plugin", "load", "memory")
        assert done.returncode == 1, done.stdout
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        for word in words:
            assert word in done.stderr, done.stderr
        self.goes_on()

    def works(self):
        done = self.probing("plugin", "load", "memory")
        assert done.returncode == 0, done.stderr
        wait_for(lambda: self.rows("select count(*) > 0 from memory.samples") == [[True]],
                 "samples")
        self.goes_on()

    def leaves(self):
        assert self.probing("eject").returncode == 0
        self.goes_on()


def size_of(pid):
    text = open("/proc/%d/status" % pid).read()
    return int(re.search(r"^VmSize:\s+(\d+)", text, flags=re.M)[1]) << 10


@pytest.mark.parametrize("mib", [5, 40, 160, 480])
def test_little_address_space(world, mib):
    """Tables are smaller, or the plugin is refused: most of what is left stays the program's."""
    program = Starving(world)
    program.target.inject()
    program.goes_on()
    program.limit(resource.RLIMIT_AS, size_of(program.pid) + (mib << 20))
    program.goes_on()  # by itself it needs some hundred KB
    if mib < 180:
        program.refused("plugin memory needs", "ulimit -v", "prlimit")
    else:
        program.works()  # glibc reserves 64 MB for a thread of ours, where it gets them
        assert resource.prlimit(program.pid, resource.RLIMIT_AS)[0] - size_of(program.pid) > \
            (mib << 20) // 8
    program.leaves()


def test_no_thread_can_be_made(world):
    """RLIMIT_NPROC is none of root's, so it is another user's program there."""
    before = ()
    if os.geteuid() == 0:
        before = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
        if subprocess.run([*before, "true"], capture_output=True).returncode:
            pytest.skip("no setpriv here")
        for path in (world.tmp, *world.tmp.parents):
            if path.stat().st_uid == os.getuid() and path != path.parent and \
                    str(path).startswith("/tmp/"):
                path.chmod(0o755)
        os.chown(world.data, NOBODY, NOBODY)
    program = Starving(world, *before)
    program.target.inject()
    program.obeys(resource.RLIMIT_NPROC, 0)
    program.refused("0 more threads", "--nproc", "pids.max")
    assert program.rows("select state from probing.plugins where name = 'memory'") == [["failed"]]
    program.leaves()


def spent(pid):
    """CPU time of probing's threads, and of the others, in ns."""
    times = [0, 0]
    for task in Path("/proc/%d/task" % pid).iterdir():
        name, used = (task / "comm").read_text(), (task / "schedstat").read_text().split()[0]
        times[not name.startswith("probing/")] += int(used)
    return times


@pytest.mark.parametrize("loaded", [False, True])
def test_no_descriptor_can_be_opened(world, loaded):
    """The core's threads may not even wait for theirs then; they rest, and work on later."""
    program = Starving(world)
    program.target.inject(*(("--plugin", "memory", *DENSE) if loaded else ()))
    program.limit(resource.RLIMIT_NOFILE, 0)
    program.goes_on()
    before = spent(program.pid)
    wait_for(lambda: spent(program.pid)[1] > before[1] + 3e8, "0.3 s of its own work")
    ours = spent(program.pid)[0] - before[0]
    assert ours < 3e8, ours  # two threads that spin take as much as it gets, or more
    if not loaded:
        program.refused("may have no more open files", "prlimit")
    done = program.probing("query", "select 1")
    assert done.returncode == 1 and "may have no more open files" in done.stderr, done.stderr
    program.limit(resource.RLIMIT_NOFILE, 1024)
    wait_for(lambda: program.probing("query", "select 1").returncode == 0, "an answer")
    if not loaded:
        program.works()
    program.leaves()


@pytest.mark.parametrize("full", ["before", "while it samples"])
def test_a_full_disk(world, full):
    """Rows are lost and counted; nothing else is."""
    place = world.tmp / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", str(place)],
                      capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        world.env["PROBING_DATA_DIR"] = str(place)
        program = Starving(world)
        program.target.inject()

        def fill():
            with open(place / "fill", "wb", buffering=0) as out:
                try:
                    while out.write(bytes(4096)):
                        pass
                except OSError:
                    pass
        if full == "before":
            fill()
            program.probing("plugin", "load", "memory")
        else:
            program.works()
            fill()
        program.probing("config", "memory.sample_bytes=1KB", "memory.max_overhead_pct=0")
        program.goes_on()
        program.goes_on()
        assert program.probing("query", "select 1").returncode == 0
        (place / "fill").unlink()
        program.probing("plugin", "stop", "memory")
        program.works()
        program.leaves()
    finally:
        for target in world.targets:
            target.end()
        subprocess.run(["umount", "-l", str(place)])


def test_one_processor_with_others_before_it(world):
    """nice 19 on a processor that others keep busy."""
    cpu = sorted(os.sched_getaffinity(0))[-1]
    hogs = [subprocess.Popen([sys.executable, "-c", "import os\nos.sched_setaffinity(0, {%d})\n"
                              "while True: pass" % cpu]) for _ in range(2)]
    try:
        program = Starving(world, "nice", "-n", "19", "taskset", "-c", str(cpu))
        program.target.inject("--wait", *DENSE)
        program.works()
        assert program.probing("plugin", "stop", "memory", timeout=120).returncode == 0
        program.works()
        program.leaves()
        assert not [t for t in threads_of(program.pid) if t.startswith("probing/")]
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def little_of_a_processor(pid, name):
    """Put it into a cgroup with a thousandth of a processor; a function that undoes it."""
    for root, files in (("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "1000000",
                                                "cpu.cfs_quota_us": "1000"}),
                        ("/sys/fs/cgroup", {"cpu.max": "1000 1000000"})):
        folder = Path(root) / name
        try:
            folder.mkdir()
            for file, text in files.items():
                (folder / file).write_text(text)
            (folder / "cgroup.procs").write_text(str(pid))
        except OSError:
            if folder.exists():
                folder.rmdir()
            continue

        def undo():
            (folder.parent / "cgroup.procs").write_text(str(pid))
            wait_for(lambda: not (folder / "cgroup.procs").read_text(), "its move")
            folder.rmdir()
        return undo
    pytest.skip("no cgroup of processors can be made here")


def test_who_gets_no_processor_is_said(world):
    """A thousandth of a processor: 3 ms of it in all, which no core starts with.  Often not even a
    thread stops in time, and the process was not entered: it can be, once it has a processor."""
    target = world.start(sys.executable, "-u", "-c", "print('ready')\nwhile True: pass")
    target.wait_line("ready")
    undo = little_of_a_processor(target.pid, "probing-test-%d" % target.pid)
    try:
        done = target.probing("inject", "--timeout", "3s")
        assert done.returncode == 1 and "got no processor" in done.stderr, \
            done.stdout + done.stderr
    finally:
        undo()
    target.inject("--wait")
    assert target.rows("select 1") == [[1]]
