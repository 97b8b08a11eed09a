# SPDX-License-Identifier: Apache-2.0
"""A dead process's directory, changed in every way its owner could think of: each command that
reads the dead ends by itself, with an answer or with words.

The same changes each time.  A few of them in each run; PROBING_DEAD_FUZZ=1500 makes as many, and
PROBING_BUILD=build/asan looks for what a reader must not touch.
"""
import os
import random
import shutil
import socket
import subprocess

import pytest
from roots import MALLORY
from world import CLI, World, lend, wait_for

COUNT = int(os.environ.get("PROBING_DEAD_FUZZ") or 80)
FILES = ["info", "tables", "crash", "held", "rings", "strings", "data.mdb"]
LIMIT_S = 120
SCRIPT = """
local t = probing.table("kept", {{"n", "i64"}, {"word", "str"}})
for i = 1, 5000 do
  while not t:add{n = i, word = "word " .. i % 50} do end
end
"""
TARGET = """
import ctypes, os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[1]):
    sum(range(20000))
ctypes.string_at(0)
"""
QUERIES = ["select count(*), sum(n), count(distinct word) from script.kept",
           "select count(*) from python.samples", "select * from probing.tables",
           "select * from crash.frames"]


@pytest.fixture(scope="module")
def grave(tmp_path_factory):
    """The files of a process that was sampled, had a script, and crashed: without links."""
    tmp = tmp_path_factory.mktemp("dead")
    kept = lend(World(tmp))
    world = next(kept)
    script, flag, made = tmp / "kept.lua", tmp / "flag", tmp / "whole"
    script.write_text(SCRIPT)
    (tmp / "target.py").write_text(TARGET)
    target = world.start("/usr/bin/python3", "-u", str(tmp / "target.py"), str(flag),
                         env={"ASAN_OPTIONS": "detect_leaks=0:handle_segv=0"})
    target.wait_line("ready")
    target.inject("-P", "-D", "crash.handler=on")
    assert target.probing("script", "run", str(script)).returncode == 0
    wait_for(lambda: target.rows("select count(*) from probing.scripts where state = 'ended'") ==
             [[1]], "the script's end")
    wait_for(lambda: target.rows("select count(*) from python.samples")[0][0] > 5, "samples")
    flag.write_text("")
    target.process.wait()
    found = next(d for d in world.data.iterdir() if d.name.startswith("%d-" % target.pid))
    copy(found, made)
    for name in FILES:
        assert (made / name).is_file() and not (made / name).is_symlink(), name
    yield world, made
    for _ in kept:
        pass


def copy(source, target):
    target.mkdir(mode=0o700)
    for name in FILES:
        subprocess.run(["cp", "--sparse=always", "-L", source / name, target / name], check=True)


# ---- changes of one file ----

def cut(how):
    def change(path, r):
        size = path.stat().st_size
        to = {"to nothing": 0, "to a byte": min(1, size), "by a byte": max(0, size - 1),
              "to a page": min(4096, size), "somewhere": r.randrange(size + 1),
              "in its data": r.randrange(there(path, r) + 1)}
        os.truncate(path, to[how])
    return change


def there(path, r):
    """A place where the file has data; of most it is a hole."""
    with open(path, "rb") as f:
        places, at = [], 0
        while len(places) < 1000:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
                end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            except OSError:
                break
            places.append((at, end))
            at = end
    if not places:
        return 0
    at, end = r.choice(places)
    return r.choice([at, r.randrange(at, end), min(end - 1, at + r.randrange(512))])


def flip(n):
    def change(path, r):
        with open(path, "r+b") as f:
            for _ in range(n):
                at = there(path, r)
                f.seek(at)
                old = f.read(1) or b"\0"
                f.seek(at)
                f.write(bytes([old[0] ^ 1 << r.randrange(8)]))
    return change


def write(size, make):
    def change(path, r):
        with open(path, "r+b") as f:
            f.seek(there(path, r) & ~7)
            f.write(make(r, size))
    return change


def noise(r, size):
    return r.getrandbits(8 * size).to_bytes(size, "little")


