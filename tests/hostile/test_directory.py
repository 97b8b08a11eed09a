# SPDX-License-Identifier: Apache-2.0
"""Data directories whose owner means harm: nothing of others is removed, read or written for him,
nothing waits for him, and the rest is shown as if he were not there."""
import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from roots import ALICE, MALLORY, roots  # noqa: F401
from world import CLI, LIMIT, wait_for

TRAP = "/tmp/probing-%d/999999-1" % MALLORY
NAMES = ["info", "tables", "crash", "held", "rings", "strings", "data.mdb", "home", "failed",
         "sock", "lock.mdb"]


@pytest.fixture
def trap(roots):
    """A directory that looks as if a core had left it."""
    path = roots.directory(TRAP, MALLORY)
    roots.file(TRAP + "/info", MALLORY, b"pid: 999999\n")
    roots.file(TRAP + "/data.mdb", MALLORY, b"x" * 8192)
    return path


def victim(roots, uid):
    folder = roots.directory("/tmp/precious-%d" % uid, uid, mode=0o755)
    return roots.file("/tmp/precious-%d/file" % uid, uid, b"secret"), folder


# ---- removing ----

@pytest.mark.parametrize("name", ["rings", "strings", "lock.mdb"])
def test_gc_of_root_removes_no_file_that_a_link_leads_to(roots, trap, name):
    file, folder = victim(roots, 0)
    roots.link(TRAP + "/" + name, "/tmp/precious-0/file", MALLORY)
    done = roots.probing("gc")
    assert file.exists() and folder.exists(), done.stdout + done.stderr
    assert not trap.exists() and "1 data directories removed" in done.stdout


@pytest.mark.parametrize("where", ["/tmp/precious-0", "/dev/shm/probing-0/999999-1"])
def test_gc_removes_no_memory_of_another_user(roots, trap, where):
    roots.directory(where, 0)
    file = roots.file(where + "/rings", 0, b"secret")
    roots.link(TRAP + "/rings", where + "/rings", MALLORY)
    roots.probing("gc")
    assert file.exists() and not trap.exists()


def test_nobody_removes_for_another_in_a_shared_root(roots):
    """Both use one PROBING_DATA_DIR; who cleans up his own must not lose a file to the other."""
    roots.directory("/tmp/all", 0, mode=0o1777)
    roots.directory("/tmp/all/999999-1", MALLORY, mode=0o777)
    roots.file("/tmp/all/999999-1/info", MALLORY, b"pid: 999999\n")
    file, folder = victim(roots, ALICE)
    roots.link("/tmp/all/999999-1/rings", "/tmp/precious-%d/file" % ALICE, MALLORY)
    done = roots.probing("gc", uid=ALICE, env={"PROBING_DATA_DIR": "/tmp/all"})
    assert file.exists() and folder.exists(), done.stdout + done.stderr
    assert roots.path("/tmp/all/999999-1").exists(), "not hers to remove"


def test_a_core_removes_nothing_for_another_in_a_shared_root(roots):
    """The sweep at the start of a core: its memory files are found by a link's text."""
    env = {"PROBING_DATA_DIR": "/tmp/all"}
    roots.directory("/tmp/all", 0, mode=0o1777)
    own = roots.directory("/tmp/all/999999-1", ALICE)
    roots.file("/tmp/all/999999-1/info", ALICE, b"pid: 999999\n")
    roots.directory("/tmp/precious", ALICE, mode=0o755)
    folder = roots.directory("/tmp/precious/999999-1", ALICE, mode=0o755)
    file = roots.file("/tmp/precious/999999-1/rings", ALICE, b"hers, but no memory of a core's")
    roots.link("/tmp/all/999999-1/rings", "/tmp/precious/999999-1/rings", ALICE)
    for path in (own / "info", own, file):
        os.utime(path, (1, 1))
    target = roots.start("sleep", "1000", uid=ALICE, env=env)
    try:
        wait_for(lambda: b"sleep" in open("/proc/%d/cmdline" % target.pid, "rb").read(), "an exec")
        assert roots.probing("-t", target.pid, "inject", env=env).returncode == 0
        wait_for(lambda: not own.exists(), "the sweep")
        assert file.exists() and folder.exists()
    finally:
        target.kill()
        target.wait()


