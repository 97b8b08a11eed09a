# SPDX-License-Identifier: Apache-2.0
"""A process that is not simply one user's: setuid, seteuid, capabilities, not dumpable, another
group.  Nobody asks it whom the kernel would not let trace it, and what its starter wished does not
count.  The rule itself, for each id: sdk/lib/proc/identity_test.c."""
import ast
import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from world import CORE, DEBIAN_PYTHON, ROOT, World, lend, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, and another user against it")
NOBODY = 65534
PLACES = ("/tmp", "/var/tmp", "/dev/shm")
AS_NOBODY = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]
PORT_FREE = "127.0.0.1:0"
IDLE = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.02)\n"

# Connects, and for each line that it is given asks "version"; prints what it hears as one line.
CLIENT = r"""
import socket, sys
kind = socket.SOCK_SEQPACKET if sys.argv[1] == "door" else socket.SOCK_STREAM
asked = b"nonsense" if sys.argv[1] == "door" else b"version\n"
s = socket.socket(socket.AF_UNIX, kind)
s.settimeout(60)
try:
    s.connect(sys.argv[2])
except OSError as error:
    print(repr("no way in: %s" % error), flush=True)
    sys.exit()
for line in sys.stdin:
    heard = b""
    try:
        s.sendall(asked)
    except OSError:
        pass
    try:
        while not heard or (kind == socket.SOCK_STREAM and not heard.endswith(b"\n.\n")):
            data = s.recv(4096)
            if not data:
                break
            heard += data
    except OSError:
        pass
    print(repr(heard.decode()), flush=True)
"""


