# SPDX-License-Identifier: Apache-2.0
"""Processes that cannot be entered, or only with care: one line that says why, or it works; and the
process is alive and as it was afterwards."""
import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

from world import CLI, CORE, LIMIT, holds_ours, wait_for

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MOUNTS = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
NAMESPACES = pytest.mark.skipif(not MOUNTS, reason="may not make a mount namespace here")
NOBODY = 65534

PAUSE = '#include <unistd.h>\n#include <stdio.h>\nint main(void) { puts("ready"); ' \
        'fflush(stdout); for (;;) pause(); }\n'

# Without any library: even a machine with no 32-bit libc can make one.
PAUSE_32 = 'void _start(void) { for (;;) __asm__ volatile("int $0x80" : : "a"(29)); }\n'

TRACER = """
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(0x4206, int(sys.argv[1]), None, None) == 0
print("tracing")
time.sleep(600)
"""

# prctl(PR_SET_NO_NEW_PRIVS), then a filter: memfd_create gives what argv says, all else is allowed.
FILTERED = """
import ctypes, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
code = [(0x20, 0, 0, 0), (0x15, 0, 1, %d), (0x06, 0, 0, %d), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *c) for c in code))
class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code), ctypes.cast(text, ctypes.c_void_p))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
print("ready")
while True: time.sleep(0.05)
"""
MEMFD_CREATE, LISTEN = {"x86_64": (319, 50), "aarch64": (279, 201)}[os.uname().machine]
ERRNO_EPERM, KILL_PROCESS = 0x00050001, 0x80000000


