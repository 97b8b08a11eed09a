# SPDX-License-Identifier: Apache-2.0
"""`import probing` in the program itself: its own tables, spans and events."""
import json
import signal
import subprocess
import sys

import pytest
from pythons import PYTHONS, is_threaded, minor_of
from scripts import PACKAGE
from world import BUILD, CLI, CORE, DEBIAN_PYTHON, has_torch, wait_for

pytestmark = pytest.mark.some_pythons

HEAD = "import sys; sys.path.insert(0, %r)\nimport os, threading, time\nimport probing\n" \
    % str(PACKAGE)
ENV = {"PROBING_LIBRARY": str(CORE)}
WAIT = """
def wait(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end: print("waited in vain", flush=True); os._exit(9)
        time.sleep(0.005)
"""


def start(world, python, source):
    """A target that has probing in it from its beginning."""
    return world.start(python, HEAD + WAIT + "probing.init()\n" + source +
                       "\nprint('done', flush=True)\nwhile True: time.sleep(0.01)\n", env=ENV)


COMES = """
from probing import tables
idle, got = tables._nothing, []
def comes(columns):  # just here
    made = idle(columns)
    tables.attach({"table": lambda *args: lambda *row: got.append(row), "table_wait": None})
    return made
tables._nothing = comes
table = probing.table("late", {"n": int})
table.append(7)
assert got == [(7,)], got
"""


def test_probing_that_comes_while_a_table_is_declared_is_not_missed():
    """The table was attached before it was listed, and then to nothing for good."""
    done = subprocess.run([sys.executable, "-c", HEAD + COMES], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TABLES = """
import dataclasses
losses = probing.table("loss", {"step": int, "value": (float, "smoothed"), "phase": str,
                                "note": str}, doc="what the loop says")
losses.append(1, 0.5, "warm", "first")
losses.append(step=2, value=3, note="größer \\U0001f642 " * 400)
losses.append(3, None, "run")
losses.append(True, 2.5)
losses.append("no", object(), 5, b"no")
losses.append(1 << 80, 1 << 70, "\\ud800", "\\ud800")
losses.append(2.5)
@dataclasses.dataclass
class BatchSize:
    "How large the batches are."
    size: "int"
    data: bytes = dataclasses.field(default=b"", metadata={"doc": "raw"})
sizes = probing.table(BatchSize)
sizes.append(BatchSize(7, b"\\0\\xff"))
sizes.append(8)
assert probing.table(BatchSize) is sizes
def many(k):
    for i in range(500): losses.append(1000 * k + i, 0.0, "thread")
threads = [threading.Thread(target=many, args=(k,)) for k in range(1, 4)]
for t in threads: t.start()
for t in threads: t.join()
print(probing.query("select count(*), count(distinct tid), sum(step) from python.loss "
                    "where phase = 'thread'"), flush=True)
"""


def test_tables(world, python):
    target = start(world, python, TABLES)
    target.wait_line("^done")
    assert "[(1500, 3, 3374250)]" in target.output(), target.output()  # at once, from inside
    rows = target.rows("select step, value, phase, note from python.loss where phase is null "
                       "or phase <> 'thread' order by ts")
    assert rows == [[1, 0.5, "warm", "first"], [2, 3.0, None, "größer 🙂 " * 400],
                    [3, None, "run", None], [1, 2.5, None, None], [None, None, None, None],
                    [None, 2.0 ** 70, None, None], [None, None, None, None]]
    assert target.rows("select size, data from python.batch_size order by ts")[1] == [8, None]
    assert target.rows("select size from python.batch_size where data is not null") == [[7]]
    told = " ".join(row[0] for row in target.rows("select text from probing.log"))
    for column in ("step", "value", "phase", "note"):
        assert told.count("column %s: a value is not" % column) == 1, told
    assert "smoothed" in target.probing("query", "describe python.loss").stdout
    target.process.send_signal(signal.SIGKILL)
    target.process.wait()
    dead = str(next(world.data.glob("%d-*" % target.pid)))
    done = world.probing("-t", dead, "query", "--format", "json",
                         "select count(*), max(step) from python.loss")
    assert json.loads(done.stdout)["rows"] == [[1507, 3499]], done.stderr


def test_what_cannot_be_a_table_is_told_without_probing_too(world, python):
    script = world.tmp / "declares.py"
    script.write_text(HEAD + """
def fails(call, *words, **named):
    try: call(*words, **named)
    except (TypeError, ValueError) as error: print(type(error).__name__, error)
    else: print("worked")
good = {"a": int}
fails(probing.table, "Bad", good); fails(probing.table, "trace_event", good)
fails(probing.table, "torch_mine", good); fails(probing.table, "x", {"A": int})
fails(probing.table, "x", {"ts": int}); fails(probing.table, "x", {"a": list})
fails(probing.table, "x", {}); fails(probing.table, "x", 5)
fails(probing.table, "x", {"a": bytes, "b": int}); fails(probing.table, 5)
for round in range(2):
    t = probing.table("x", good)
    fails(t.append, 1, 2); fails(t.append, b=1); fails(t.append, 1, a=1)
    fails(probing.table, "x", {"a": float})
    probing.init()
    probing.table("other", good)
""", encoding="utf-8")
    done = subprocess.run([python, str(script)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(world.env, **ENV), encoding="utf-8", timeout=60)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:10]] == [
        "ValueError", "ValueError", "ValueError", "ValueError", "ValueError", "TypeError",
        "ValueError", "TypeError", "ValueError", "ValueError"], done.stdout
    assert [line.split()[0] for line in lines[10:]] == \
        (["TypeError"] * 3 + ["ValueError"]) * 2, done.stdout


