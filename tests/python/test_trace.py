# SPDX-License-Identifier: Apache-2.0
"""trace: calls and variables of functions that run, and that nothing is left afterwards."""
import json
import os
import re
import subprocess

import pytest
from pythons import PYTHONS, is_threaded, minor_of
from world import CLI, LIMIT, ROOT, has_torch, wait_for

NOTHING = "nothing is watched\n"


@pytest.fixture(autouse=True)
def not_threaded(request):
    case = getattr(request.node, "callspec", None)
    if case and is_threaded(case.params.get("python", "")):
        pytest.skip("trace refuses free-threaded builds")


WORK = """
import functools, sys, threading, time
class Model:
    def step(self, n, *rest, scale=1.0, **kw):
        loss = n * scale
        for i in range(3):
            loss = loss + i
        if n % 5 == 4:
            raise ValueError("bad")
        return loss
    @staticmethod
    def static(x): return x
    @classmethod
    def klass(cls, x): return x
    @property
    def size(self): return 1
@functools.lru_cache(None)
def cached(n): return n
def numbers(n):
    for i in range(n):
        yield i
def down(n): return 0 if n == 0 else down(n - 1) + 1
async def later(n): return n
def maker(k):
    def inner(x): return x + k
    return inner
closure = maker(3)
class Loud:
    def __repr__(self): print("REPR RAN", flush=True); return "loud"
    __str__ = __len__ = __format__ = __repr__
    def __getattr__(self, name): print("GETATTR RAN", flush=True); raise AttributeError(name)
def loud(x): return x
model, n = Model(), 0
def turn():
    global n
    n += 1
    try:
        model.step(n, 7, scale=0.5, extra="x")
    except ValueError:
        pass
    model.static(1); model.klass(2); model.size; cached(n); list(numbers(3)); down(5); closure(n)
    loud(Loud())
    try:
        later(1).send(None)
    except StopIteration:
        pass
print("ready", flush=True)
while True:
    turn()
    time.sleep(0.005)
"""


def new(python):
    return minor_of(python) >= 12


def trace(target, *words):
    return target.probing("trace", *words)


def test_calls(world, python):
    target = world.start(python, WORK).inject()
    done = trace(target, "--limit", "10", "target-0.Model.step", "Model.static", "Model.klass",
                 "Model.size", "cached", "closure")
    assert done.returncode == 0, done.stderr
    for name in ("Model.step", "Model.static", "Model.klass", "Model.size", "cached", "closure"):
        assert len(re.findall(r"(?:return|raise) +\S*%s$" % name, done.stdout, re.M)) == 10, name
    assert len(re.findall("raise +target-0.Model.step", done.stdout)) == 2
    assert "target-0.Model.step: 10 calls, 2 raised" in done.stdout
    rows = target.rows("select name, phase, count(*), min(duration_ns) > 0 from python.trace_event "
                       "where name = 'target-0.Model.step' group by 1, 2, record_type order by 2")
    assert [row[1:3] for row in rows] == [["raise", 2], ["return", 8]]


@pytest.mark.some_pythons
def test_arguments_are_shown_and_no_code_of_theirs_runs(world, python):
    target = world.start(python, WORK).inject()
    done = trace(target, "--args", "--limit", "5", "Model.step", "loud")
    assert done.returncode == 0, done.stderr
    seen = [json.loads(text) for (text,) in target.rows(
        "select attributes from python.trace_event where name = 'Model.step'")]
    assert len(seen) == 5
    for one in seen:
        assert one["args"]["self"] == "<Model>" and one["args"]["scale"] == 0.5, one
        assert "7" in str(one["args"]) and "extra" in str(one["args"])
        n = one["args"]["n"]
        assert n % 5 == 4 or one["result"] == n * 0.5 + 3
    (text,) = target.rows("select distinct attributes from python.trace_event where name = 'loud'")
    assert json.loads(text[0]) == {"args": {"x": "<Loud>"}, "result": "<Loud>"}
    assert " RAN" not in target.output()


def test_calls_inside_calls_know_their_parent(world, python):
    target = world.start(python, WORK).inject()
    done = trace(target, "--limit", "12", "down")
    assert done.returncode == 0, done.stderr
    rows = target.rows("select span_id, parent_id, duration_ns from python.trace_event "
                       "where name = 'down' order by span_id")
    by_id = {row[0]: row for row in rows}
    inner = [row for row in rows if row[1] in by_id]
    assert len(inner) >= 5
    assert all(row[2] <= by_id[row[1]][2] for row in inner)