def refused(done, *words):
    """One line on stderr with all `words`, exit code 1."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], done.stderr


def compiled(world, source, *flags, compiler="cc"):
    """Path of a program, or the test is skipped: this machine cannot make such a one."""
    text, program = world.tmp / "program.c", world.tmp / "program"
    text.write_text(source)
    if not shutil.which(compiler):
        pytest.skip("no %s here" % compiler)
    done = subprocess.run([compiler, str(text), "-o", str(program), *flags],
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("%s %s: %s" % (compiler, " ".join(flags), done.stderr.splitlines()[-1]))
    return str(program)


def as_it_was(target):
    """Alive, traced by nobody, with no code, thread or descriptor of ours."""
    assert target.alive()
    assert not holds_ours(target.pid)
    with open("/proc/%d/status" % target.pid) as status:
        assert "TracerPid:\t0" in status.read()
    folder = "/proc/%d/fd/" % target.pid
    assert not [f for f in os.listdir(folder) if "probing" in os.readlink(folder + f)]


def works(target, *options, **kwargs):
    done = target.probing("inject", *options, **kwargs)
    assert done.returncode == 0, done.stderr
    assert target.rows("select 1", **kwargs) == [[1]]
    assert target.probing("eject", **kwargs).returncode == 0
    assert target.alive()


# ---- other kinds of program ----

def test_static_program(world):
    target = world.start(compiled(world, PAUSE, "-static"))
    target.wait_line("ready")
    refused(target.probing("inject"), str(target.pid), "static", "dynamically")
    as_it_was(target)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="there is no such program here")
def test_32_bit_program(world):
    target = world.start(compiled(world, PAUSE_32, "-m32", "-nostdlib", "-static", "-fno-pic"))
    wait_for(lambda: os.readlink("/proc/%d/exe" % target.pid).endswith("program"), "exec")
    refused(target.probing("inject"), str(target.pid), "32-bit")
    as_it_was(target)


def test_musl_program(world):
    target = world.start(compiled(world, PAUSE, compiler="musl-gcc"))
    target.wait_line("ready")
    refused(target.probing("inject"), str(target.pid), "musl")
    as_it_was(target)


def test_dynamic_program_that_is_no_python(world):
    target = world.start(compiled(world, PAUSE))
    target.wait_line("ready")
    works(target, "-D", "probing.plugins=")  # nothing but the core
    maps = open("/proc/%d/maps" % target.pid).read()
    if "libpthread" in subprocess.run(["ldd", str(CLI)], capture_output=True, text=True).stdout \
            and os.confstr("CS_GNU_LIBC_VERSION") >= "glibc 2.34":
        assert "libpthread" not in maps and "libdl" not in maps  # empty there, so left out


# ---- other states ----

def test_zombie(world):
    gone = subprocess.Popen(["/bin/true"])
    wait_for(lambda: "Z (zombie)" in open("/proc/%d/status" % gone.pid).read(), "a zombie")
    refused(world.probing("-t", str(gone.pid), "inject"), str(gone.pid))
    gone.wait()


def test_kernel_thread(world):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            flags = int(open("/proc/%s/stat" % pid).read().rpartition(")")[2].split()[6])
        except OSError:
            continue
        if flags & 0x00200000:
            break
    else:
        pytest.skip("no kernel thread is seen here")
    refused(world.probing("-t", pid, "inject"), pid, "kernel thread")


def test_already_traced(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    tracer = world.start(sys.executable, "-u", "-c", TRACER, str(target.pid))
    tracer.wait_line("tracing")
    refused(target.probing("inject"), "already traced", str(tracer.pid), "python")
    tracer.kill()
    works(target)


def test_stopped(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.process.send_signal(19)
    status = "/proc/%d/status" % target.pid
    wait_for(lambda: re.search(r"State:\s+T", open(status).read()), "the target to stop")
    done = target.probing("inject")
    assert done.returncode == 0 and "kill -CONT" in done.stdout
    # The kernel lets go of a stopped thread through a moment of running.
    wait_for(lambda: re.search(r"State:\s+T", open(status).read()), "the stop to hold again")
    target.process.send_signal(18)
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "an answer")


@ROOT_ONLY
def test_undumpable(world):
    target = world.python("import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n" + IDLE)
    target.wait_line("ready")
    works(target)


def test_256_threads(world):
    target = world.python("import threading, time\n"
                          "for _ in range(255): threading.Thread(target=time.sleep, args=(600,), "
                          "daemon=True).start()\n" + IDLE)
    target.wait_line("ready")
    works(target)


def test_file_replaced_under_the_process(world):
    """An upgrade unlinks the program and its libraries while it runs."""
    python = shutil.copy(os.path.realpath(sys.executable), world.tmp / "python-old")
    library = world.tmp / "libm.so.6"
    shutil.copy(next(line.split()[-1] for line in open("/proc/self/maps") if "libm.so.6" in line
                     or "libm-2" in line), library)
    target = world.python(IDLE, python=str(python), env={
        "LD_LIBRARY_PATH": "%s:%s" % (world.tmp, os.path.join(sys.base_prefix, "lib")),
        "PYTHONHOME": sys.base_prefix})
    target.wait_line("ready")
    os.unlink(python)
    os.unlink(library)
    works(target)


# ---- other users, namespaces, filters ----

def other_user(world, source):
    """Its data goes to the default place, where that user may write."""
    target = world.start("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups",
                         "env", "-u", "PROBING_DATA_DIR", "HOME=/", "/usr/bin/python3", "-u", "-c",
                         source)
    target.wait_line("ready")
    return target


def as_nobody(target, *words):
    """The command as that user, from a directory open to all: pytest's own are not."""
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for file in (CLI, CORE):
            shutil.copy(file, place)
        return subprocess.run(["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY,
                               "--clear-groups", place + "/probing", "-t", str(target.pid), *words],
                              capture_output=True, text=True, cwd="/")


@ROOT_ONLY
def test_root_enters_a_process_of_another_user(world):
    target = other_user(world, IDLE)
    works(target)


@ROOT_ONLY
@pytest.mark.parametrize("kept, missing", [
    ("+sys_ptrace", "DAC_OVERRIDE, SETGID, SETUID"),
    ("+sys_ptrace,+dac_override", "SETGID, SETUID"),
    ("+sys_ptrace,+dac_override,+setgid,+setuid", "")])
def test_root_of_few_capabilities(world, kept, missing):
    """A container that drops ALL and adds SYS_PTRACE: it was told that a seccomp profile refused
    it, or that the process closed our descriptors."""
    target = other_user(world, IDLE)
    done = subprocess.run(["setpriv", "--bounding-set=-all," + kept, "--inh-caps=-all", str(CLI),
                           "-t", str(target.pid), "inject"],
                          capture_output=True, text=True, env=world.env)
    if missing:
        refused(done, str(target.pid), "lacks " + missing + ":")
        as_it_was(target)
    else:
        assert done.returncode == 0, done.stderr