SPANS = """
import asyncio
@probing.span
def plain(x): return x + 1
@probing.span("named", size=3)
async def later(n):
    with probing.span("inside", n=n):
        await asyncio.sleep(0.01)
        probing.event("tick", n=n)
@probing.span
def numbers(n):
    for i in range(n): yield i
class Odd:
    def __str__(self): raise OSError("no text")
with probing.span("outer", run=7, rate=float("inf"), some=[1, None]) as outer:
    assert plain(1) == 2
    try:
        with probing.span("fails"): raise KeyError("k")
    except KeyError: pass
    for i in numbers(3): probing.event("item", i=i)
    thread = threading.Thread(target=plain, args=(5,)); thread.start(); thread.join()
    outer.set(loss=0.5)
    with probing.span("odd", odd=Odd(), long="x" * 9000): pass
async def main():
    with probing.span("tasks"):
        await asyncio.gather(*[later(n) for n in range(4)])
asyncio.run(main())
@probing.step
def train(n): return n
assert train(4) == 4
with probing.step(11): pass
probing.step(12)
assert plain.__name__ == "plain" and plain.__qualname__ == "plain"
"""


def test_spans(world, python):
    target = start(world, python, SPANS)
    target.wait_line("^done")
    rows = target.rows("select record_type, span_id, parent_id, trace_id, name, phase, "
                       "duration_ns, attributes, tid from python.trace_event order by ts, span_id")
    ends = {}
    for row in rows:
        if row[0] == "span_end":
            ends.setdefault(row[4], []).append(row)
    assert sum(row[0] == "span_start" for row in rows) == sum(map(len, ends.values()))
    outer = ends["outer"][0]
    assert outer[2] is None and outer[3] == outer[1] and outer[5] == "return"
    assert json.loads(outer[7]) == {"run": 7, "rate": None, "some": [1, None], "loss": 0.5}
    first, other = ends["plain"]
    assert first[2:4] == [outer[1], outer[1]], "in its span"
    assert other[2] is None and other[8] != outer[8], "another thread is in no span"
    fails = ends["fails"][0]
    assert fails[5] == "raise" and json.loads(fails[7]) == {"exception": "KeyError: 'k'"}
    assert fails[2] == outer[1]
    items = [row for row in rows if row[4] == "item"]
    assert len(items) == 3 and all(row[2] == outer[1] for row in items), "not in the generator"
    assert ends["numbers"][0][2] == outer[1] and ends["numbers"][0][6] > 0
    odd = json.loads(ends["odd"][0][7])
    assert odd["cut"].startswith('{"odd": "<OSError>", "long": "xxx'), odd
    tasks, named, inside = ends["tasks"][0], ends["named"], ends["inside"]
    assert len(named) == 4 and all(row[2] == tasks[1] for row in named)
    assert {row[2] for row in inside} == {row[1] for row in named}, "each in its own task's"
    ticks = {json.loads(row[7])["n"]: row[2] for row in rows if row[4] == "tick"}
    assert ticks == {json.loads(row[7])["n"]: row[1] for row in inside}
    assert all(row[3] == tasks[1] for row in named + inside)
    assert [row[7] for row in ends["step"]] == [None, '{"number": 11}']
    assert all(row[6] > 0 for row in rows if row[0] == "span_end")