def test_generators_and_coroutines(world, python):
    target = world.start(python, WORK).inject()
    if not new(python):
        for name in ("numbers", "later"):
            done = trace(target, name)
            assert done.returncode != 0 and "from CPython 3.12 on" in done.stderr
        return
    done = trace(target, "--limit", "8", "numbers", "later")
    assert re.findall(r"(yield|return) +numbers", done.stdout) == \
        (["yield"] * 3 + ["return"]) * 2, done.stdout
    assert len(re.findall("return  later", done.stdout)) == 8


def test_a_variable(world, python):
    target = world.start(python, WORK).inject()
    done = trace(target, "--watch", "loss", "--limit", "9", "Model.step")
    if not new(python):
        assert done.returncode != 0 and "from CPython 3.12 on" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    rows = target.rows("select func, name, value, value_type, value_f64, lineno "
                       "from python.watched order by ts")
    assert len(rows) == 9 and all(row[:2] == ["Model.step", "loss"] for row in rows)
    assert all(float(row[2]) == row[4] and row[3] == "float" for row in rows)
    deltas = {round(b[4] - a[4], 6) for a, b in zip(rows, rows[1:]) if b[4] > a[4]}
    assert {1.0, 2.0} <= deltas, rows
    done = trace(target, "--watch", "los", "Model.step")
    assert done.returncode != 0 and "has no variable 'los'; it has" in done.stderr


KEEPER = """
import time
class Base:
    __slots__ = ("slot",)
class Meta(type):
    def __eq__(self, other): print("EQ RAN", flush=True); return True
    __hash__ = type.__hash__
class Keeper(Base, metaclass=Meta):
    limit = 7
    def __init__(self): self.count, self.inner = 0, None
    @property
    def loud(self): print("PROPERTY RAN", flush=True)
    def __getattribute__(self, name):
        if total > 3: print("GETATTRIBUTE RAN", name, flush=True)
        return object.__getattribute__(self, name)
    def turn(self):
        global total
        total = total + 1
        object.__setattr__(self, "count", -total)
        object.__setattr__(self, "slot", total * 2)
        return total
total = 0
keeper = Keeper()
print("ready", flush=True)
while True:
    keeper.turn()
    time.sleep(0.005)
"""


def test_a_global_and_attributes(world, python):
    if not new(python):
        return
    target = world.start(python, KEEPER).inject()
    for variable, value in [("total", "n"), ("self.count", "-n"), ("self.slot", "2 * n"),
                            ("self.limit", "7"), ("Keeper.limit", "7"), ("keeper.count", "-n"),
                            ("self.loud", "<property>"), ("time.sleep", None),
                            ("self", "<Keeper>")]:
        done = trace(target, "--watch", variable, "--limit", "4", "Keeper.turn")
        assert done.returncode == 0, done.stderr
        values = [row[0] for row in target.rows(
            "select value from python.watched where name = '%s' order by ts" % variable)]
        assert len(values) == 4, (variable, done.stdout)
        if value and "n" in value and value[0] != "<":
            numbers = [int(v) for v in values]
            assert numbers == sorted(numbers, reverse=value[0] == "-"), values
        elif value:
            assert set(values) == {value}, values
    done = trace(target, "--watch", "self.nothing", "--duration", "200ms", "Keeper.turn")
    assert done.returncode == 0 and "0 values" in done.stdout, "it may come yet"
    for variable in ("nothing", "self.", "nothing.x"):
        done = trace(target, "--watch", variable, "Keeper.turn")
        assert done.returncode != 0 and "has no variable" in done.stderr, done
    done = trace(target, "keeper.turm")
    assert done.returncode != 0 and "did you mean 'turn'" in done.stderr
    assert set(target.output().split("\n")) <= {"ready", "GETATTRIBUTE RAN turn", ""}


def test_nothing_is_watched(world):
    target = world.start(list(PYTHONS.values())[0], WORK).inject()
    assert trace(target, "--list").stdout == trace(target, "--stop").stdout == NOTHING
    done = trace(target, "str.join")
    assert done.returncode != 0 and "written in C" in done.stderr