@ROOT_ONLY
def test_seccomp_refuses_memfd(world):
    """Root suspends the filter while it works in the thread."""
    target = world.python(FILTERED % (MEMFD_CREATE, ERRNO_EPERM))
    target.wait_line("ready")
    works(target)


@ROOT_ONLY
def test_seccomp_kills(world):
    """The filter is read, and what it would kill for is named."""
    target = world.python(FILTERED % (LISTEN, KILL_PROCESS))
    target.wait_line("ready")
    refused(target.probing("inject"), str(target.pid), "seccomp", "listen()")
    as_it_was(target)


@ROOT_ONLY
def test_seccomp_unreadable(world):
    """A user who may not read the filter does not try it out."""
    target = other_user(world, FILTERED % (LISTEN, KILL_PROCESS))
    done = as_nobody(target, "inject")
    refused(done, str(target.pid), "seccomp", "sudo")
    as_it_was(target)


@NAMESPACES
@ROOT_ONLY
def test_own_mount_and_pid_namespace(world):
    """A container, entered from outside by the pid that it has there."""
    starter = world.start(
        "unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c",
        "mount -t tmpfs none /tmp; mkdir /tmp/in; PROBING_DATA_DIR=/tmp/in "
        "exec /usr/bin/python3 -u -c \"$0\"", IDLE)
    starter.wait_line("ready")
    children = "/proc/%d/task/%d/children" % (starter.pid, starter.pid)
    pid = open(children).read().split()[0]
    done = world.probing("-t", pid, "inject")
    assert done.returncode == 0, done.stderr
    assert "data: /tmp/in/" in done.stdout
    done = world.probing("-t", pid, "query", "--format", "json", "select 40 + 2")
    assert "42" in done.stdout, done.stderr
    assert world.probing("-t", pid, "eject").returncode == 0
    os.kill(int(pid), 9)


@NAMESPACES
@ROOT_ONLY
def test_no_proc(world):
    target = world.start("unshare", "--mount", "sh", "-c",
                         "mount -t tmpfs none /proc; exec /usr/bin/python3 -u -c \"$0\"", IDLE)
    target.wait_line("ready")
    refused(target.probing("inject"), str(target.pid), "/proc")
    as_it_was(target)


# ---- no room ----

def test_no_descriptor_left(world):
    target = world.python("import os, resource\n"
                          "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                          "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
                          "held = []\n"
                          "try:\n"
                          "    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
                          "except OSError: pass\n" + IDLE)
    target.wait_line("ready")
    refused(target.probing("inject"), str(target.pid), "descriptor", "prlimit")
    as_it_was(target)
    hard = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(target.pid, resource.RLIMIT_NOFILE, (256, hard))
    works(target)


def test_few_descriptors_left(world):
    """Enough to come in, too few to live on: that is seen before."""
    target = world.python("import os, resource\n"
                          "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
                          "resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))\n"
                          "held = []\n"
                          "try:\n"
                          "    while True: held.append(os.open('/dev/null', os.O_RDONLY))\n"
                          "except OSError: pass\n"
                          "for fd in held[-3:]: os.close(fd)\n" + IDLE)
    target.wait_line("ready")
    before = len(os.listdir("/proc/%d/fd" % target.pid))
    refused(target.probing("inject"), "open files", "3 more", "prlimit")
    wait_for(lambda: len(os.listdir("/proc/%d/fd" % target.pid)) == before, "closed descriptors")
    assert target.alive()


def test_little_address_space(world):
    """Too little for the core: it says so, or does with less; the program goes on."""
    target = world.python("import resource\n"
                          "size = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
                          "resource.setrlimit(resource.RLIMIT_AS, (size + (1 << 20),) * 2)\n"
                          + IDLE)
    target.wait_line("ready")
    done = target.probing("inject")
    refused(done, str(target.pid), "address space (ulimit -v)")
    assert target.alive()


def test_data_directory_that_cannot_be_made(world):
    target = world.python(IDLE, env={"PROBING_DATA_DIR": "/proc/nowhere"})
    target.wait_line("ready")
    refused(target.probing("inject", "--timeout", "1h"), "could not start", "/proc/nowhere")
    assert target.alive()