def appears(target, table):
    """The program hears of probing when its main thread comes by."""
    wait_for(lambda: target.rows("select count(*) from information_schema.tables where "
                                 "table_name = '%s'" % table) == [[1]], "python." + table)
    wait_for(lambda: target.rows("select count(*) > 0 from python." + table) == [[True]], "rows")


LATE = """
losses = probing.table("late", {"n": int})
n, open_span = 0, probing.span("open").__enter__()
print("ready", flush=True)
while True:
    n += 1
    losses.append(n)
    with probing.span("turn", n=n): probing.event("now")
    if n % 50 == 0: print("native" if hasattr(sys, "_probing") else "plain", flush=True)
    time.sleep(0.002)
"""


def test_it_comes_and_goes(world, python):
    """Nothing before inject, rows then, nothing of it after eject; and again."""
    target = world.start(python, HEAD + LATE, env=ENV)
    target.wait_line("^plain")
    for _ in range(2):
        target.inject()
        appears(target, "late")
        wait_for(lambda: target.rows("select count(*) > 20 from python.trace_event "
                                     "where record_type = 'span_end'") == [[True]], "spans")
        assert target.rows("select min(n) > 1 from python.late") == [[True]]
        assert target.probing("eject").returncode == 0
        said = target.output().count("\nplain")
        wait_for(lambda: target.output().count("\nplain") > said + 1, "turns after eject")
        assert target.output().endswith("plain\n"), target.output()[-200:]
    assert target.alive()


def test_eject_of_a_hung_program_that_imports_it(world):
    target = world.start(list(PYTHONS.values())[0], HEAD + "import ctypes\n"
                         "t = probing.table('hung', {'n': int})\n"
                         "print('ready', flush=True)\n"
                         "while not os.path.exists(sys.argv[1]): t.append(1); time.sleep(0.001)\n"
                         "print('hangs', flush=True); ctypes.PyDLL(None).sleep(600)\n",
                         env=ENV, arguments=[str(world.tmp / "hang")]).inject()
    appears(target, "hung")
    (world.tmp / "hang").write_text("")
    target.wait_line("^hangs")
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr


def test_place_in_the_job(world, python):
    """Without torch it is what the launcher says, and set_role() is heard at once."""
    target = world.start(python, HEAD + WAIT + "probing.init()\n"
                         "while not probing.is_running(): time.sleep(0.01)\n"
                         "probing.event('first')\nprobing.set_role('learner')\n"
                         "probing.step(41)\nprobing.event('then')\nprobing.step()\n"
                         "probing.event('last')\nprint('done', flush=True)\n"
                         "while True: time.sleep(0.01)\n",
                         env=dict(ENV, RANK="7", WORLD_SIZE="16", LOCAL_RANK="-1"))
    target.wait_line("^done")
    assert target.rows("select name, rank, world_size, local_rank, role, local_step, global_step "
                       "from python.trace_event order by ts") == [
                           ["first", 7, 16, None, None, None, None],
                           ["then", 7, 16, None, "learner", None, 41],
                           ["last", 7, 16, None, "learner", None, None]]


def test_forks(world, python):
    """Children add no rows and notice nothing; the parent's rows go on."""
    target = start(world, python, """
t = probing.table("forks", {"pid": int})
for i in range(30):
    t.append(os.getpid())
    with probing.span("parent"):
        child = os.fork()
        if child == 0:
            t.append(os.getpid())
            with probing.span("child"): probing.event("child")
            probing.table("childs", {"n": int}).append(1)
            os._exit(7 if i % 2 else 0)
        assert os.waitpid(child, 0)[1] == (7 << 8 if i % 2 else 0)
""")
    target.wait_line("^done")
    assert target.rows("select count(*), min(pid), max(pid) from python.forks") == \
        [[30, target.pid, target.pid]]
    assert target.rows("select name, count(*) from python.trace_event group by 1") == \
        [["parent", 60]]