def test_a_link_for_a_directory_is_not_followed(roots):
    root = roots.directory("/tmp/probing-%d" % MALLORY, MALLORY)
    file, folder = victim(roots, 0)
    roots.file("/tmp/precious-0/info", 0, b"pid: 1\n")
    roots.link("/tmp/probing-%d/999999-1" % MALLORY, "/tmp/precious-0", MALLORY)
    done = roots.probing("gc")
    assert file.exists() and folder.exists()
    done = roots.probing("list", "--dead")
    assert "999999-1 is not a directory but a symbolic link" in done.stderr, done.stderr
    done = roots.probing("-t", TRAP, "query", "select 1")
    assert done.returncode == 1 and "symbolic link" in done.stderr
    root.rmdir() if not list(root.iterdir()) else None


def test_a_root_of_another_is_not_believed(roots):
    """Whoever comes first makes /tmp/probing-0: as a link, or with a mode that lets him in."""
    roots.directory("/tmp/mine", MALLORY)
    roots.directory("/tmp/mine/999999-1", MALLORY)
    roots.file("/tmp/mine/999999-1/info", MALLORY, b"pid: 999999\n")
    roots.link("/tmp/probing-0", "/tmp/mine", MALLORY)
    done = roots.probing("list", "--dead")
    assert "/tmp/probing-0 is ignored" in done.stderr and "no data" in done.stdout
    roots.path("/tmp/probing-0").unlink()
    roots.path("/tmp/mine").rename(roots.path("/tmp/probing-0"))
    done = roots.probing("list", "--dead")
    assert "belongs to uid %d" % MALLORY in done.stderr and "no data" in done.stdout, done.stderr
    done = roots.probing("gc")
    assert "0 data directories removed" in done.stdout
    done = roots.probing("-t", "/tmp/probing-0/999999-1", "query", "select 1")
    assert done.returncode == 1 and "belongs to uid %d" % MALLORY in done.stderr


def test_a_stray_root_is_told_to_those_who_ask_for_directories(roots):
    """Anybody can leave such names in /tmp and /dev/shm; that is no news for each command."""
    pid = roots.dead(ALICE)
    for place in "/tmp", "/dev/shm":
        roots.directory("%s/probing-%d.ffffffff" % (place, ALICE), MALLORY)
    for words, told in ((["-t", str(pid), "query", "select 1"], False),
                        (["-t", str(pid), "tables"], False), (["list"], False),
                        (["-t", "999999", "query", "select 1"], False),
                        (["list", "--dead"], True), (["gc"], True)):
        said = roots.probing(*words).stderr  # root looks into those of all users
        assert ("is ignored" in said) == told, (words, said)


def test_many_roots_of_our_name_do_not_hide_ours(roots):
    """probing-<uid>.<random> is ours where the name is taken; others can make such, too."""
    ours = "/tmp/probing-%d.ffffffff" % ALICE
    roots.directory(ours + "/999999-1", ALICE)
    roots.file(ours + "/999999-1/info", ALICE, b"pid: 999999\n")
    for number in range(200):
        roots.directory("/tmp/probing-%d.%08x" % (ALICE, number), MALLORY)
    done = roots.probing("list", "--dead", uid=ALICE)
    assert "999999" in done.stdout, done.stdout + done.stderr
    assert "1 data directories removed" in roots.probing("gc", uid=ALICE).stdout


def test_gc_below_a_named_root_leaves_the_others(roots):
    """PROBING_DATA_DIR of this shell says where to clean up; other jobs did not have it."""
    pid = roots.dead(ALICE)
    roots.directory("/tmp/mine", ALICE)
    mine = roots.directory("/tmp/mine/999999-1", ALICE)
    roots.file("/tmp/mine/999999-1/info", ALICE, b"pid: 999999\n")
    env = {"PROBING_DATA_DIR": "/tmp/mine/"}
    done = roots.probing("gc", uid=ALICE, env=env)
    assert "1 data directories removed, 0 kept (below /tmp/mine" in done.stdout, done.stdout
    assert not mine.exists()
    assert str(pid) in roots.probing("list", "--dead", uid=ALICE, env=env).stdout


def test_hard_links_and_directories_in_it_go_alone(roots, trap):
    file, _ = victim(roots, 0)
    os.link(file, trap / "strings")
    roots.directory(TRAP + "/inner", MALLORY)
    os.link(file, trap / "inner" / "deeper")
    done = roots.probing("gc")
    assert "1 data directories removed" in done.stdout, done.stderr
    assert not trap.exists() and file.read_bytes() == b"secret" and file.stat().st_nlink == 1