STATE = """
import sys
def state():
    out = []
    for f in (Model.step, Model.__dict__["static"].__func__, cached.__wrapped__, closure, down):
        out.append((id(f), id(f.__code__), f.__code__.co_code, sorted(f.__dict__),
                    f.__defaults__, f.__kwdefaults__, id(sys.modules["__main__"].Model.step)))
    if hasattr(sys, "monitoring"):
        m = sys.monitoring
        out.append([m.get_tool(i) for i in range(6)])
        out.append([m.get_events(i) for i in range(6) if m.get_tool(i)])
    out.append((sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()))
    return out
import hashlib; hashlib.sha1(repr(state()).encode()).hexdigest()
"""


def test_nothing_is_left(world, python):
    target = world.start(python, WORK).inject()
    before = target.eval(STATE)
    assert before.returncode == 0, before.stdout + before.stderr
    names = ["Model.step", "Model.static", "cached", "closure", "down"]
    for how in (["--limit", "20"], ["--duration", "100ms"], ["--args", "--limit", "20"]):
        assert trace(target, *how, *names).returncode == 0
        assert target.eval(STATE).stdout == before.stdout, how
    # a client that is killed
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "trace", *names],
                              stdout=subprocess.PIPE, env=world.env)
    assert client.stdout.readline()
    assert target.eval(STATE).stdout != before.stdout or not new(python)
    client.kill()
    client.wait()
    wait_for(lambda: trace(target, "--list").stdout == NOTHING, "the hooks to be taken out")
    assert target.eval(STATE).stdout == before.stdout
    # eject takes out what stays
    assert trace(target, "--keep", *names).returncode == 0
    assert trace(target, "--list").stdout.count("calls") == 5
    told = json.loads(trace(target, "--list", "--json").stdout)
    assert told["row_count"] == len(told["rows"]) == 5
    assert [c["name"] for c in told["columns"]][:3] == ["name", "variable", "calls"]
    assert trace(target, "--json").returncode != 0
    assert target.probing("eject").returncode == 0
    target.inject()
    assert target.eval(STATE).stdout == before.stdout
    assert trace(target, "--list").stdout == NOTHING
    seen = int(target.eval("n").stdout)
    wait_for(lambda: int(target.eval("n").stdout) > seen + 5, "the program goes on")


@pytest.mark.some_pythons
def test_kept_and_stopped_by_name(world, python):
    target = world.start(python, WORK).inject()
    assert trace(target, "--keep", "Model.step", "down").returncode == 0
    wait_for(lambda: target.rows("select count(*) from python.trace_event where name = 'down'")
             [0][0] > 20, "rows")
    assert "no longer watched: down" in trace(target, "--stop", "down").stdout
    listed = trace(target, "--list").stdout
    assert "Model.step" in listed and "down" not in listed
    done = trace(target, "--stop", "nobody")
    assert done.returncode != 0 and "is not watched" in done.stderr
    assert trace(target, "--stop").returncode == 0
    assert trace(target, "--list").stdout == NOTHING


def test_refusals(world):
    target = world.start(list(PYTHONS.values())[0], WORK).inject()
    for words, part in [(["time.sleep"], "written in C"), (["Model"], "Model.__init__"),
                        (["nosuch.thing"], "no module 'nosuch'"), (["Model.stepp"], "'step'"),
                        (["n"], "is no function"), ([], "which function"),
                        (["--limit", "x", "down"], "--limit"), (["--limitt"], "no option"),
                        (["--duration", "never", "down"], "--duration"), (["a..b"], "names no")]:
        done = trace(target, *words)
        assert done.returncode != 0 and part in done.stderr, (words, done.stderr)
    # all or nothing
    assert trace(target, "down", "time.sleep").returncode != 0
    assert trace(target, "--list").stdout == NOTHING


DEEP = """
import sys, time, threading
sys.setrecursionlimit(%d)
def down(n): return 0 if n == 0 else down(n - 1) + 1
def again():
    while True:
        try:
            assert down(%d) == %d
            good.append(1)
        except BaseException as error:
            print("BAD", type(error), flush=True)
        time.sleep(0.002)
good = []
print("ready", flush=True)
again()
"""


