# SPDX-License-Identifier: Apache-2.0
"""Where processes live: namespaces, chroots, users, filters, threads, other languages.  In each of
them the same life: enter, ask, leave, enter again, be killed, and be asked once more."""
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from pythons import PYENV
from world import CLI, CORE, DEBIAN_PYTHON, LIMIT, ROOT, holds_ours, wait_for

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY, OTHER = 65534, 65533
IDLE = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
THREADS = """
import threading, time
for _ in range(%d): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
print('ready', flush=True)
while True: time.sleep(0.05)
"""


def may_unshare(*kinds):
    may = os.geteuid() == 0 and subprocess.run(["unshare", *kinds, "true"],
                                               capture_output=True).returncode == 0
    return pytest.mark.skipif(not may,
                              reason="may not make namespaces here: %s" % " ".join(kinds))


MOUNTS = may_unshare("--mount")
EVERYTHING = may_unshare("--mount", "--pid", "--net", "--uts", "--ipc", "--fork")
USERS = may_unshare("--user", "--map-root-user")


def descendant(pid, name):
    """The pid, seen from here, of the program `name` below `pid`."""
    for task in Path("/proc/%d/task" % pid).glob("*/children"):
        for child in map(int, task.read_text().split()):
            if Path("/proc/%d/comm" % child).read_text().startswith(name):
                return child
            found = descendant(child, name)
            if found:
                return found
    return 0


def descriptors(pid):
    return sorted(os.listdir("/proc/%d/fd" % pid))


KEEPER = """-- three rows that outlive the process
local kept = probing.table("kept", {n = "i64"})
for n = 1, 3 do kept:add{n = n} end
"""


def ended(pid):
    """Gone, or waiting for its parent only, and all its threads too."""
    try:
        return "Z" in Path("/proc/%d/stat" % pid).read_text().rpartition(")")[2].split()[0] \
            and len(os.listdir("/proc/%d/task" % pid)) == 1
    except OSError:
        return True


class Life:
    """One process, by the pid that it has here, and the command aimed at it."""

    def __init__(self, world, pid, command=None, run=None):
        self.pid, self.folder = pid, world.tmp
        self.run = run or (lambda *words: world.probing(*words))
        self.target = str(command or pid)

    def probing(self, *words):
        return self.run("-t", self.target, *words)

    def ok(self, *words):
        done = self.probing(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def ask(self, target, sql):
        done = self.run("-t", target, "query", "--format", "json", sql)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]

    def whole(self, root="", python=True, steady=True):
        """The life of the head line.  root: where the data's path begins, seen from here."""
        before = descriptors(self.pid)
        self.ok("inject")
        assert self.ask(self.target, "select 40 + 2") == [[42]]
        if python:
            assert self.ok("eval", "6 * 7").strip() == "42"
        self.ok("eject")
        assert not steady or descriptors(self.pid) == before
        place = re.search(r"data: (\S+)", self.ok("inject"))[1]
        keeper = self.folder / "keeper.lua"
        keeper.write_text(KEEPER)
        self.ok("script", "run", str(keeper))
        assert self.ask(self.target, "select count(*) from script.kept") == [[3]]
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: ended(self.pid), "its end")
        assert self.ask(root + place, "select count(*) from script.kept") == [[3]]


# ---- namespaces and roots ----

def in_namespaces(world, flags, script, source=IDLE):
    """A Python below `unshare flags sh -c script`, in which $0 is to be run by `exec`."""
    starter = world.start("unshare", "--kill-child", *flags, "sh", "-c",
                          script + '"$PY" -u -c "$0"; sleep 600', source,
                          env={"PY": DEBIAN_PYTHON})
    starter.wait_line("ready")
    return starter, wait_for(lambda: descendant(starter.pid, "python3"), "python's pid")


@EVERYTHING
def test_container_from_outside(world):
    """Own mount, pid, network, host name and ipc namespaces, and a /tmp of its own."""
    starter, pid = in_namespaces(
        world, ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc"],
        "mount -t tmpfs none /tmp; mkdir -m 700 /tmp/in; export PROBING_DATA_DIR=/tmp/in; ")
    shell = descendant(starter.pid, "sh")
    Life(world, pid).whole(root="/proc/%d/root" % shell)


