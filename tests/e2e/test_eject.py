# SPDX-License-Identifier: Apache-2.0
"""Leaving a process: every row stays and can be asked, every client is told, nothing waits long.

The plugin of these tests appends exactly the rows it is told to, so that a lost one is seen.
"""
import base64
import os
import shutil
import socket
import struct
import subprocess

import pytest

from world import CLI, DEBIAN_PYTHON, IDLE, LIMIT, threads_of, wait_for

COUNTING = r"""
#include <probing/plugin.h>
#include <stdlib.h>
static const struct probing_host *host;
static struct probing_table *rows;
static int64_t next;
static const struct probing_column columns[] = {{.name = "n", .type = PROBING_I64, .doc = "n"},
                                                {.name = "odd", .type = PROBING_STR, .doc = "o"}};
static int add(void *self, int argc, const char *const *argv, struct probing_reply *out)
{
    uint64_t ids[2];
    (void)self, (void)out;
    if (argc != 2 || host->intern(host, "a", 1, &ids[0]) || host->intern(host, "b", 1, &ids[1]))
        return -22;
    for (long i = strtol(argv[1], NULL, 10); i > 0; i--) {
        union probing_cell cells[] = {{.i = next++}, {.u = ids[next & 1]}};
        if (host->append(rows, host->now(), cells, 2, NULL, 0))
            return -28;
    }
    return 0;
}
static int init(const struct probing_host *h, void **self)
{
    static const struct probing_table_desc table = {
        .size = sizeof(table), .column_size = sizeof(struct probing_column), .name = "rows",
        .doc = "rows", .columns = columns, .n_columns = 2};
    static const struct probing_command command = {
        .size = sizeof(command), .name = "add", .usage = "N", .doc = "append", .run = add};
    host = h;
    *self = &next;
    int r = h->table(h, &table, &rows);
    return r < 0 ? r : h->command(h, &command);
}
static void destroy(void *self) { (void)self; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "counting", .version = "1",
    .doc = "counts", .init = init, .destroy = destroy };
"""
COUNT = "select count(*), count(distinct n), min(n), max(n), count(distinct odd) from counting.rows"


@pytest.fixture
def target(world):
    made = world.python(IDLE, python=DEBIAN_PYTHON)
    made.wait_line("ready")
    return made


def enter(target, plugin):
    target.inject()
    done = target.probing("plugin", "load", str(plugin))
    assert done.returncode == 0, done.stderr


def client(target, *words):
    made = subprocess.Popen([str(CLI), "-t", str(target.pid), *words], env=target.world.env,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    target.world.clients = getattr(target.world, "clients", []) + [made]
    return made


def directories(world, pid):
    return [d for d in world.data.iterdir() if d.name.startswith("%d-" % pid)]


# ---- rows ----

def test_every_row_stays_over_ejects_and_a_kill(world, target):
    """Entered, asked, left and killed: the count never goes down, and one directory has it all."""
    plugin = world.plugin("counting", COUNTING)
    total = 0
    for life in range(4):
        enter(target, plugin)
        if life:
            assert target.rows(COUNT)[0] == [total, total, 0, total - 1, 2]
        assert target.probing("add", "1000").returncode == 0
        total += 1000
        watch = client(target, "watch", "--last", "1", "select n from counting.rows")
        wait_for(lambda: watch.stdout.readline(), "the watch")
        code = client(target, "eval", "print('in', flush=True)\nwhile True: pass")
        wait_for(lambda: code.stdout.readline(), "the eval")
        assert target.probing("add", "77").returncode == 0
        total += 77
        if life == 3:
            break
        done = target.probing("eject")
        assert done.returncode == 0, done.stderr
        assert target.rows(COUNT)[0] == [total, total, 0, total - 1, 2]
        assert watch.wait(LIMIT) == 1 and code.wait(LIMIT) == 1
    target.kill()
    assert target.rows(COUNT)[0] == [total, total, 0, total - 1, 2]
    assert len(directories(world, target.pid)) == 1


def test_losses_stay_told_over_an_eject(world, target):
    """Rows that an earlier life lost are still counted when it is gone on with."""
    plugin = world.plugin("counting", COUNTING)
    lost = "select sum(rows) from probing.lost where table_name = 'counting.rows'"
    enter(target, plugin)
    while not target.rows(lost)[0][0]:
        target.probing("add", "3000000")
    before = target.rows(lost)[0][0]
    for words in (["query", "--format", "csv"], ["query", "--format", "jsonl"],
                  ["export", "--format", "csv"], ["export", "--format", "jsonl"]):
        done = target.probing(*words, "select * from counting.rows limit 1")
        assert done.returncode == 0, done.stderr
        assert "incomplete: " in done.stderr and "were lost" in done.stderr, words
    assert target.probing("eject").returncode == 0
    enter(target, plugin)
    assert target.rows(lost)[0][0] == before


def test_a_damaged_earlier_life_is_not_gone_on_with(world, target):
    plugin = world.plugin("counting", COUNTING)
    enter(target, plugin)
    assert target.probing("add", "100").returncode == 0
    assert target.probing("eject").returncode == 0
    (first,) = directories(world, target.pid)
    (first / "strings").write_bytes(b"nonsense" * 100)
    enter(target, plugin)
    assert target.probing("add", "5").returncode == 0
    assert len(directories(world, target.pid)) == 2
    assert target.rows("select count(*) from counting.rows")[0] == [5]


def test_new_data_dir(world, target):
    """Whoever wants an empty directory says so."""
    plugin = world.plugin("counting", COUNTING)
    enter(target, plugin)
    assert target.probing("add", "100").returncode == 0
    assert target.probing("eject").returncode == 0
    target.inject("-D", "probing.new_data_dir=on")
    assert len(directories(world, target.pid)) == 2
    assert "counting" not in target.probing("tables").stdout
    target.kill()
    done = target.probing("tables")
    assert done.returncode == 0 and "there are 2 directories of process" in done.stderr


# ---- clients ----

def connect(world, target):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT)
    (directory,) = directories(world, target.pid)
    s.connect(str(directory / "sock"))
    return s