def numbers(r, size):
    """Values that lengths and offsets are tried with."""
    some = [0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 2**63 - 1, 2**63, 2**64 - 1, 2**40, 4096]
    return b"".join(r.choice(some).to_bytes(8, "little") for _ in range(size // 8))


def longer(path, r):
    with open(path, "ab") as f:
        f.write(noise(r, 10000))


def huge(path, r):
    os.truncate(path, 10**12)


def hollow(path, r):
    path.unlink()
    with open(path, "wb") as f:
        f.truncate(10**12)


def filled(path, r):
    path.write_bytes(noise(r, 1 << 20))


def lines(path, r):
    """Text whose lines are in another order, and some twice."""
    text = path.read_bytes()[:1 << 20].split(b"\n")
    r.shuffle(text)
    path.write_bytes(b"\n".join(text + text[:len(text) // 3]))


def become(make):
    def change(path, r):
        path.unlink()
        make(path, r)
    return change


def bound(path, r):
    with socket.socket(socket.AF_UNIX) as s:
        here = os.open(path.parent, os.O_PATH)
        s.bind("/proc/self/fd/%d/%s" % (here, path.name))
        os.close(here)


def link(target):
    return become(lambda path, r: path.symlink_to(target.format(
        name=path.name, leaf=path.parent.name, uid=os.geteuid())))


def device(path, r):
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, r.choice([3, 5, 7, 8])))


def another(path, r):
    other = path.parent / r.choice(["info", "tables", "data.mdb", "strings"])
    plain = other.is_file() and not other.is_symlink()  # it may have been changed itself
    path.write_bytes(other.read_bytes()[:4 << 20] if plain and other.stat().st_size < 1 << 30
                     else b"")


def closed(path, r):
    path.chmod(0)


ONE = {"cut " + how: cut(how) for how in ("to nothing", "to a byte", "by a byte", "to a page",
                                           "somewhere", "in its data")}
ONE.update({"%d bits" % n: flip(n) for n in (1, 4, 64, 1024)})
ONE.update({"%d bytes of %s" % (n, f.__name__): write(n, f) for n in (8, 16, 64, 4096)
            for f in (noise, numbers)})
ONE.update({"zeros": write(4096, lambda r, size: bytes(size)), "longer": longer, "huge": huge,
            "hollow": hollow, "noise": filled, "other lines": lines, "another": another,
            "closed": closed, "missing": become(lambda path, r: None),
            "fifo": become(lambda path, r: os.mkfifo(path)), "socket": become(bound),
            "directory": become(lambda path, r: path.mkdir()), "device": become(device),
            "link to itself": link("{name}"), "link to zeros": link("/dev/zero"),
            "link to a directory": link("/tmp"), "link to nothing": link("/nonexistent"),
            "link to memory": link("/dev/shm/probing-{uid}/{leaf}/{name}"),
            "hard link": become(lambda path, r: os.link(path.parent / "tables"
                                if path.name != "tables" else path.parent / "info", path))})


def changes(count):
    """(name, [(file, change)], seed): each change to each file first, then several at once."""
    r = random.Random(20)
    all_one = [(name, [(file, change)]) for file in FILES for name, change in ONE.items()]
    r.shuffle(all_one)
    for n in range(count):
        if n < len(all_one):
            yield n, all_one[n][1]
        else:
            some = [(file, ONE[r.choice(list(ONE))]) for file in FILES if r.random() < 0.35]
            yield n, some or [("data.mdb", ONE["1024 bits"])]


# ---- one directory ----

def run(world, words):
    env = dict(world.env, ASAN_OPTIONS="detect_leaks=0:exitcode=99",
               UBSAN_OPTIONS="halt_on_error=1:exitcode=99:print_stacktrace=1")
    done = subprocess.run([str(CLI), *words], capture_output=True, timeout=LIMIT_S, env=env,
                          stdin=subprocess.DEVNULL)
    assert done.returncode in (0, 1), (words, done.returncode, done.stderr[-4000:])
    assert done.returncode == 0 or done.stderr.startswith(b"probing: "), (words, done.stderr)
    return done


def test_any_change(grave, tmp_path):
    world, whole = grave
    precious = tmp_path / "precious"
    precious.write_text("secret")
    world.env["PROBING_DATA_DIR"] = str(tmp_path / "data")
    answered = 0
    for n, some in changes(COUNT):
        path = tmp_path / "data" / ("%d-%d" % (999000 + n % 1000, 1 + n))
        path.parent.mkdir(mode=0o700, exist_ok=True)
        copy(whole, path)
        r = random.Random(n)
        for file, change in some:
            try:
                change(path / file, r)
            except OSError:
                pass  # a change before this one has taken it away, or a device wants root
        if os.geteuid() == 0 and n % 2:  # a stranger's: read as a copy
            for made in [path, *path.iterdir()]:
                os.chown(made, MALLORY, MALLORY, follow_symlinks=False)
        done = [run(world, ["-t", str(path), "query", sql]) for sql in QUERIES]
        answered += done[0].returncode == 0
        run(world, ["list", "--dead"])
        run(world, ["-t", str(path), "backtrace"])
        out = tmp_path / "out"
        run(world, ["-t", str(path), "export", "--format", "jsonl", "-o", str(out),
                    "select * from script.kept"])
        out.unlink(missing_ok=True)
        run(world, ["gc"])
        assert not path.exists() or os.geteuid() != 0
        shutil.rmtree(path, ignore_errors=True)
    assert precious.read_text() == "secret"
    assert answered > COUNT // 2, "the most of them have still something to say"