@EVERYTHING
def test_container_from_inside(world):
    starter, pid = in_namespaces(
        world, ["--mount", "--pid", "--net", "--uts", "--ipc", "--fork", "--mount-proc"], "")
    inner = re.search(r"NSpid:.*\s(\d+)", Path("/proc/%d/status" % pid).read_text())[1]

    def inside(*words):
        return subprocess.run(
            ["nsenter", "-t", str(descendant(starter.pid, "sh")), "--mount", "--pid", "--net",
             "--uts", "--ipc", str(CLI), *words],
            capture_output=True, text=True, env=world.env)

    Life(world, pid, command=inner, run=inside).whole()


@USERS
def test_user_namespace_of_root(world):
    _, pid = in_namespaces(world, ["--user", "--map-root-user", "--mount", "--pid", "--fork",
                                   "--mount-proc"], "")
    Life(world, pid).whole()


@USERS
def test_user_namespace_of_another_user(world):
    """Rootless containers: to it, our root is nobody."""
    starter = world.start("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups",
                          "env", "-u", "PROBING_DATA_DIR", "HOME=/", "unshare", "--kill-child",
                          "--user",
                          "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh",
                          "-c", "mount -t tmpfs none /tmp; mount -t tmpfs none /dev/shm; "
                          '"$0" -u -c "$1"; sleep 600', DEBIAN_PYTHON, IDLE)
    starter.wait_line("ready")
    pid = wait_for(lambda: descendant(starter.pid, "python3"), "python's pid")
    Life(world, pid).whole(root="/proc/%d/root" % descendant(starter.pid, "sh"))


CHROOT = "mkdir root; mount --bind / root; mount --bind /dev root/dev; %s; " \
         "mount -t tmpfs none root/tmp; " \
         "export PROBING_DATA_DIR=; mkdir -m 700 root/tmp/in; " \
         "PROBING_DATA_DIR=/tmp/in chroot root "


@MOUNTS
def test_chroot(world):
    starter, pid = in_namespaces(world, ["--mount"], CHROOT % "mount --bind /proc root/proc")
    Life(world, pid).whole(root="/proc/%d/root%s/root" % (starter.pid, world.tmp))


@MOUNTS
def test_chroot_without_proc(world):
    _, pid = in_namespaces(world, ["--mount"], CHROOT % "mount -t tmpfs none root/proc")
    before = descriptors(pid)
    done = world.probing("-t", str(pid), "inject")
    assert done.returncode == 1 and "/proc" in done.stderr and "mount" in done.stderr
    assert descriptors(pid) == before and not holds_ours(pid)


@MOUNTS
def test_nothing_may_be_run_from_files(world):
    """/tmp, /dev/shm and /var/tmp are mounted noexec: the library travels in memory."""
    _, pid = in_namespaces(world, ["--mount"], "".join(
        "mount -t tmpfs -o noexec none %s; " % place for place in ("/dev/shm", "/var/tmp")))
    Life(world, pid).whole()


@MOUNTS
def test_program_was_taken_away(world):
    """The program and our library are gone from its root by now."""
    starter, pid = in_namespaces(world, ["--mount"], "mkdir root; mount --bind / root; "
                                 "mount --bind /proc root/proc; mount --bind /dev root/dev; "
                                 "mount -t tmpfs none root/tmp; "
                                 "PROBING_DATA_DIR=/tmp chroot root ")
    for place in ("usr/bin", "usr/local", "root"):
        if not os.path.isdir("/" + place):
            continue
        subprocess.run(["nsenter", "-t", str(starter.pid), "--mount", "mount", "-t", "tmpfs",
                        "none", "%s/root/%s" % (world.tmp, place)], check=True)
    life = Life(world, pid)
    life.ok("inject")
    assert life.ok("eval", "1 + 1").strip() == "2"
    life.ok("eject")


# ---- users ----