@pytest.mark.some_pythons
@pytest.mark.parametrize("limit,deep", [(1000, 960), (30000, 8000)])
def test_recursion_is_as_deep_as_before(world, python, limit, deep):
    if limit > 1000 and minor_of(python) < 11:
        deep = 3000  # its own C stack would not hold more
    target = world.start(python, DEEP % (limit, deep, deep)).inject()
    assert trace(target, "--duration", "300ms", "down").returncode == 0
    seen = int(target.eval("len(good)").stdout)
    wait_for(lambda: int(target.eval("len(good)").stdout) > seen + 3, "calls after it")
    assert "BAD" not in target.output() and target.alive()


THREADS = """
import sys, threading, time
def work(n): return n + 1
def loop():
    n = 0
    while True:
        n = work(n)
def short():
    while True:
        t = threading.Thread(target=work, args=(1,)); t.start(); t.join()
for target in (loop, loop, loop, short):
    threading.Thread(target=target, daemon=True).start()
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


@pytest.mark.some_pythons
def test_put_in_and_out_while_threads_call(world, python):
    target = world.start(python, THREADS).inject()
    calls = 0
    for n in range(30):
        words = (["--args"] if n % 3 == 0 else []) + ["--duration", "20ms"]
        done = trace(target, *words, "work")
        assert done.returncode == 0, done.stderr
        calls += int(re.search(r"work: (\d+) calls, 0 raised", done.stdout).group(1))
    assert calls > 0
    assert target.alive() and target.eval("work(1)").stdout == "2\n"


@pytest.mark.some_pythons
def test_forks_while_watched(world, python):
    target = world.start(python, """
import os, time
def work(n): return n + 1
print("ready", flush=True)
n = bad = 0
while True:
    pid = os.fork()
    if pid == 0:
        os._exit(0 if work(1) == 2 else 1)
    bad += os.waitpid(pid, 0)[1] != 0
    n = work(n)
    time.sleep(0.001)
""").inject()
    assert trace(target, "--duration", "500ms", "--args", "work").returncode == 0
    assert target.eval("bad, n > 10").stdout == "(0, True)\n"
    assert target.rows("select count(distinct tid) from python.trace_event") == [[1]]


DECORATED = """
import functools, time
def deco(f):
    @functools.wraps(f)
    def wrapper(*a, **k): return f(*a, **k)
    return wrapper
@deco
def one(x): return x
@deco
def two(x): return -x
class Callable:
    def __init__(self, f): functools.update_wrapper(self, f)
    def __call__(self, *a): return self.__wrapped__(*a)
@Callable
def thing(x): return x
class Model:
    @functools.cached_property
    def size(self): return 3
    def step(self, x):
        def helper(y): return y + x
        return helper(x)
model = Model()
add = functools.partial(lambda a, b: a + b, 3)
@functools.singledispatch
def any_of(x): return "any"
@any_of.register(int)
def _(x): return "int"
def maker(k):
    def inner(x):
        if x < 0: raise ValueError
        return x + k
    return inner
ten, twenty = maker(10), maker(20)
def plain(x): return x
def replace():
    global plain
    def plain(x): return -x
n = 0
print("ready", flush=True)
while True:
    n += 1
    one(n); two(n); thing(n); add(n); any_of(n); any_of(""); plain(n)
    model.__dict__.pop("size", None); model.size; model.step(n)
    ten(twenty(ten(n)))
    try: twenty(-1)
    except ValueError: pass
    time.sleep(0.002)