def everything(s):
    data = b""
    while True:
        try:
            more = s.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            return data
        data += more


def test_every_client_is_told(world, target):
    """A watch, a text client, an idle HTTP client and a websocket: each in its own protocol."""
    target.inject()
    watch = client(target, "watch", "select text from probing.log")
    wait_for(lambda: watch.stdout.readline(), "the watch")
    text, http, ws = (connect(world, target) for _ in range(3))
    text.sendall(b"version\n")
    wait_for(lambda: text.recv(100).endswith(b".\n"), "the answer's end")
    http.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200" in http.recv(1000)
    ws.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
               b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
               + base64.b64encode(b"0" * 16) + b"\r\n\r\n")
    assert b"101" in ws.recv(1000)
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    why = "the core is leaving this process (eject)"
    _, said = watch.communicate(timeout=LIMIT)
    # Before it stands that of a computed table all follows each time.
    assert (watch.returncode, said.splitlines()[1:]) == (1, ["probing: %s" % why])
    assert everything(text) == b"error: " + why.encode() + b"\n"
    assert everything(http) == b""
    frame = everything(ws)
    assert frame[:2] == bytes([0x88, 2 + len(why)])  # close, and how long its reason is
    assert struct.unpack("!H", frame[2:4]) == (1001,) and frame[4:].decode() == why


def test_a_refused_eject_leaves_streams_alone(world, target):
    """Code that cannot be interrupted keeps us in; a watch goes on, commands are taken again."""
    target.inject()
    watch = client(target, "watch", "--interval", "100ms", "select now()")
    wait_for(lambda: watch.stdout.readline(), "the watch")
    code = client(target, "eval", "import time; print('in', flush=True); time.sleep(4)")
    wait_for(lambda: code.stdout.readline(), "the eval")
    done = target.probing("eject")
    if done.returncode == 0:
        pytest.skip("the machine is so slow that the eval was over")
    assert "python" in done.stderr
    assert target.rows("select 1") == [[1]]
    for _ in range(20):
        assert watch.stdout.readline()
    assert watch.poll() is None
    code.wait(LIMIT)
    wait_for(lambda: target.probing("eject").returncode == 0, "eject after the eval")
    assert watch.wait(LIMIT) == 1


def test_data_is_asked_by_pid_after_exec(world):
    """The same pid, another program and no core: what was measured before is still there."""
    plugin = world.plugin("counting", COUNTING)
    go = world.tmp / "go"
    target = world.python("import os, time\nprint('ready', flush=True)\n"
                          "while not os.path.exists(%r): time.sleep(0.01)\n"
                          "os.execv('/bin/sleep', ['sleep', '600'])\n" % str(go),
                          python=DEBIAN_PYTHON)
    target.wait_line("ready")
    enter(target, plugin)
    assert target.probing("add", "50").returncode == 0
    go.write_text("go")
    wait_for(lambda: "sleep" in os.readlink("/proc/%d/exe" % target.pid), "the exec")
    assert target.rows("select count(*) from counting.rows") == [[50]]
    (directory,) = directories(world, target.pid)
    done = world.probing("-t", str(directory), "query", "select count(*) from counting.rows")
    assert done.returncode == 0, done.stderr


# ---- again and again ----

def leave_now(world, target):
    """Eject by the text protocol: unlike the command it does not wait for the end."""
    directory = target.probing("info").stdout.split("data: ")[1].split("\n")[0]
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(LIMIT)
    s.connect(directory + "/sock")
    s.sendall(b"eject\n")
    return s


def test_entered_while_it_is_leaving(world, target):
    """The next start comes while the last life ends: it waits for it, and answers."""
    hangers = [client(target, "watch", "select * from probing.log")]
    for _ in range(40):
        target.inject()
        hangers += [client(target, "watch", "select * from probing.log")]
        s = leave_now(world, target)
        assert s.recv(100).startswith(b"ejected")
        target.inject()
        assert target.rows("select 1") == [[1]]
        s.close()
        assert target.probing("eject").returncode == 0
    for hanger in hangers:
        assert hanger.wait(LIMIT) == 1
    assert len(directories(world, target.pid)) == 1


def test_leaves_where_its_directory_was_taken_away(world):
    """Nobody could ask it, or enter again: a cleaner of /tmp did that to it for good."""
    target = world.start("/bin/sleep", "600")
    target.inject()
    for directory in world.data.iterdir():
        shutil.rmtree(directory)
    wait_for(lambda: not [t for t in threads_of(target.pid) if t.startswith("probing/")],
             "its threads' end")
    target.inject()
    assert target.rows("select 1") == [[1]]
    assert target.probing("eject").returncode == 0