def as_user(uid, *words):
    """Run as that user, with the command and core where he may read them."""
    place = tempfile.mkdtemp()
    try:
        os.chmod(place, 0o755)
        for file in (CLI, CORE, *filter(os.path.isfile, words)):
            shutil.copy(file, place)
        words = [place + "/" + os.path.basename(w) if os.path.isfile(w) else w for w in words]
        plugins = os.path.join(place, "plugins")
        if (CORE.parent / "plugins").is_dir():
            shutil.copytree(CORE.parent / "plugins", plugins,
                            ignore=shutil.ignore_patterns("*.o", "*.c"))
        return subprocess.run(["setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups",
                               "env", "-u", "PROBING_DATA_DIR", place + "/probing", *words],
                              capture_output=True, text=True, cwd="/")
    finally:
        shutil.rmtree(place)


def process_of(world, uid, source=IDLE):
    target = world.start("setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups", "env",
                         "-u", "PROBING_DATA_DIR", "HOME=/", DEBIAN_PYTHON, "-u", "-c", source)
    target.wait_line("ready")
    return target


@ROOT_ONLY
def test_root_enters_any_user(world):
    Life(world, process_of(world, NOBODY).pid).whole()


@ROOT_ONLY
def test_user_enters_his_own(world):
    target = process_of(world, OTHER)
    Life(world, target.pid, run=lambda *words: as_user(OTHER, *words)).whole(python=False)


@ROOT_ONLY
def test_user_in_thousands_of_groups(world):
    """What /proc/PID/status says behind a line of 20 KB is read like the rest of it: which signals
    a thread blocks, for one, without which none is stopped."""
    p = world.start(DEBIAN_PYTHON, "-u", "-c",
                    "import os\nos.setgroups(range(100000, 103000))\nprint('ready')\n"
                    "while True: sum(range(1000))")
    p.wait_line("ready")
    life = Life(world, p.pid)
    life.ok("inject")
    stack = life.ok("backtrace", "--native")
    assert "no native frames" not in stack and "+0x" in stack, stack
    life.ok("eject")


@ROOT_ONLY
def test_user_does_not_enter_another(world):
    target = process_of(world, NOBODY)
    done = as_user(OTHER, "-t", str(target.pid), "inject")
    assert done.returncode == 1, done.stdout
    for word in (str(target.pid), "uid %d" % NOBODY, "%d" % OTHER, "sudo"):
        assert word in done.stderr
    assert target.alive()


@ROOT_ONLY
def test_user_does_not_enter_an_undumpable_one(world):
    target = process_of(world, OTHER, "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
                        + IDLE)
    done = as_user(OTHER, "-t", str(target.pid), "inject")
    assert done.returncode == 1 and "undumpable" in done.stderr and "sudo" in done.stderr
    Life(world, target.pid).whole()


# ---- programs of every kind ----