def test_watched_calls_and_spans_are_in_each_other(world, python):
    if is_threaded(python):
        pytest.skip("trace refuses free-threaded builds")
    target = world.start(python, HEAD + """
def inner(): return 1
def middle():
    with probing.span("in the call"): return inner()
print("ready", flush=True)
while True:
    with probing.span("around"): middle()
    time.sleep(0.003)
""", env=ENV).inject()
    done = target.probing("trace", "--limit", "20", "middle", "inner")
    assert done.returncode == 0, done.stderr
    rows = target.rows("""
        select i.span_id from python.trace_event i
        join python.trace_event s on i.parent_id = s.span_id and s.record_type = 'span_end'
        join python.trace_event m on s.parent_id = m.span_id and m.record_type = 'call'
        join python.trace_event a on m.parent_id = a.span_id and a.record_type = 'span_end'
        where i.name = 'inner' and s.name = 'in the call' and m.name = 'middle'
          and a.name = 'around'""")
    assert len(rows) >= 15, rows


def test_role(world):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s (Debian: python3-torch)" % DEBIAN_PYTHON)
    target = world.start(DEBIAN_PYTHON, HEAD + """
import torch
layer, n = torch.nn.Linear(2, 2), 0
probing.set_role("actor")
print("ready", os.environ["ROLE_NAME"], flush=True)
while True:
    layer(torch.ones(1, 2)); probing.step(); time.sleep(0.005)
    if os.path.exists(sys.argv[1]): probing.set_role("learner")
""", env=ENV, arguments=[str(world.tmp / "go")]).inject()
    assert target.probing("plugin", "load", "torch").returncode == 0
    roles = "select distinct role from python.torch_trace"
    wait_for(lambda: target.rows(roles) == [["actor"]], "rows of the first role")
    (world.tmp / "go").write_text("")
    wait_for(lambda: ["learner"] in target.rows(roles), "rows of the second role")


def test_costs_little_to_import(world, python):
    """No ctypes, json, re or asyncio comes with it, and no thread."""
    target = world.start(python, "import sys, threading\nbefore = set(sys.modules)\n" + HEAD +
                         "print('ready', flush=True)\n"
                         "print(sorted({'ctypes', 'json', 'asyncio', 'socket', 'inspect'} & "
                         "(set(sys.modules) - before)), threading.active_count(), flush=True)\n"
                         "time.sleep(600)")
    target.wait_line("^\\[.*\n")
    assert "\n[] 1\n" in target.output()
    assert minor_of(python) >= 8


READY = """
import dataclasses, enum, multiprocessing, pickle, sys, threading, time
from typing import Optional
sys.path.insert(0, %r)
import probing
early = probing.table("early", {"n": int})
class Stage(enum.IntEnum):
    ONE = 1
@dataclasses.dataclass
class Row:
    n: int
    part: Optional[float] = None
    text: "Optional[str]" = None
    stage: Stage = Stage.ONE
rows = probing.table(Row)
def begin(n):
    early.append(0)
    assert probing.init() is True and probing.init(**{"python.gc": True}) is False
    early.append(n)
    rows.append(Row(n, 3, "x"))
    assert probing.query("select n from python.early") == [(n,)]
    assert repr(probing.query("select n, part, text, stage from python.row")) == \\
        "[(%%d, 3.0, 'x', 1)]" %% n
    assert probing.config("python.gc") == "on"
def child(n):
    assert not probing.is_running()
    begin(n)
if __name__ == "__main__":
    try: probing.query("select 1")
    except probing.client.Gone as error: print(error)
    begin(1)
    for n, how in enumerate(("fork", "spawn", "forkserver")):
        process = multiprocessing.get_context(how).Process(target=child, args=(n + 2,))
        process.start()
        process.join()
        print(how, process.exitcode)
    again = pickle.loads(pickle.dumps((early, rows)))
    print(again[0] is early and again[1] is rows)
    print(probing.query("select n from python.early"))
"""


def test_what_is_recorded_after_init_is_kept(world, python):
    """It was lost until the plugin had come, query() was refused, and a forked child's tables
    stayed its parent's for good."""
    script = world.tmp / "ready.py"
    script.write_text(READY % str(PACKAGE))
    done = subprocess.run([python, str(script)], env=dict(world.env, PROBING_LIBRARY=str(CORE)),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100,
                          universal_newlines=True)
    assert done.stdout.split("\n") == [
        "probing does not run in this process; probing.init() starts it",
        "fork 0", "spawn 0", "forkserver 0", "True", "[(1,)]", ""], done.stdout + done.stderr