"""


def test_what_stands_around_a_function(world, python):
    """A function made by functools.wraps was watched as all of the same decorator's."""
    target = world.start(python, DECORATED).inject()
    for name, argument, result, note in [
            ("one", "x", "n", "the function that one wraps"), ("thing", "x", "n", None),
            ("two", "x", "-n", "the function that two wraps"), ("add", "b", "n + 3", None),
            ("Model.size", None, "3", None), ("model.step", "x", "2 * n", "other objects"),
            ("ten", "x", "n + 10", None)]:
        done = trace(target, "--args", "--limit", "6", name)
        assert done.returncode == 0, (name, done.stderr)
        assert done.stdout.count("return  ") == 6 and "6 calls, 0 raised" in done.stdout
        assert (note or "\n") in done.stdout and (note or "is watched" not in done.stdout)
        assert "watching cost" in done.stdout
        for (text,) in target.rows("select attributes from python.trace_event where name = '%s'"
                                   % name):
            seen = json.loads(text)
            if argument:
                assert seen["result"] == eval(result, {"n": seen["args"][argument]}), (name, seen)
    done = trace(target, "--args", "--limit", "4", "any_of")
    assert '"int"' in done.stdout and '"any"' in done.stdout
    done = trace(target, "--args", "--limit", "4", "Model.step.helper")
    if new(python):
        assert done.stdout.count("return  Model.step.helper") == 4, done.stdout
    else:
        assert done.returncode != 0 and "made anew" in done.stderr
    for name, part in [("model", "is no function"), ("Model.step.nothing", "makes helper"),
                       ("len", "written in C"), ("model.stepp", "has no 'stepp'")]:
        done = trace(target, name)
        assert done.returncode != 0 and part in done.stderr, (name, done.stderr)
    for seconds in 2, 8, 32:  # until the eval comes before the end
        client = subprocess.Popen([str(CLI), "-t", str(target.pid), "trace", "--limit", "100000",
                                   "--duration", "%ds" % seconds, "plain"], stdout=subprocess.PIPE,
                                  env=world.env)
        assert client.stdout.readline()
        assert target.eval("import __main__; __main__.replace()").returncode == 0
        running = client.poll() is None
        said = client.communicate(timeout=LIMIT)[0]
        if running:
            break
    assert b"another function of this name" in said


@pytest.mark.some_pythons
def test_a_limit_counts_the_calls_that_are_told(world, python):
    target = world.start(python, WORK).inject()
    assert "down: 3 calls" in trace(target, "--limit", "3", "down").stdout


SCALARS = """
import time, torch
def step(loss, count, half, brain, flag, one, part, negative, many, meta, weight, lost):
    return loss
values = (torch.tensor(0.25, requires_grad=True), torch.tensor(-7), torch.tensor(1.5).half(),
          torch.tensor(2.5).bfloat16(), torch.tensor(True), torch.tensor([[3]], dtype=torch.int16),
          torch.arange(9.)[4], torch.tensor(1 + 2j).conj().imag, torch.zeros(2),
          torch.zeros((), device="meta"), torch.nn.Parameter(torch.tensor(0.5)),
          torch.tensor(float("nan")))
print("ready", flush=True)
while True:
    step(*values)
    time.sleep(0.01)
"""


@pytest.mark.parametrize("place", ["/usr/bin/python3", "build/torch/bin/python"])
def test_a_tensor_of_one_element_shows_it(world, place):
    python = str(ROOT / place)
    if not os.path.exists(python) or not has_torch(python):
        pytest.skip("no torch (Debian: python3-torch; or build/torch)")
    target = world.start(python, SCALARS).inject()
    done = trace(target, "--args", "--limit", "1", "step")
    assert done.returncode == 0, done.stderr
    (row,) = target.rows("select attributes from python.trace_event where name = 'step'")
    found = json.loads(row[0])["args"]
    begins = {name: text.split("shape=")[0] for name, text in found.items()}
    assert begins == {
        "loss": "tensor(0.25, ", "count": "tensor(-7, ", "half": "tensor(1.5, ",
        "brain": "tensor(2.5, ", "flag": "tensor(True, ", "one": "tensor(3, ",
        "part": "tensor(4, ", "negative": "tensor(", "many": "tensor(", "meta": "tensor(",
        "weight": "tensor(0.5, ", "lost": "tensor(nan, "}, found
    assert found["one"] == "tensor(3, shape=(1, 1), int16, cpu)"
    assert target.alive()


@pytest.mark.some_pythons
def test_subinterpreters_are_not_seen_and_said(world, python):
    """The same function is another one in there."""
    target = world.start(python, """
import threading, time
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
alone = interpreters.create()
run = getattr(interpreters, "run_string", None) or interpreters.exec
threading.Thread(target=run, args=(alone, "import time\\ntime.sleep(600)"), daemon=True).start()
def step(): time.sleep(0.01)
print("ready", flush=True)
while True: step()
""").inject()
    wait_for(lambda: len([t for t in target.threads("--python").values() if t["frames"]]) == 2,
             "the thread of the other interpreter")
    said = "calls in the main interpreter only: this process has 1 other, which cannot be watched\n"
    done = target.probing("trace", "__main__.step", "--limit", "1")
    assert done.returncode == 0 and said in done.stdout, done
    done = target.probing("trace", "inner.step")
    assert done.returncode != 0 and said in done.stdout and "no module 'inner'" in done.stderr, done