def test_a_directory_of_another_in_it_stays(roots, trap):
    roots.directory(TRAP + "/inner", 0)
    file = roots.file(TRAP + "/inner/file", 0, b"secret")
    done = roots.probing("gc")
    assert file.exists() and done.returncode == 1 and "999999-1 cannot be removed" in done.stderr


def test_a_copy_does_not_take_the_memory_of_the_first(roots):
    """`cp -a` keeps the links: taking the copy away must leave the memory to whom it belongs."""
    pid = roots.dead(ALICE)
    first = next(roots.path("/tmp/probing-%d" % ALICE).iterdir())
    if not (first / "rings").is_symlink():
        pytest.skip("no memory files here")
    roots.directory("/tmp/copies", ALICE)
    words = ["cp", "-a", "/tmp/probing-%d/%s" % (ALICE, first.name), "/tmp/copies/"]
    assert subprocess.run(roots.words(words)).returncode == 0
    memory = roots.path("/dev/shm/probing-%d" % ALICE, first.name)
    assert (memory / "rings").exists()
    # Only the copy is old enough.
    os.utime(roots.path("/tmp/copies", first.name), (1, 1))
    done = roots.probing("gc", "--older", "1", env={"PROBING_DATA_DIR": "/tmp/copies"})
    assert "1 data directories removed" in done.stdout and (memory / "rings").exists()
    assert rows(roots, "/tmp/probing-%d/%s" % (ALICE, first.name)) == [[100]]
    assert roots.probing("gc").returncode == 0
    assert not memory.exists() and not first.exists(), pid


SWAP = """
import os, sys, time
trap, victim = sys.argv[1:]
end = time.monotonic() + 600
print("ready", flush=True)
while time.monotonic() < end:
    for name in ("rings", "strings", "inner", "info", "held"):
        path = os.path.join(trap, name)
        for make in (lambda: os.symlink(victim, path), lambda: os.mkdir(path),
                     lambda: os.symlink(os.path.dirname(victim), path),
                     lambda: os.close(os.open(path, os.O_CREAT | os.O_WRONLY)),
                     lambda: os.mkfifo(path)):
            try:
                make()
            except OSError:
                pass
            try:
                os.unlink(path)
            except OSError:
                try:
                    os.rmdir(path)
                except OSError:
                    pass
    try:
        os.mkdir(trap, 0o700)
        os.rename(trap, trap + ".2")
        os.symlink(os.path.dirname(victim), trap)
        os.unlink(trap)
        os.rename(trap + ".2", trap)
    except OSError:
        try:
            os.rename(trap + ".2", trap)
        except OSError:
            pass
"""


def test_nothing_is_lost_to_one_who_swaps_all_the_time(roots, trap):
    file, folder = victim(roots, 0)
    swap = roots.start("/usr/bin/python3", "-c", SWAP, TRAP, "/tmp/precious-0/file", uid=MALLORY,
                       stdout=subprocess.PIPE, text=True)
    try:
        assert swap.stdout.readline() == "ready\n"
        for _ in range(60):
            for words in (["gc"], ["list", "--dead"], ["-t", TRAP, "query", "select 1"]):
                roots.probing(*words)
        assert swap.poll() is None
    finally:
        swap.kill()
        swap.wait()
    assert file.read_bytes() == b"secret" and sorted(folder.iterdir()) == [file]


# ---- reading ----

def rows(roots, target, sql="select count(*) from script.kept", **kwargs):
    done = roots.probing("-t", target, "query", "--format", "json", sql, **kwargs)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["rows"]


def fifo(path):
    os.mkfifo(path)


def listening(path):
    with socket.socket(socket.AF_UNIX) as s:
        here = os.open(path.parent, os.O_PATH)
        s.bind("/proc/self/fd/%d/%s" % (here, path.name))
        os.close(here)


def device(path):
    os.mknod(path, 0o600 | 0o020000, os.makedev(5, 0))  # /dev/tty: waits for nobody, but is none


def sparse(path):
    with open(path, "wb") as f:
        f.truncate(10**12)


def loop(path):
    path.symlink_to(path.name)