@NAMESPACES
@ROOT_ONLY
def test_data_directory_without_room(world):
    target = world.start("unshare", "--mount", "sh", "-c",
                         "mount -t tmpfs -o size=64k none /mnt; mount -t tmpfs -o size=4k none "
                         "/dev/shm; PROBING_DATA_DIR=/mnt exec /usr/bin/python3 -u -c \"$0\"", IDLE)
    target.wait_line("ready")
    refused(target.probing("inject", "--timeout", "1h"), "could not start", "room")
    assert target.alive()


# ---- what inject is asked for beside coming in ----

def test_settings_that_cannot_be(world):
    """The core runs, with defaults in their place, and each is said."""
    target = world.python(IDLE)
    target.wait_line("ready")
    done = target.probing("inject", "-D", "probing.max_memory=lots", "-D", "nonsense.key=1", "-D",
                          "probing.nope=3", "-D", "probing.retention=1h", "-D",
                          "probing.max_offline_data=1GB", "-D", "torch.variables=loss@train")
    assert done.returncode == 1
    said = done.stderr.splitlines()
    assert "torch is not imported" in said[0] and "it waits for that" in said[0]
    said = said[1:]
    assert len(said) == 3, done.stderr
    assert "lots" in said[0] and "stays 1GB" in said[0]
    assert "nonsense.key" in said[1] and "no plugin 'nonsense'" in said[1]
    assert "probing.nope" in said[2]
    assert "torch.variables=loss@train" in done.stdout
    held = dict(target.rows("select name, value from probing.settings"))
    assert held["probing.max_memory"] == "1GB" and held["probing.retention"] == "1h"
    assert held["probing.max_offline_data"] == "1GB"


