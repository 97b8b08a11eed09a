# SPDX-License-Identifier: Apache-2.0
"""Root asks, and the process that it asks is hostile: nobody else is ever spoken to in its place,
no secret goes where it does not belong, and nothing waits for it without end.  The hostile one is
tests/hostile/fake_target.py, run as another user.  What is made in its view of the file system:
cli/inject/target_files_test.c."""
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from world import CLI, DEBIAN_PYTHON, LIMIT, ROOT, World, hide, lend, wait_for

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, and another user against it")
NOBODY = 65534
FAKE = Path(__file__).with_name("fake_target.py")
IDLE = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)\n"
AS_NOBODY = ["setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups"]


@pytest.fixture
def shared():
    """A folder that all users may write to, and nobody of them may rename in."""
    folder = Path(tempfile.mkdtemp(prefix="probing-test-"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def world(tmp_path, shared):
    made = World(tmp_path)
    made.data = shared
    made.env["PROBING_DATA_DIR"] = str(shared)
    yield from lend(made)


def place_of(target):
    """The data directory of a target that was entered."""
    return Path(re.search(r"data: (\S+)", target.inject().stdout).group(1))


@pytest.fixture
def victim(world):
    """A process of root's with a core in it; `marked()` tells whether anybody ran code there."""
    target = world.python(IDLE)
    target.wait_line("ready")
    target.place = place_of(target)
    target.marked = lambda: "marked" in target.output()
    return target


MARK = "print('marked', flush=True); import sys; print('marked', file=sys.__stdout__, flush=True)"


def fake(world, **want):
    script = world.data / "fake_target.py"
    shutil.copy(FAKE, script)
    script.chmod(0o644)
    want.setdefault("root", str(world.data))
    want.setdefault("heard", str(world.data / "heard"))
    (world.data / "heard").touch()
    (world.data / "heard").chmod(0o666)
    target = world.start(*AS_NOBODY, DEBIAN_PYTHON, "-u", str(script), json.dumps(want))
    _, place, port = target.wait_line(r"^ready .*").group().split()
    target.place, target.port = Path(place), int(port)
    target.heard = lambda: (world.data / "heard").read_bytes()
    return target


# ---- whose socket it is ----

@pytest.mark.parametrize("words", [["eval", MARK], ["inject"], ["query", "select 1"], ["eject"],
                                   ["plugin", "load", "profile"], ["backtrace"]],
                         ids=lambda words: words[0])
def test_socket_that_is_a_link(world, victim, words):
    liar = fake(world, sock="link:%s/sock" % victim.place, door="link:%s/door" % victim.place)
    done = liar.probing(*words)
    if words != ["inject"]:  # that may enter it, as it is a Python
        assert done.returncode != 0, done.stdout
    assert not victim.marked() and victim.alive()
    assert victim.rows("select count(*) from probing.plugins where name = 'profile'") == [[0]]
    assert "in process %d already" % liar.pid not in done.stdout


def test_directory_that_another_lies_over(world, victim):
    """In a mount namespace of its own, where its directory is, it shows that of another process."""
    script = world.data / "fake_target.py"
    shutil.copy(FAKE, script)
    script.chmod(0o644)
    liar = world.start("unshare", "--mount", *AS_NOBODY, DEBIAN_PYTHON, "-u", str(script),
                       json.dumps({"root": str(world.data), "sock": "listen"}))
    place = liar.wait_line("^ready .*").group().split()[1]
    subprocess.run(["nsenter", "-t", str(liar.pid), "--mount", "mount", "--bind",
                    str(victim.place), place], check=True)
    assert Path("/proc/%d/root%s/rings" % (liar.pid, place)).exists()
    for target in (str(liar.pid), "/proc/%d/root%s/sock" % (liar.pid, place)):
        done = world.probing("-t", target, "eval", MARK)
        assert done.returncode == 1 and done.stderr, done.stdout
    assert not victim.marked() and victim.alive()


def test_directory_that_is_called_after_another(world, victim):
    """A directory with the victim's name and the liar's socket in it gets none of root's words."""
    liar = fake(world, sock="listen", says="42\n")
    name = world.data / "in"
    name.mkdir()
    copy = name / victim.place.name
    os.rename(liar.place, copy)
    done = world.probing("-t", str(copy / "sock"), "eval", "6 * 7")
    assert done.returncode == 1 and "42" not in done.stdout, done.stdout
    assert str(liar.pid) in done.stderr, done.stderr


def test_own_socket_of_another_user_is_said(world):
    liar = fake(world, sock="listen", says="42\n")
    done = world.probing("-t", str(liar.place / "sock"), "eval", "6 * 7")
    assert "uid %d" % NOBODY in done.stderr, done.stderr


def test_python_client(world, victim):
    liar = fake(world, sock="link:%s/sock" % victim.place)
    code = ("import sys, probing, probing.client\n"
            "try: probing.connect(int(sys.argv[1])).eval(sys.argv[2])\n"
            "except probing.client.Error as error: sys.exit(str(error))\n")
    done = subprocess.run([DEBIAN_PYTHON, "-c", code, str(liar.pid), MARK], text=True,
                          env=dict(world.env, PROBING="0", PYTHONPATH=str(
                              ROOT / "plugins" / "python" / "package")), capture_output=True)
    assert done.returncode == 1 and not victim.marked(), done.stderr
    assert "Traceback" not in done.stderr and "no socket" in done.stderr, done.stderr


@pytest.mark.parametrize("whose", ["ours", "another's"])
def test_listener_that_cannot_be_seen_from_here(world, whose):
    """From a pid namespace beside its own: of our own user it is believed, of another it is not."""
    space = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"]
    if whose == "ours":
        starter = world.start(*space, DEBIAN_PYTHON, "-u", "-c", IDLE)
        starter.wait_line("ready")
        pid = int(Path("/proc/%d/task/%d/children" % (starter.pid, starter.pid)).read_text())
        done = world.probing("-t", str(pid), "inject")
        place = re.search(r"data: (\S+)", done.stdout).group(1)
    else:
        script = world.data / "fake_target.py"
        shutil.copy(FAKE, script)
        script.chmod(0o644)
        starter = world.start(*space, *AS_NOBODY, DEBIAN_PYTHON, "-u", str(script),
                              json.dumps({"root": str(world.data), "sock": "listen"}))
        place = starter.wait_line("^ready .*").group().split()[1]
    done = subprocess.run([*space, str(CLI), "-t", place + "/sock", "query", "select 40 + 2"],
                          env=world.env, capture_output=True, text=True, timeout=LIMIT)
    if whose == "ours":
        assert done.returncode == 0 and "42" in done.stdout, done.stderr
    else:
        assert done.returncode == 1 and "another pid namespace" in done.stderr, done.stderr


# ---- tokens ----

def test_token_that_is_a_link(world):
    """A file that only root may read, as a token of one who says that he listens on a port."""
    secret = world.tmp / "secret"
    secret.write_text("rootonly-hunter2\n")
    secret.chmod(0o600)
    liar = fake(world, sock="listen", token="link:%s" % secret, port=0,
                says="pid: 1\nlistening: 127.0.0.1:%(port)d\n")
    process = subprocess.Popen([str(CLI), "-t", "127.0.0.1:%d" % liar.port, "eval", "1"],
                               env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: b"GET /ws" in liar.heard(), "a word of the command's")
    process.kill()
    process.communicate()
    assert b"hunter2" not in liar.heard() and b"Authorization" not in liar.heard()


@pytest.mark.parametrize("lives", [True, False])
def test_another_listens_on_our_port(world, victim, lives):
    """Ours is dead, or has closed the port, and somebody else has it now: he hears no token."""
    done = victim.probing("config", "set", "server.listen", "127.0.0.1:0")
    assert done.returncode == 0, done.stderr
    info = victim.probing("info").stdout
    port = int(re.search(r"^listening: .*:(\d+)", info, re.M).group(1))
    token = (victim.place / "token").read_text().strip()
    assert world.probing("-t", "127.0.0.1:%d" % port, "eval", "6 * 7").stdout == "42\n"
    if lives:
        assert victim.probing("config", "set", "server.listen", "").returncode == 0
        (victim.place / "token").write_text(token)  # should it have gone
    else:
        victim.kill()
    liar = wait_for(lambda: fake(world, port=port), "the port")
    process = subprocess.Popen([str(CLI), "-t", "127.0.0.1:%d" % port, "eval", "1"],
                               env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: b"GET /ws" in liar.heard(), "a word of the command's")
    process.kill()
    process.communicate()
    assert token.encode() not in liar.heard()


def test_token_by_python(world, victim):
    """The Python client sends the token to the process that has the connection."""
    assert victim.probing("config", "set", "server.listen", "127.0.0.1:0").returncode == 0
    port = int(re.search(r"^listening: .*:(\d+)", victim.probing("info").stdout, re.M).group(1))
    code = ("import sys, probing\n"
            "print(probing.connect('localhost:' + sys.argv[1]).eval('6 * 7'))\n")
    done = subprocess.run([DEBIAN_PYTHON, "-c", code, str(port)], text=True, capture_output=True,
                          env=dict(world.env, PROBING="0", PYTHONPATH=str(
                              ROOT / "plugins" / "python" / "package")))
    assert done.stdout.strip() == "42", done.stderr


# ---- the other side ----

def test_another_user_is_not_let_in(world, victim):
    """Even where the directory and the sockets were opened to all by mistake."""
    victim.place.chmod(0o777)
    for name in ("sock", "door"):
        (victim.place / name).chmod(0o777)
    code = ("import socket, sys\n"
            "s = socket.socket(socket.AF_UNIX, getattr(socket, sys.argv[2]))\n"
            "s.settimeout(60)\n"
            "s.connect(sys.argv[1])\n"
            "try: s.sendall(b'GET /query?q=select+1 HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n')\n"
            "except BrokenPipeError: pass\n"
            "try: print(s.recv(1000))\n"
            "except ConnectionResetError: print(b'')\n")
    for name, kind in (("sock", "SOCK_STREAM"), ("door", "SOCK_SEQPACKET")):
        words = [DEBIAN_PYTHON, "-c", code, str(victim.place / name), kind]
        done = subprocess.run([*AS_NOBODY, *words], capture_output=True, text=True)
        assert done.stdout.strip() == "b''", (name, done.stdout, done.stderr)
        own = subprocess.run(words, capture_output=True, text=True)
        assert own.stdout.strip() != "b''", (name, own.stdout, own.stderr)  # it does answer
    assert victim.rows("select 40 + 2") == [[42]]


def test_descriptors_that_are_sent_to_it_do_not_stay(world, victim):
    def count():
        return len(os.listdir("/proc/%d/fd" % victim.pid))

    assert victim.rows("select 40 + 2") == [[42]]
    before = count()
    held = os.pipe()
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(str(victim.place / "sock"))
        for _ in range(20):
            socket.send_fds(one, [b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"],
                            [held[0]] * 8)
        assert b"HTTP/1.1" in one.recv(1000)
        wait_for(lambda: count() <= before + 1, "no more than the connection")
    os.close(held[0])
    end = select.poll()
    end.register(held[1], 0)
    wait_for(lambda: end.poll(0) == [(held[1], select.POLLERR)], "nobody who has the other end")
    os.close(held[1])


# ---- who takes the name first ----

SQUATS = {"link": "ln -s /nowhere %s",
          "link to another": "mkdir -m 777 /tmp/his; ln -s /tmp/his %s",
          "file": "echo hello > %s", "another's directory": "mkdir -m 777 %s",
          "own, open": "mkdir %s; chown $U %s; chmod 777 %s", "fifo": "mkfifo %s"}


def in_own_tmp(world, squat, places=("/tmp", "/dev/shm"), uid=NOBODY, before=""):
    """A process of `uid` with its own /tmp and /dev/shm, and the one who keeps these."""
    script = hide("/dev/shm", "/tmp", "/var/tmp") + "U=%d; umask 0; " % uid
    for place in places:
        name = "%s/probing-%d" % (place, uid)
        script += squat.replace("%s", name) + "; "
    script += before + "; " if before else ""
    holder = world.start("unshare", "--mount", "sh", "-c", script + "echo made; exec sleep 600")
    holder.wait_line("made")
    target = world.start("nsenter", "-t", str(holder.pid), "--mount", "setpriv", "--reuid=%d" % uid,
                         "--regid=%d" % uid, "--clear-groups", "env", "-u", "PROBING_DATA_DIR",
                         "HOME=/", DEBIAN_PYTHON, "-u", "-c", IDLE)
    target.wait_line("ready")
    return holder, target


def inside(world, holder, *words, uid=0):
    env = dict(world.env, TMPDIR="/dev/shm")  # where the dead's data are copied to
    del env["PROBING_DATA_DIR"]
    return subprocess.run(["nsenter", "-t", str(holder.pid), "--mount", "setpriv",
                           "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups", str(CLI),
                           *words], env=env, capture_output=True, text=True, timeout=LIMIT)


def live_and_die(world, holder, target):
    """Entered, asked, killed, found again dead, and taken away.  Gives where its data were."""
    done = target.probing("inject")
    assert done.returncode == 0, done.stderr
    place = re.search(r"data: (\S+)", done.stdout).group(1)
    assert target.rows("select 40 + 2") == [[42]]
    seen = Path("/proc/%d/root" % holder.pid + place)
    found = seen.stat()
    assert found.st_uid == NOBODY and stat.S_IMODE(found.st_mode) == 0o700
    assert seen.parent.stat().st_uid == NOBODY
    rings = seen / "rings"
    assert not rings.is_symlink() or os.readlink(rings) != place + "/rings"
    target.kill()
    assert place in inside(world, holder, "list", "--dead").stdout
    asked = inside(world, holder, "-t", place, "query", "select 40 + 2")
    assert asked.returncode == 0 and "42" in asked.stdout, asked.stderr
    swept = inside(world, holder, "gc")
    assert "1 data directories removed" in swept.stdout, swept.stdout + swept.stderr
    assert not seen.exists()
    return place, done.stderr


@pytest.mark.parametrize("kind", sorted(SQUATS))
def test_squatting_does_not_keep_us_out(world, kind):
    holder, target = in_own_tmp(world, SQUATS[kind])
    place, said = live_and_die(world, holder, target)
    assert place.startswith("/tmp/probing-%d." % NOBODY)
    assert "/tmp/probing-%d" % NOBODY in said and ("uid 0" in said or "chmod" in said), said
    assert not list(Path("/proc/%d/root/tmp/" % holder.pid).glob("his/*"))


def test_the_next_process_takes_the_same_root(world):
    holder, target = in_own_tmp(world, SQUATS["link"])
    again = world.start("nsenter", "-t", str(holder.pid), "--mount", *AS_NOBODY, "env", "-u",
                        "PROBING_DATA_DIR", DEBIAN_PYTHON, "-u", "-c", IDLE)
    again.wait_line("ready")
    roots = {os.path.dirname(re.search(r"data: (\S+)", t.inject().stdout).group(1))
             for t in (target, again)}
    assert len(roots) == 1


@pytest.mark.parametrize("before", [
    "mount -o remount,ro /tmp; mount -o remount,ro /var/tmp",
    "mount -o remount,size=4k /tmp; mount -o remount,size=4k /var/tmp; "
    "echo full > /tmp/full; echo full > /var/tmp/full",
    "chmod 777 /tmp; chmod 777 /var/tmp"], ids=["read-only", "full", "not sticky"])
def test_a_place_of_no_use(world, before):
    holder, target = in_own_tmp(world, "true", places=("/tmp",), before=before)
    place, _ = live_and_die(world, holder, target)
    assert place.startswith("/dev/shm/probing-%d/" % NOBODY)


def test_a_place_that_was_wished_for_is_taken_or_refused(world, shared):
    his = shared / "his"
    his.mkdir()
    os.chown(his, NOBODY, NOBODY)
    loose = shared / "loose"
    loose.mkdir()
    loose.chmod(0o777)
    for wish, why in ((his, "uid %d" % NOBODY), (loose, "chmod +t"), ("relative", "absolute"),
                      (world.tmp / "a" / "b", "No such")):
        target = world.python(IDLE, env={"PROBING_DATA_DIR": str(wish)})
        target.wait_line("ready")
        done = target.probing("inject")
        assert done.returncode == 1 and "PROBING_DATA_DIR" in done.stderr, done.stderr
        assert why in done.stderr, done.stderr
        assert target.alive()


def test_a_script_that_others_put_in_a_shared_place(world):
    """It is not run, and does not keep the user's own from being run."""
    theirs, own = world.data / "probing.lua", world.tmp / ".config" / "probing" / "probing.lua"
    theirs.write_text("probing.config('probing.plugins', '')\n")
    os.chown(theirs, NOBODY, NOBODY)
    own.parent.mkdir(parents=True)
    own.write_text("-- nothing\n")
    target = world.python(IDLE, env={"HOME": str(world.tmp)})
    target.wait_line("ready")
    target.inject()
    log = "\n".join(row[0] for row in target.rows("select text from probing.log"))
    assert "%s has run" % own in log and "not run: %s belongs" % theirs in log, log


def test_names_that_others_took_in_a_shared_place(world):
    """Whoever sees a process begin knows what its directory will be called."""
    target = world.python(IDLE)
    target.wait_line("ready")
    started = Path("/proc/%d/stat" % target.pid).read_text().rpartition(")")[2].split()[19]
    for n in range(1, 40):
        name = "%d-%s" % (target.pid, started) + (".%d" % n if n > 1 else "")
        os.symlink("/nowhere", world.data / name)
        os.lchown(world.data / name, NOBODY, NOBODY)
    place = place_of(target)
    assert place.parent == world.data and target.rows("select 40 + 2") == [[42]]


# ---- nothing waits ----

def test_queue_that_nobody_empties(world):
    """A connection that is never taken in ends by itself, naming whom, and by Ctrl-C at once."""
    liar = fake(world, sock="full")
    done = liar.probing("eval", "1")
    assert done.returncode == 1 and str(liar.pid) in done.stderr, done.stderr
    assert "takes no connection" in done.stderr
    process = subprocess.Popen([str(CLI), "-t", str(liar.pid), "eval", "1"], env=world.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    # it has come as far as the queue: it holds a socket
    wait_for(lambda: has_socket(process.pid), "its socket")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130  # a wait that ran its whole length would give 1


def has_socket(pid):
    for number in os.listdir("/proc/%d/fd" % pid):
        try:
            if "socket:" in os.readlink("/proc/%d/fd/%s" % (pid, number)):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def test_listener_that_never_answers(world):
    liar = fake(world, sock="listen")
    os.kill(liar.pid, signal.SIGSTOP)  # the kernel takes connections in for it
    process = subprocess.Popen([str(CLI), "-t", str(liar.place / "sock"), "eval", "1"],
                               env=world.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: has_socket(process.pid), "its socket")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    os.kill(liar.pid, signal.SIGCONT)


def is_listed(done, target):
    return done.returncode == 0 and re.search(r"^ *%d " % target.pid, done.stdout, re.M)


@pytest.mark.parametrize("want", [
    {"sock": "fifo", "info": "fifo"}, {"sock": "listen", "info": "fifo"}, {"sock": "file"},
    {"sock": "link:/dev/zero"}, {"sock": "link:sock"}], ids=str)
def test_list_shows_the_others(world, victim, want):
    fake(world, **want)
    done = world.probing("list")
    assert is_listed(done, victim), done.stderr


# A file system in the target's own mount namespace that never answers.
NEVER = """
import ctypes, mmap, os, time
here = "%s/%%d-%%s" %% (os.getpid(), open("/proc/self/stat").read().rpartition(")")[2].split()[19])
os.makedirs(here)
data = open(here + "/data.mdb", "w+b")
data.truncate(4096)
kept = mmap.mmap(data.fileno(), 4096)
libc = ctypes.CDLL(None, use_errno=True)
fuse = os.open("/dev/fuse", os.O_RDWR)
done = libc.mount(b"never", os.path.dirname(here).encode(), b"fuse", 0,
                  b"fd=%%d,rootmode=40000,user_id=0,group_id=0,allow_other" %% fuse)
print("ready" if done == 0 else "refused", flush=True)
while True: time.sleep(1)
"""


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no /dev/fuse here")
def test_file_system_that_never_answers(world, victim):
    liar = world.start("unshare", "--mount", "sh", "-c",
                       "mount -t tmpfs none /mnt; exec %s -u -c \"$0\"" % DEBIAN_PYTHON,
                       NEVER % "/mnt/x")
    if "refused" in liar.wait_line("ready|refused").group():
        pytest.skip("FUSE may not be mounted here")
    done = world.probing("list")
    assert is_listed(done, victim), done.stderr
    assert str(liar.pid) in done.stderr, done.stderr
    done = liar.probing("eval", "1")
    assert done.returncode == 1 and str(liar.pid) in done.stderr, done.stderr


def test_names_of_mapped_files(world, victim):
    """The process chooses what /proc/PID/maps shows: names with breaks, dots and blanks."""
    source = """
import mmap, os
here = %r
own = "%%d-1" %% os.getpid()
kept = []
for name in ("a\\n/" + own, "b (deleted)/" + own, "c/ ..  /" + own, "d\\\\012/" + own, own):
    folder = os.path.join(here, name)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/data.mdb", "w+b") as file:
        file.truncate(4096)
        kept.append(mmap.mmap(file.fileno(), 4096))
os.rename(os.path.join(here, own, "data.mdb"), os.path.join(here, own, "x"))
os.symlink(%r, os.path.join(here, own, "sock"))
os.symlink(%r, os.path.join(here, "c/ ..  ", own, "sock"))
""" % (str(world.data), str(victim.place / "sock"), str(victim.place / "sock"))
    liar = world.start(*AS_NOBODY, DEBIAN_PYTHON, "-u", "-c", source + IDLE)
    liar.wait_line("ready")
    done = world.probing("list")
    assert is_listed(done, victim) and not is_listed(done, liar), done.stdout
    done = liar.probing("eval", MARK)
    assert done.returncode == 1 and not victim.marked()