def folder(path):
    path.mkdir()


@pytest.mark.parametrize("kind", [fifo, listening, device, sparse, loop, folder],
                         ids=lambda f: f.__name__)
def test_no_file_of_another_kind_is_waited_for(roots, kind):
    """All commands end, and show what the others have left."""
    pid = roots.dead(ALICE)
    good = next(roots.path("/tmp/probing-%d" % ALICE).iterdir())
    for number, name in enumerate(NAMES):
        made = roots.directory("/tmp/probing-%d/%d-1" % (MALLORY, 999000 + number), MALLORY)
        for other in ("info", "data.mdb"):
            roots.file("/tmp/probing-%d/%s/%s" % (MALLORY, made.name, other), MALLORY, b"x" * 8192)
        if (made / name).exists():
            (made / name).unlink()
        try:
            kind(made / name)
        except OSError as error:
            pytest.skip("cannot be made here: %s" % error)
        os.chown(made / name, MALLORY, MALLORY, follow_symlinks=False)
        path = "/tmp/probing-%d/%s" % (MALLORY, made.name)
        for words in (["query", "select 1"], ["backtrace"], ["tables"],
                      ["query", "select count(*) from crash.frames"],
                      ["export", "--format", "csv", "-o", "/tmp/out", "select 1"]):
            done = roots.probing("-t", path, *words)
            assert done.returncode in (0, 1), (name, words, done)
        roots.path("/tmp/out").unlink(missing_ok=True)
    for words in (["list"], ["list", "--dead"]):
        done = roots.probing(*words)
        assert done.returncode == 0, done
    assert re.search(r"^ *%d .*%s" % (pid, good.name), done.stdout, flags=re.M), done.stdout
    assert "999000" in done.stdout
    done = roots.probing("gc")
    assert not list(roots.path("/tmp/probing-%d" % MALLORY).iterdir()), done.stderr
    assert not good.exists()


def test_a_file_of_another_in_it_is_not_read(roots, trap):
    """A hard link shows a file of root's to root; its words must not become an answer."""
    file, _ = victim(roots, 0)
    (trap / "info").unlink()
    file.write_bytes(b"command: root:$6$secret\nversion: 1\n")
    os.link(file, trap / "info")
    done = roots.probing("list", "--dead")
    assert "secret" not in done.stdout and "belongs to uid 0" in done.stdout, done.stdout


def test_what_another_has_left_is_read_and_named_as_his(roots):
    """Memory files too, which lie behind links; and while he lives, whatever he does to them."""
    pid = roots.dead(ALICE)
    path = "/tmp/probing-%d/%s" % (ALICE, next(
        roots.path("/tmp/probing-%d" % ALICE).iterdir()).name)
    assert rows(roots, path) == [[100]]
    done = roots.probing("-t", path, "query", "select 1")
    assert "these data are of uid %d" % ALICE in done.stderr and "incomplete" not in done.stderr
    listed = roots.probing("list", "--dead").stdout
    assert re.search(r"^ *%d .*\(uid %d\)" % (pid, ALICE), listed, flags=re.M), listed
    assert rows(roots, pid, uid=ALICE) == [[100]]
    assert "uid" not in roots.probing("list", "--dead", uid=ALICE).stdout


CHANGE = """
import os, sys, random
random.seed(1)
print("ready", flush=True)
files = [open(p, "r+b", buffering=0) for p in sys.argv[1:]]
sizes = [min(os.fstat(f.fileno()).st_size, 4 << 20) for f in files]
wholes = [os.pread(f.fileno(), n, 0) for f, n in zip(files, sizes)]
while True:
    for f, n, whole in zip(files, sizes, wholes):
        for _ in range(50):
            os.pwrite(f.fileno(), os.urandom(8), random.randrange(n))
        os.pwrite(f.fileno(), whole, 0)
"""