def test_settings_of_a_core_that_is_there(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    done = target.inject("-D", "probing.retention=2h")
    assert "already" in done.stdout
    assert target.probing("config", "get", "probing.retention").stdout.strip() == "2h"
    done = target.probing("inject", "-D", "probing.max_offline_data=7GB")
    assert done.returncode == 1 and "can only be set when" in done.stderr
    refused(target.probing("inject", "--plugin", "no_such_plugin"), "no_such_plugin")


def entered_by_another(world, *changes):
    """A process with a core that differs from ours in these bytes, and what its inject said."""
    folder = world.tmp / "other"
    folder.mkdir()
    shutil.copy(CLI, folder / "probing")
    core = CORE.read_bytes()
    for ours, theirs in changes:
        assert ours in core
        core = core.replace(ours, theirs)
    (folder / "libprobing.so").write_bytes(core)
    target = world.start("/bin/sleep", "600")
    wait_for(lambda: "libc" in open("/proc/%d/maps" % target.pid).read(), "its loading")
    return target, subprocess.run([str(folder / "probing"), "-t", str(target.pid), "inject"],
                                  text=True, capture_output=True, env=world.env)


def test_another_build_is_there(world):
    """Of the same version: it is entered and asked all the same, and each answer's stderr has one
    line about it."""
    said = re.fullmatch(r"probing (\S+) \(build ([0-9a-f]{12})\)\n",
                        world.probing("--version").stdout)
    ours, theirs = said.group(2), "0123456789ab"
    target, done = entered_by_another(world, (ours.encode(), theirs.encode()))
    assert done.returncode == 0, done.stderr
    for words in (["query", "select 1"], ["inject"], ["info"]):
        done = target.probing(*words)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("\n") == 1 and ours in done.stderr and theirs in done.stderr
    assert "version: %s (build %s)" % (said.group(1), theirs) in done.stdout


def test_the_same_build_is_not_spoken_of(world):
    target = world.start("/bin/sleep", "600")
    target.inject()
    assert target.probing("info").stderr == ""


def test_another_version_is_there(world):
    target, done = entered_by_another(world, (b"0.1.0\0", b"9.8.7\0"),
                                      (b"0.1.0 (build ", b"9.8.7 (build "))
    assert done.returncode == 0 and "probing 9.8.7 entered" in done.stdout, done.stderr
    refused(target.probing("inject"), "9.8.7", "0.1.0", "restart the process")
    assert target.rows("select 1") == [[1]]  # asking works all the same
    assert target.probing("eject").returncode == 0
    refused(target.probing("inject"), "9.8.7", "0.1.0", "restart the process")
    assert target.alive()


def test_dry_run_says_how(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    done = target.probing("inject", "--dry-run", "--plugin", "torch", "--plugin", "nonsense")
    assert done.returncode == 0, done.stderr
    for line in ("process %d" % target.pid, "thread:  %d" % target.pid, "library: %s" % CORE,
                 "data:    %s/%d-" % (world.data, target.pid), "plugin:  python",
                 "plugin:  torch\n", "nonsense, which is not installed"):
        assert line in done.stdout
    as_it_was(target)
    place = re.search(r"data:    (\S+),", done.stdout)[1]
    assert "data: %s\n" % place in target.inject().stdout  # and so it is
    static = world.start(compiled(world, PAUSE, "-static"))
    static.wait_line("ready")
    refused(static.probing("inject", "--dry-run"), "static")


def test_wait_until_the_debugger_has_gone(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    tracer = world.start(sys.executable, "-u", "-c", TRACER, str(target.pid))
    tracer.wait_line("tracing")
    refused(target.probing("inject", "--wait", "--timeout", "300ms"), "already traced")
    waiting = subprocess.Popen([str(CLI), "-t", str(target.pid), "inject", "--wait"],
                               env=world.env, stdout=subprocess.PIPE, text=True)
    time.sleep(0.2)  # it is waiting by now, or will
    assert waiting.poll() is None
    tracer.kill()
    assert "entered" in waiting.communicate(timeout=LIMIT)[0]


def test_wait_for_a_program_that_is_just_starting(world):
    for _ in range(10):
        target = world.start("/usr/bin/python3", "-c", IDLE)
        done = target.probing("inject", "--wait")
        assert done.returncode == 0, done.stderr
        assert target.rows("select 1") == [[1]]
        target.kill()


def test_pprof_samples_from_the_start(world):
    target = world.python("print('ready')\nwhile True: sum(range(1000))\n")
    target.wait_line("ready")
    done = target.inject("-P", "-D", "profile.rate=200")
    assert "plugin profile loaded" in done.stdout
    assert target.probing("config", "get", "profile.rate").stdout.strip() == "200"


def test_torch_without_its_plugin_says_the_one_command(world):
    """For a process that was not entered it said to load the plugin, which could not be done."""
    target = world.python(IDLE)
    target.wait_line("ready")
    entered_by = "probing -t %d inject --plugin torch" % target.pid
    refused(target.probing("torch"), "no probing core", entered_by)
    assert entered_by in target.probing("torch", "profile").stderr
    target.inject()
    refused(target.probing("torch"), "probing -t %d plugin load torch" % target.pid)
    target.kill()
    refused(target.probing("torch"), "plugin torch was never loaded in")


@pytest.mark.parametrize("words", [
    "query select(1)", "tables", "describe probing.log", "memory", "flamegraph",
    "flamegraph --last 1m", "flamegraph -s 1", "torch", "torch profile -o x.json", "top --once",
    "watch select(1)", "eval 1", "repl", "backtrace", "eject", "config", "plugin list",
    "plugin load torch", "script list", "export --format csv select(1)", "performance --cc",
    "debug --pause", "trace a.b", "info"])
def test_a_process_that_was_not_entered_says_so(world, words):
    """`flamegraph` said "File name too long", `torch` that a plugin is missing."""
    target = world.start("/bin/sleep", "600")
    done = target.probing(*words.split())
    assert done.returncode == 1, done.stderr
    assert "process %d has no probing core in it" % target.pid in done.stderr, done.stderr
    assert "too long" not in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("length", [110, 300, 3900, 4200])
def test_a_directory_with_too_long_a_path(world, length):
    """Sockets have 107 bytes for it: the advice is there however long the path is."""
    path = str(world.tmp)
    while len(path) < length:
        path += "/" + "d" * min(100, max(1, length - len(path) - 1))
    env = dict(world.env, PROBING_DATA_DIR=path)
    target = world.start("/bin/sleep", "600", env={"PROBING_DATA_DIR": path})
    done = world.probing("-t", str(target.pid), "inject", env=env)
    refused(done, "set a shorter PROBING_DATA_DIR")
    assert target.alive()


def test_a_library_that_cannot_be_opened_is_not_of_another_package(world):
    """The command's own limit was met, and it said to install all from one package."""
    done = subprocess.run(["/bin/sh", "-c", "ulimit -n 4; exec \"$0\" --version -v", str(CLI)],
                          env=world.env, capture_output=True, text=True)
    assert "libprobing.so cannot be opened: Too many open files" in done.stderr, done.stderr
    assert done.returncode == 1