EARLY = HEAD + """
made = []
def more():  # probing has come: who declares one waits a second for it
    made.append(probing.table("late", {"n": int}))
    for n in range(5): made[0].append(n)
early = probing.table("early", {"n": int})
print("ready", flush=True)
os.read(os.pipe()[0], 1)  # for ever: the first code of a client is what brings probing here
"""


@pytest.mark.skipif(BUILD.name != "release", reason="plugins of tests are made for release")
def test_code_of_a_client_finds_the_tables_that_were_declared_before(world):
    """Rows were gone, and nobody counted them, when [control] had not made their table yet."""
    begun, go = world.tmp / "begun", world.tmp / "go"
    target = world.start(DEBIAN_PYTHON, EARLY, env={"BEGUN": str(begun), "GO": str(go)})
    target.wait_line("ready")
    target.inject()
    assert target.probing("config", "set", "probing.plugin_timeout", "5m").returncode == 0

    def start(*words):
        return subprocess.Popen([str(CLI), "-t", str(target.pid), *words], env=world.env,
                                stderr=subprocess.DEVNULL)

    def keep_control():
        load = start("plugin", "load", str(BUILD / "tests/hostile/plugins/start_waits.so"))
        wait_for(begun.exists, "a plugin that keeps [control]")
        begun.unlink()
        return load
    load = keep_control()
    code = start("eval", "early.append(7)")
    with pytest.raises(subprocess.TimeoutExpired):
        code.wait(0.5)
    go.touch()
    assert code.wait() == 0 and load.wait() == 1
    assert target.rows("select n from python.early") == [[7]]
    go.unlink()
    load = keep_control()
    assert target.probing("eval", "more()").returncode == 0
    go.touch()
    assert load.wait() == 1
    assert lost(target) == [[5]]


def lost(target):
    return target.rows("select rows from probing.lost where reason = 'no_table'")


def said(target):
    return [row[0] for row in target.rows("select text from probing.log where text like "
                                          "'python.%rows were appended before%'")]


@pytest.mark.skipif(BUILD.name != "release", reason="plugins of tests are made for release")
def test_rows_of_a_table_that_is_long_in_the_making_are_counted(world):
    """Code of a client waits for it 5 s; then its rows were dropped, and nobody counted them."""
    begun, go = world.tmp / "begun", world.tmp / "go"
    target = world.start(DEBIAN_PYTHON, EARLY, env={"BEGUN": str(begun), "GO": str(go)})
    target.wait_line("ready")
    target.inject()
    assert target.probing("config", "set", "probing.plugin_timeout", "5m").returncode == 0
    load = subprocess.Popen([str(CLI), "-t", str(target.pid), "plugin", "load", str(
        BUILD / "tests/hostile/plugins/start_waits.so")], env=world.env, stderr=subprocess.DEVNULL)
    wait_for(begun.exists, "a plugin that keeps [control]")
    assert target.probing("eval", "for n in range(5): early.append(n)").returncode == 0
    go.touch()
    assert load.wait() == 1
    assert wait_for(lambda: said(target), "a line of the log") == [
        "python.early: 5 rows were appended before its table was there, and are not kept; "
        "they are counted in probing.lost"]
    assert lost(target) == [[5]]
    assert target.probing("eval", "early.append(7)").returncode == 0
    assert target.rows("select n from python.early") == [[7]]


HANDED = HEAD + """
attach, go = probing._attach, os.environ["GO"]
def slow(given):  # the interpreter may leave the main thread for another at any point
    open(os.environ["BEGUN"], "w").close()
    while not os.path.exists(go): time.sleep(0.005)
    attach(given)
probing._attach = slow
early = probing.table("early", {"n": int})
print("ready", flush=True)
while True: time.sleep(0.005)
"""