def test_a_file_that_changes_while_it_is_read(roots):
    """Its owner cannot make the reader believe two things of one byte: it reads a copy."""
    roots.dead(MALLORY, rows=20000)
    made = next(roots.path("/tmp/probing-%d" % MALLORY).iterdir())
    path = "/tmp/probing-%d/%s" % (MALLORY, made.name)
    files = [str(made / name) if not (made / name).is_symlink()
             else str(roots.path(os.readlink(made / name)))
             for name in ("data.mdb", "rings", "strings")]
    change = subprocess.Popen(["/usr/bin/python3", "-c", CHANGE, *files], stdout=subprocess.PIPE,
                              text=True)
    try:
        assert change.stdout.readline() == "ready\n"
        for _ in range(40):
            done = roots.probing("-t", path, "query",
                                 "select count(*), sum(n), min(ts) from script.kept")
            assert done.returncode in (0, 1), done
        assert change.poll() is None
    finally:
        change.kill()
        change.wait()


def test_a_crash_report_names_files_that_wait(roots, trap):
    """The map of a report is believed as little as the rest: its files may be anything."""
    os.mkfifo(roots.path("/tmp/wait"))
    text = b"crash 1\ntime 1\nprocess 5\nfault 11 1 0 0 0 5\nthread 5 crashed x\n" \
           b"at 401000 7ffc0000\nmap 00400000-00500000 r-xp 00000000 00:00 1 /tmp/wait\n" \
           b"map 7ff00000-80000000 rw-p 00000000 00:00 0\nend\n"
    roots.file(TRAP + "/crash", MALLORY, text)
    for words in (["backtrace"], ["query", "select * from crash.frames"]):
        assert roots.probing("-t", TRAP, *words).returncode in (0, 1)


# ---- whose ----

def test_a_dead_pid_means_our_own(roots):
    pid = roots.dead(0)
    own = next(roots.path("/tmp/probing-0").iterdir())
    roots.directory("/tmp/probing-%d/%s" % (MALLORY, own.name), MALLORY)
    roots.file("/tmp/probing-%d/%s/info" % (MALLORY, own.name), MALLORY, b"pid: 1\n")
    roots.file("/tmp/probing-%d/%s/data.mdb" % (MALLORY, own.name), MALLORY, b"x" * 8192)
    assert rows(roots, pid) == [[100]]  # his is newer
    done = roots.probing("-t", pid, "query", "select 1")
    assert "of other users" in done.stderr and "directories of process" not in done.stderr
    for path in own.iterdir():
        path.unlink()
    own.rmdir()
    done = roots.probing("-t", pid, "query", "select 1")
    assert done.returncode == 1 and "uid %d has" % MALLORY in done.stderr, done.stderr
    assert "-t /tmp/probing-%d/%s" % (MALLORY, own.name) in done.stderr


def test_what_lies_in_memory_alone_is_seen(roots):
    """The root of those who cannot write to /tmp."""
    home = "/dev/shm/probing-%d/999999-1" % ALICE
    made = roots.directory(home, ALICE)
    roots.file(home + "/info", ALICE, b"pid: 999999\n")
    roots.file(home + "/data.mdb", ALICE, b"x" * 8192)
    memory = roots.directory("/dev/shm/probing-%d/999998-1" % ALICE, ALICE)
    roots.file("/dev/shm/probing-%d/999998-1/rings" % ALICE, ALICE, b"of a directory elsewhere")
    for uid in (0, ALICE):
        listed = roots.probing("list", "--dead", uid=uid).stdout
        assert "999999" in listed and "999998" not in listed, listed
    assert "1 data directories removed" in roots.probing("gc").stdout
    assert not made.exists() and memory.exists()


# ---- Ctrl-C ----

def test_an_interrupt_ends_a_look_at_much(roots):
    """A root with more directories than anybody has time for."""
    for number in range(3000):
        path = roots.directory("/tmp/probing-%d/%d-1" % (MALLORY, 800000 + number), MALLORY)
        roots.file("/tmp/probing-%d/%s/info" % (MALLORY, path.name), MALLORY, b"pid: 1\n")
        with open(path / "crash", "wb") as f:
            f.truncate(10**12)
        os.chown(path / "crash", MALLORY, MALLORY)
    shown = roots.start(CLI, "list", "--dead", stdout=subprocess.DEVNULL)

    def looks():
        try:
            open_now = [os.readlink(f) for f in Path("/proc/%d/fd" % shown.pid).iterdir()]
        except OSError:
            return shown.poll() is not None
        return any("/tmp/probing-%d/" % MALLORY in f for f in open_now) or shown.poll() is not None
    wait_for(looks, "a look at them")
    if shown.poll() is None:
        shown.send_signal(signal.SIGINT)
    assert shown.wait(timeout=LIMIT) == 130