PROGRAMS = {
    "bash": ["bash", "-c", "echo ready; while :; do read -t 0.05 < <(:) || :; done"],
    "perl": ["perl", "-e",
             "$|=1; print qq(ready\\n); while (1) { select(undef,undef,undef,0.05) }"],
    "node": ["node", "-e", "console.log('ready'); setInterval(() => {}, 50)"],
    "sleep": ["sh", "-c", "echo ready; exec sleep 600"],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_are_not_python(world, name):
    if not shutil.which(PROGRAMS[name][0]):
        pytest.skip("no %s here" % PROGRAMS[name][0])
    target = world.start(*PROGRAMS[name])
    target.wait_line("ready")
    # it said so before it became sleep, whose loader has files open
    wait_for(lambda: name != "sleep" or "nanosleep" in Path("/proc/%d/wchan" % target.pid).
             read_text(), "the program itself")
    Life(world, target.pid).whole(python=False, steady=name != "bash")


def test_java(world):
    if not shutil.which("javac") and not shutil.which("java"):
        pytest.skip("no java here")
    source = world.tmp / "Idle.java"
    source.write_text("class Idle { public static void main(String[] a) throws Exception {\n"
                      "System.out.println(\"ready\"); while (true) Thread.sleep(50); } }\n")
    built = shutil.which("javac") and subprocess.run(
        ["javac", str(source)], cwd=world.tmp, capture_output=True).returncode == 0
    probe = subprocess.run(["java", "-version"], capture_output=True)
    if probe.returncode != 0 or not built:
        pytest.skip("java is here, but cannot compile")
    target = world.start("java", "-cp", str(world.tmp), "Idle")
    target.wait_line("ready")
    Life(world, target.pid).whole(python=False)


@pytest.mark.parametrize("count", [1, 2, 16, 512])
def test_threads(world, count):
    target = world.python(THREADS % (count - 1))
    target.wait_line("ready")
    Life(world, target.pid).whole()


def test_threads_that_are_born_and_die(world):
    target = world.python("import threading, time\nprint('ready', flush=True)\nwhile True:\n"
                          "    t = [threading.Thread(target=time.sleep, args=(0.001,)) "
                          "for _ in range(20)]\n"
                          "    [x.start() for x in t]\n    [x.join() for x in t]\n")
    target.wait_line("ready")
    life = Life(world, target.pid)
    for _ in range(5):
        life.ok("inject")
        assert life.ask(life.target, "select 1") == [[1]]
        life.ok("eject")
    assert target.alive()


LEADERLESS = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *run(void *a) { puts("ready"); fflush(stdout); for (;;) usleep(50000); return a; }
int main(void) { pthread_t t; pthread_create(&t, 0, run, 0); pthread_exit(0); }
"""


def c_program(world, name, text):
    if not shutil.which("cc"):
        pytest.skip("no cc here")
    source = world.tmp / (name + ".c")
    source.write_text(text)
    subprocess.run(["cc", str(source), "-o", str(world.tmp / name), "-pthread"], check=True)
    target = world.start(str(world.tmp / name))
    target.wait_line("ready")
    return target


def test_first_thread_has_ended(world):
    """Linux shows such a process as a zombie without memory: it is told apart from a dead one."""
    target = c_program(world, "leaderless", LEADERLESS)
    wait_for(lambda: "Z (zombie)" in Path("/proc/%d/status" % target.pid).read_text(), "its end")
    done = target.probing("inject")
    assert done.returncode == 1 and "first thread" in done.stderr and "pthread_join" in done.stderr
    assert target.alive()


LARGE_TLS = """
#include <stdio.h>
#include <unistd.h>
static _Thread_local volatile char much[700 << 10];
int main(void) { much[0] = 1; puts("ready"); fflush(stdout); for (;;) usleep(50000); }
"""


def test_thread_local_storage_larger_than_a_stack_of_ours(world):
    """libc takes it out of each thread's stack, and starts none where too little is left."""
    target = c_program(world, "large", LARGE_TLS)
    target.inject()
    for name in ("gpu", "nccl", "system", "memory", "profile"):
        done = target.probing("plugin", "load", name)
        assert done.returncode == 0, done.stderr
    states = target.rows("select distinct state from probing.plugins")
    assert states == [["running"]], states


LOADING = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *run(void *file) { dlopen(file, RTLD_NOW); puts("loaded"); fflush(stdout); return 0; }
int main(int argc, char **argv) {
  pthread_t t; pthread_create(&t, 0, run, argv[1]);
  for (int i = 0;; i++) { FILE *f = fopen(argv[2], "w"); fprintf(f, "%d", i); fclose(f);
    usleep(2000); }
}
"""
SLOW = """
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void begin(void)
{ puts("in the loader"); fflush(stdout); while (access("%s", F_OK)) usleep(1000); }
"""


def test_another_thread_is_in_the_loader(world):
    """It may be there for as long as an import takes: the program's threads go on meanwhile."""
    count, go = world.tmp / "count", world.tmp / "go"
    (world.tmp / "loading.c").write_text(LOADING)
    slow = world.plugin("slow", SLOW % go)
    subprocess.run(["cc", str(world.tmp / "loading.c"), "-o", str(world.tmp / "loading"),
                    "-pthread", "-ldl"], check=True)
    target = world.start(str(world.tmp / "loading"), str(slow), str(count))
    target.wait_line("in the loader")
    command = subprocess.Popen([str(CLI), "-t", str(target.pid), "inject"], env=world.env,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    threads = Path("/proc/%d/task" % target.pid)
    wait_for(lambda: len(list(threads.iterdir())) == 3, "a thread of ours that waits")
    seen = {}
    wait_for(lambda: seen.setdefault(count.read_text()) or len(seen) > 50, "the program to go on")
    assert command.poll() is None
    go.write_text("")
    output = command.communicate(timeout=LIMIT)[0]
    assert command.returncode == 0, output
    target.wait_line("loaded")
    assert target.rows("select 1") == [[1]]


@MOUNTS
@pytest.mark.parametrize("size", [70, 400])
def test_shared_memory_is_the_programs(world, size):
    """Our names filled a /dev/shm of 70 MB, and data loaders had no room for their tensors."""
    _, pid = in_namespaces(world, ["--mount"],
                           "mount -t tmpfs -o size=%dm none /dev/shm; exec " % size)
    done = world.probing("-t", str(pid), "inject")
    assert done.returncode == 0, done.stderr
    folders = list(Path("/proc/%d/root/dev/shm" % pid).glob("probing-*/*"))
    assert len(folders) == (size > 256)
    for folder in folders:
        for name in ("rings", "strings"):
            assert 0 < (folder / name).stat().st_size <= (size << 20) // 8 + 65536, name
    assert world.probing("-t", str(pid), "query", "select 1").returncode == 0


def test_program_with_a_sanitizer(world):
    """It must hear of every thread, so none is made behind its back."""
    source = world.tmp / "watched.c"
    source.write_text("#include <stdio.h>\n#include <unistd.h>\n"
                      'int main(void) { puts("ready"); fflush(stdout); for (;;) usleep(1000); }\n')
    made = subprocess.run(["cc", "-fsanitize=address", str(source), "-o",
                           str(world.tmp / "watched")], stderr=subprocess.PIPE)
    if made.returncode != 0:
        pytest.skip("cc has no address sanitizer")
    target = world.start(str(world.tmp / "watched"))
    target.wait_line("ready")
    Life(world, target.pid).whole(python=False)
    assert "Sanitizer" not in target.output(), target.output()


# ---- limits that a process has put on itself ----

def test_no_memory_both_written_and_run(world):
    """PR_SET_MDWE, Linux 6.3."""
    if ctypes.CDLL(None).prctl(66, 0, 0, 0, 0) == -1:
        pytest.skip("this kernel has no PR_SET_MDWE")
    target = world.python("import ctypes\nassert ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) == 0\n"
                          + IDLE)
    target.wait_line("ready")
    Life(world, target.pid).whole(python=False)


DLMOPEN = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    (void)argc;
    void *own = dlmopen(LM_ID_NEWLM, argv[1], RTLD_NOW);
    if (!own)
        return puts(dlerror());
    void (*begin)(int) = (void (*)(int))dlsym(own, "Py_InitializeEx");
    int (*run)(const char *) = (int (*)(const char *))dlsym(own, "PyRun_SimpleString");
    unsigned (*nap)(unsigned) = (unsigned (*)(unsigned))dlsym(own, "sleep");
    if (begin)
        begin(0);
    puts("ready");
    fflush(stdout);
    for (;;)
        begin ? run("import time; time.sleep(600)") : (int)nap(600);
}
"""


@pytest.mark.parametrize("library", ["libc.so.6", "libpython3"])
def test_library_in_a_namespace_of_its_own(world, library):
    """dlmopen() maps a second libc, in which the only thread waits; a CPython there is said."""
    if not shutil.which("cc"):
        pytest.skip("no cc here")
    if library == "libpython3":
        found = sorted(glob.glob(PYENV + "/3.*/lib/libpython3.1*.so.1.0"))
        if not found:
            pytest.skip("no CPython with a shared library (pyenv)")
        library = found[-1]
    source, program = world.tmp / "dlmopen.c", world.tmp / "dlmopen"
    source.write_text(DLMOPEN)
    subprocess.run(["cc", str(source), "-o", str(program), "-ldl"], check=True)
    target = world.start(str(program), library)
    target.wait_line("^ready")
    target.inject()
    assert " main (dlmopen+" in target.probing("backtrace").stdout
    if "python" in library:
        assert "by dlmopen into a namespace of its own" in target.probing("eval", "1").stderr
        assert "<module>" in target.probing("backtrace", "--external").stdout
    assert target.probing("eject").returncode == 0
    assert target.alive()