def test_code_of_a_client_waits_while_the_main_thread_takes_it_over(world):
    """It saw that somebody was at it, and appended to what did nothing yet."""
    begun, go = world.tmp / "begun", world.tmp / "go"
    target = world.start(DEBIAN_PYTHON, HANDED, env={"BEGUN": str(begun), "GO": str(go)})
    target.wait_line("ready")
    target.inject()
    wait_for(begun.exists, "the main thread")
    code = subprocess.Popen([str(CLI), "-t", str(target.pid), "eval", "early.append(7)"],
                            env=world.env)
    with pytest.raises(subprocess.TimeoutExpired):
        code.wait(0.5)
    go.touch()
    assert code.wait() == 0 and target.rows("select n from python.early") == [[7]]


def test_init_says_why_not(world, python):
    done = subprocess.run(
        [python, "-c", "import sys; sys.path.insert(0, %r); import probing\n"
         "try: probing.init()\nexcept probing.ProbingError as e: print(e)" % str(PACKAGE)],
        env=dict(world.env, PROBING_LIBRARY=str(CORE), PROBING_DATA_DIR="/proc/nowhere"),
        stdout=subprocess.PIPE, timeout=60, universal_newlines=True)
    assert "/proc/nowhere cannot be made" in done.stdout


def test_main_thread_in_c_while_another_starts_it(world, python):
    """It handed over what the plugin offers when it came by: never."""
    done = subprocess.run(
        [python, "-c", "import sys, threading; sys.path.insert(0, %r); import probing\n"
         "t = probing.table('x', {'a': int})\n"
         "def go():\n    probing.init()\n    t.append(5)\n"
         "    print(probing.query('select a from python.x'), flush=True)\n"
         "thread = threading.Thread(target=go); thread.start(); thread.join()" % str(PACKAGE)],
        env=dict(world.env, PROBING_LIBRARY=str(CORE)), stdout=subprocess.PIPE, timeout=60,
        universal_newlines=True)
    assert done.stdout == "[(5,)]\n"


SLOW = r"""
#include <probing/plugin.h>
#include <unistd.h>
static int self_;
static int init(const struct probing_host *h, void **s) { (void)h; *s = &self_; return 0; }
static int start(void *s) { (void)s; usleep(400000); return 0; }
static void destroy(void *s) { (void)s; }
const struct probing_plugin probing_plugin_v1 __attribute__((visibility("default"))) = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "slow",
    .version = "1", .doc = "slow", .init = init, .destroy = destroy, .start = start };
"""


def test_main_thread_in_c_while_the_core_begins_slowly(world):
    """Nobody answered when it was asked for the first time, and it was not asked again."""
    world.plugin("slow", SLOW)
    done = subprocess.run(
        [DEBIAN_PYTHON, "-c", HEAD + "t = probing.table('x', {'a': int})\n"
         "def go():\n"
         "    probing.init(probing__plugins='slow,python', probing__plugin_path=sys.argv[1])\n"
         "    t.append(5)\n    print(probing.query('select a from python.x'), flush=True)\n"
         "thread = threading.Thread(target=go); thread.start(); thread.join()", str(world.tmp)],
        env=dict(world.env, **ENV), stdout=subprocess.PIPE, timeout=60, universal_newlines=True)
    assert done.stdout == "[(5,)]\n"


def test_odd_decorators_and_names(world):
    sys.path.insert(0, str(PACKAGE))
    import probing

    class Model:
        @probing.span
        @staticmethod
        def fixed(x): return x

        @probing.span("named")
        @classmethod
        def made(cls, x): return cls, x
    assert Model.fixed(3) == Model().fixed(3) == 3 and Model.made(4) == (Model, 4)
    assert probing.span(5).name == "5"
    with pytest.raises(TypeError):
        probing.span(Model)


def test_rows_as_a_frame():
    pandas = pytest.importorskip("pandas")
    sys.path.insert(0, str(PACKAGE))
    from probing.client import Rows
    rows = Rows({"columns": [{"name": n, "type": t, "unit": ""} for n, t in
                             (("ts", "timestamp"), ("x", "double"), ("n", "bigint"))],
                 "rows": [["2026-11-22T05:26:42.106366440Z", 3, 1], [None, None, 2]],
                 "lost": 0, "truncated": False, "elapsed_ms": 1})
    frame = rows.frame()
    assert frame["ts"][0] == pandas.Timestamp("2026-11-22T05:26:42.106366440Z")
    assert frame["x"][0] == 3.0 and list(frame["n"]) == [1, 2]