@pytest.fixture
def shared():
    folder = Path(tempfile.mkdtemp(prefix="probing-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def world(tmp_path, shared):
    """Data of processes whose environment counts are in a folder of all users; of others in /tmp,
    as it is for the users."""
    made = World(tmp_path)
    made.data = shared
    made.env["PROBING_DATA_DIR"] = str(shared)
    (shared / "client.py").write_text(CLIENT)
    (shared / "idle.py").write_text(IDLE)
    for name in ("client.py", "idle.py"):
        (shared / name).chmod(0o644)
    yield from lend(made)
    for target in made.targets:
        for place in PLACES:
            for left in glob.glob("%s/probing-*/%d-*" % (place, target.pid)):
                shutil.rmtree(left)


def enter(target, *words):
    """It is entered by root, and its sockets opened to all by mistake."""
    done = target.inject(*words)
    target.place = Path(re.search(r"data: (\S+)", done.stdout).group(1))
    target.uid = target.place.stat().st_uid
    for name in ("sock", "door"):
        (target.place / name).chmod(0o777)
    return target


class Client:
    """Others cannot reach a socket in a directory of mode 0700, so it gets one by descriptor: only
    the core itself keeps it out."""

    def __init__(self, target, before=AS_NOBODY, name="sock"):
        at = os.open(target.place / name, os.O_PATH)
        self.process = subprocess.Popen(
            [*before, DEBIAN_PYTHON, str(target.world.data / "client.py"), name,
             "/proc/self/fd/%d" % at], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            pass_fds=[at])
        os.close(at)

    def ask(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return ast.literal_eval(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.communicate()


def heard(target, **how):
    client = Client(target, **how)
    try:
        return client.ask()
    finally:
        client.end()


def answers(target):
    """Root is answered by both sockets, and by the command."""
    assert "build" in heard(target, before=[])
    assert "accepts only" in heard(target, before=[], name="door")
    done = target.probing("query", "--format", "csv", "select 40 + 2 as a")
    assert "42" in done.stdout, done.stderr


def refuses(target, why, **how):
    for name in ("sock", "door"):
        said = heard(target, name=name, **how)
        assert why in said and said.startswith("error: "), (name, said)


def log_of(target):
    return [row[0] for row in target.rows("select text from probing.log")]


def nobodys(world, *before, python=DEBIAN_PYTHON, env=None):
    target = world.start(*AS_NOBODY, *before, str(python), "-u", str(world.data / "idle.py"),
                         env=env)
    target.wait_line("ready")
    return target


def program(world, name, text):
    source = world.data / (name + ".c")
    source.write_text(text)
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    subprocess.run(["cc", "-O1", "-o", str(world.data / name), str(source)], check=True)
    return world.data / name


def evil_plugins(world):
    """Programs of a user: each marks a file with the rights that it has."""
    marked, folder = world.data / "marked", world.data / "evil"
    folder.mkdir()
    made = world.plugin("memory", """
#include <probing/plugin.h>
#include <stdio.h>
#include <unistd.h>
static int init(const struct probing_host *h, void **self) {
    FILE *f = fopen("%s", "w");
    if (f) { fprintf(f, "%%d", (int)geteuid()); fclose(f); }
    *self = 0; (void)h; return 0;
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 = {.size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI, .name = "memory", .version = "1", .doc = "x", .init = init,
    .destroy = destroy};
""" % marked)
    shutil.copy(made, folder / "memory.so")
    (folder / "memory.so").chmod(0o755)
    for path in (folder, folder / "memory.so"):
        os.chown(path, NOBODY, NOBODY)
    return folder, marked


# ---- who started it ----

def test_environment_of_a_setuid_program(world):
    """A user starts a program of root's with settings for the core that root will put into it."""
    idle = program(world, "idle", "#include <stdio.h>\n#include <unistd.h>\n"
                   "int main(void) { printf(\"ready %d\\n\", (int)geteuid()); fflush(stdout);"
                   " for (;;) pause(); }\n")
    idle.chmod(0o4755)
    folder, marked = evil_plugins(world)
    target = world.start(
        *AS_NOBODY, str(idle),
        env={"PROBING_PLUGIN_PATH": str(folder), "PROBING_PLUGINS": "memory",
             "PROBING_SERVER_LISTEN": PORT_FREE, "PROBING_TOKEN": "0123456789abcdef" * 2,
             "PROBING_CRASH": "1", "HOME": str(folder), "RANK": "3", "WORLD_SIZE": "8",
             "MASTER_ADDR": "a", "MASTER_PORT": "1"})
    if target.wait_line("^ready .*").group() != "ready 0":
        pytest.skip("setuid does not count in %s (nosuid)" % world.data)
    home = folder / ".config" / "probing"
    home.mkdir(parents=True)
    (home / "probing.lua").write_text("error('of the starter')\n")
    for path in (home.parent, home, home / "probing.lua"):
        os.chown(path, NOBODY, NOBODY)
    enter(target)
    assert target.uid == 0 and target.place.parent != world.data
    rows = dict(target.rows("select name, value from probing.settings where name in "
                            "('server.listen', 'probing.plugins', 'probing.plugin_path', "
                            "'crash.handler')"))
    assert rows == {"server.listen": "", "probing.plugins": "python", "probing.plugin_path": "",
                    "crash.handler": "off"}, rows
    assert "variable:" not in (target.place / "info").read_text()
    done = target.probing("plugin", "load", "memory")
    assert not marked.exists(), marked.read_text() + done.stderr
    log = log_of(target)
    assert any("no setting is taken from the environment" in line for line in log), log
    assert not any("of the starter" in line or "probing.lua" in line for line in log), log
    refuses(target, "ids of several users")
    answers(target)


def test_hook_of_a_setuid_python(world):
    """libprobing.pth in a Python that has capabilities of its own: PROBING=1 is its starter's."""
    python = capable(world)
    hook = ROOT / "plugins" / "python" / "package"
    env = {"PROBING": "1", "PYTHONPATH": str(hook), "PROBING_LIBRARY": str(CORE)}
    words = ["-c", "import libprobing_hook, os; print(sorted(os.listdir('/proc/self/task')))"]
    done = subprocess.run([*AS_NOBODY, str(python), *words], env=dict(world.env, **env), text=True,
                          capture_output=True)
    assert len(ast.literal_eval(done.stdout)) == 1, done
    assert "its environment does not count" in done.stderr or "Permission" in done.stderr, done


# ---- whose it is at the moment ----

def test_daemon_with_a_users_rights(world):
    """A daemon of root's is entered while it has put on a user's rights, as file servers do."""
    target = world.python("import os\nos.seteuid(%d)\n" % NOBODY + IDLE)
    target.wait_line("ready")
    enter(target)
    for path in (target.place, *target.place.iterdir()):
        assert path.lstat().st_uid == 0, path
    refuses(target, "ids of several users")
    answers(target)
    done = target.probing("eval", "import os; print(os.getresuid()); os.seteuid(0)")
    assert "(0, %d, 0)" % NOBODY in done.stdout, done
    assert heard(target) == "" == heard(target, name="door")  # another user, and no more
    answers(target)


def test_rights_that_are_put_on_later(world):
    """The right to ask is checked each time: the kernel does not let that user trace it, either."""
    target = world.python(IDLE)
    target.wait_line("ready")
    enter(target)
    client = Client(target, before=[])
    assert "build" in client.ask() and heard(target) == ""
    for uid in (NOBODY, 0, NOBODY):
        done = target.probing("eval", "import os; os.seteuid(%d)" % uid)
        assert done.returncode == 0, done.stderr
        if uid:
            refuses(target, "ids of several users")
        answers(target)
        assert "build" in client.ask()
    client.end()
    done = target.probing("plugin", "load", "system")  # files of root's, below root's directory
    assert done.returncode == 0, done.stderr
    assert all(path.lstat().st_uid == 0 for path in target.place.iterdir())
    assert target.probing("eject").returncode == 0 and target.alive()
    left = [name for name in os.listdir(target.place) if name in ("sock", "door", "token")]
    assert not left and not glob.glob("/dev/shm/probing-*/" + target.place.name)


def test_crash_with_rights_that_were_put_on(world):
    """The report is in the directory of root's, where that user may make nothing."""
    target = world.python(IDLE)
    target.wait_line("ready")
    enter(target, "-c")
    assert target.probing("eval", "import os; os.seteuid(%d)" % NOBODY).returncode == 0
    os.kill(target.pid, signal.SIGSEGV)
    assert target.process.wait() == -signal.SIGSEGV
    report = target.place / "crash"
    assert report.stat().st_uid == 0 and "SIGSEGV" in target.probing("backtrace").stdout


# prctl(PR_SET_DUMPABLE): the kernel lets root alone trace such a process.
DUMPABLE = "import ctypes; print(ctypes.CDLL(None).prctl(4, %d, 0, 0, 0))"


def test_process_that_is_not_dumpable(world):
    """Its own user is turned away, in the middle of a connection too, until it is again."""
    target = enter(nobodys(world))
    before = Client(target)
    silent = Client(target)
    assert "build" in before.ask() and "build" in silent.ask()
    assert target.probing("eval", DUMPABLE % 0).stdout.strip() == "0"
    assert "not dumpable" in before.ask() and before.ask() == ""
    refuses(target, "not dumpable")
    # One that asks nothing (a stream, a command that takes long) is cut off within a second.
    wait_for(lambda: len(target.rows("select * from probing.clients where client like '%%uid %d'"
                                     % NOBODY)) == 0, "a connection that is cut off")
    answers(target)
    assert any("uid %d was turned away: this process is not dumpable" % NOBODY in line
               for line in log_of(target))
    assert target.probing("eval", DUMPABLE % 1).stdout.strip() == "0"
    assert "build" in heard(target)
    for client in (before, silent):
        client.end()


# ---- capabilities ----

def capable(world):
    """A Python with a capability of its file's."""
    python = world.data / "python"
    if not shutil.which("setcap"):
        pytest.skip("no setcap")
    shutil.copy(os.path.realpath(DEBIAN_PYTHON), python)
    python.chmod(0o755)
    done = subprocess.run(["setcap", "cap_net_raw+ep", str(python)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip("no capabilities of files here: " + done.stderr)
    return python


def test_capabilities_that_a_process_was_given(world):
    """Its rights are not those of its user's other processes: they are not lent to them."""
    target = world.start(
        "setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups",
        "--inh-caps=+net_raw", "--ambient-caps=+net_raw", DEBIAN_PYTHON, "-u",
        str(world.data / "idle.py"))
    target.wait_line("ready")
    assert re.search(r"CapPrm:\s*0*2000\b", Path("/proc/%d/status" % target.pid).read_text())
    enter(target)
    assert target.uid == NOBODY
    refuses(target, "has capabilities")
    answers(target)


def test_capabilities_of_a_file(world):
    target = nobodys(world, python=capable(world), env={"PROBING_CRASH": "1"})
    enter(target)
    refuses(target, "ask as root")  # not dumpable, either, for most kernels
    assert target.rows("select value from probing.settings where name = 'crash.handler'") == [
        ["off"]]
    answers(target)


# ---- groups and namespaces ----

def test_another_group(world):
    """newgrp and sg: the kernel's rule for ptrace has the group in it, and the answer says so."""
    target = enter(nobodys(world))
    assert "build" in heard(target)
    other = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % (NOBODY - 1), "--clear-groups"]
    refuses(target, "newgrp", before=other)


def test_root_with_less_than_the_process(world):
    """As root of a container that sees a socket of the machine's own root."""
    target = world.python(IDLE)
    target.wait_line("ready")
    enter(target)
    less = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all"]
    refuses(target, "without the capabilities", before=less)
    answers(target)
    same = world.start(*less, DEBIAN_PYTHON, "-u", str(world.data / "idle.py"))
    same.wait_line("ready")
    enter(same)
    assert "build" in heard(same, before=less)
    answers(same)


def test_user_namespace_below(world):
    """A user who is root in his own namespace, or himself there, traces nothing outside."""
    target = enter(nobodys(world))
    for how in (["--user"], ["--user", "--map-root-user"], ["--user", "--map-current-user"]):
        made = subprocess.run([*AS_NOBODY, "unshare", *how, "true"], capture_output=True)
        if made.returncode != 0:
            pytest.skip("no user namespaces here: %r" % made.stderr)
        refuses(target, "user namespace", before=[*AS_NOBODY, "unshare", *how])
    assert "build" in heard(target)


@pytest.mark.parametrize("how", ["--map-root-user", "--map-current-user"])
def test_process_in_a_user_namespace(world, how):
    """Made by its user, as containers without root are: he has all rights in there."""
    made = subprocess.run(["unshare", "--mount", *AS_NOBODY, "unshare", "--user", how, "true"],
                          capture_output=True)
    if made.returncode != 0:
        pytest.skip("no namespaces here: %r" % made.stderr)
    own = world.data / "own"  # and a /dev/shm that leaves no folder called after root behind
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    target = world.start(
        "unshare", "--mount", "sh", "-c",
        "mount -t tmpfs -o mode=1777 none /dev/shm && exec \"$@\"", "sh", *AS_NOBODY, "unshare",
        "--user", how, DEBIAN_PYTHON, "-u", str(world.data / "idle.py"),
        env={"PROBING_DATA_DIR": str(own)})
    target.wait_line("ready")
    enter(target)
    assert "build" in heard(target)
    inside = ["nsenter", "--user", "--preserve-credentials", "--target", str(target.pid)]
    assert "build" in heard(target, before=[*AS_NOBODY, *inside])
    assert target.rows("select 40 + 2") == [[42]]


def test_process_asks_itself(world):
    """Whatever it is: it may do all that it may do."""
    target = world.python("import os, socket, sys\nos.seteuid(%d)\n" % NOBODY + IDLE)
    target.wait_line("ready")
    enter(target)
    done = target.probing("eval", "import socket; s = socket.socket(socket.AF_UNIX); "
                          "s.connect(%r); s.sendall(b'version\\n'); print(s.recv(99))"
                          % str(target.place / "sock"))
    assert "build" in done.stdout, done


# ---- plugins by their path ----

def test_plugins_of_another_user(world):
    """PROBING_PLUGIN_PATH of root's own, which leads to what another has made."""
    folder, marked = evil_plugins(world)
    file = folder / "memory.so"
    for refused, other in ((file, folder), (folder, file)):
        os.chown(refused, NOBODY, NOBODY)
        os.chown(other, 0, 0)
        target = world.start(DEBIAN_PYTHON, "-u", str(world.data / "idle.py"),
                             env={"PROBING_PLUGIN_PATH": str(folder), "PROBING_PLUGINS": "memory"})
        target.wait_line("ready")
        enter(target)
        assert not marked.exists(), "it runs as uid " + marked.read_text()
        words = "%s belongs to uid %d" % (refused, NOBODY)
        log = [line for line in log_of(target) if words in line]
        assert log and "plugin load FILE" in log[0], log_of(target)
