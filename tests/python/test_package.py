# SPDX-License-Identifier: Apache-2.0
"""import probing and the .pth hook: cheap when not asked for, and right about when it is."""
import ast
import os
import re
import socket
import subprocess

import pytest
from scripts import PACKAGE
from world import CORE

pytestmark = pytest.mark.some_pythons

HOOK = "import site; site.addsitedir(%r)\n" % str(PACKAGE)
RUNS = HOOK + "import probing; print('running', probing.is_running())\n"


def run(world, python, source, env=None, name="script.py"):
    script = world.tmp / name
    script.write_text(source)
    return subprocess.run([python, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env=dict(world.env, PROBING_LIBRARY=str(CORE), **(env or {})),
                          encoding="utf-8", timeout=60)


def test_costs_nothing_when_not_asked(world, python):
    done = run(world, python, """
import time, sys, site
line = open(%r).read()
best = 1e9
for _ in range(50):
    began = time.perf_counter()
    exec(line)
    best = min(best, time.perf_counter() - began)
print(best < 0.001, "libprobing_hook" in sys.modules, "ctypes" in sys.modules)
""" % str(PACKAGE / "libprobing.pth"))
    assert (done.stdout, done.stderr) == ("True False False\n", "")


@pytest.mark.parametrize("value,here,left", [
    ("", False, ""), ("0", False, "0"), ("off", False, "off"), ("1", True, None), ("2", True, "2"),
    ("script.py", True, "script.py"), ("other.py", False, "other.py"),
    ("regex:scr.*py$", True, "regex:scr.*py$"), ("regex:nothing", False, "regex:nothing")])
def test_where_it_starts(world, python, value, here, left):
    done = run(world, python, RUNS + "import os; print(os.environ.get('PROBING'))",
               {"PROBING": value})
    assert done.stdout == "running %s\n%s\n" % (here, left), done.stderr
    assert done.stderr == "" and done.returncode == 0


def test_nccl_is_told_where_a_profiler_is(world, python):
    """Only where nobody has said so, and not where probing is not wanted."""
    plugin = str(CORE.parent / "plugins" / "nccl.so")
    for env, told in (({"PROBING": "1"}, plugin), ({"PROBING": "0"}, "None"),
                      ({"PROBING": "1", "NCCL_PROFILER_PLUGIN": "none"}, "none")):
        done = run(world, python, HOOK + "import os; print(os.environ.get('NCCL_PROFILER_PLUGIN'))",
                   env)
        assert done.stdout == told + "\n", done.stderr


def test_never_stops_the_program(world, python):
    for env in ({"PROBING": "1", "PROBING_LIBRARY": "/nowhere/libprobing.so"},
                {"PROBING": "regex:("}, {"PROBE": "1", "PROBING_LIBRARY": "/etc/passwd"}):
        script = world.tmp / "script.py"
        script.write_text(HOOK + "print('mine')")
        done = subprocess.run([python, str(script)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=dict(world.env, **env), encoding="utf-8")
        assert (done.returncode, done.stdout) == (0, "mine\n")
        assert done.stderr.startswith("probing: not started: ")
        assert len(done.stderr.strip().split("\n")) == 1


def page_of(text):
    """The status and text of the page that a line on stderr names."""
    line, = re.findall(r"^probing: (.*)$", text, flags=re.M)
    address = re.match(r"page: (http://127\.0\.0\.1:\d+/\?token=\w+)$", line)
    assert address, text
    return address.group(1)


ASKS = """
import re, sys, subprocess, os, urllib.request
sys.stderr.flush()
line = open(%r).read()
page = re.search(r"page: (\\S+)", line).group(1)
print(urllib.request.urlopen(page, timeout=60).status)
print(os.environ.get("PROBING_PORT"), os.environ.get("PROBING"))
"""


@pytest.mark.parametrize("env", [{"PROBING_PORT": "127.0.0.1:0"},
                                 {"PROBING": "1", "PROBING_PORT": "127.0.0.1:0"},
                                 {"PROBE": "1", "PROBE_ADDR": "127.0.0.1:0"}])
def test_a_port_is_enough(world, python, env):
    """And what says where the page is, is true; children do not get what would take it again."""
    log = world.tmp / "stderr"
    script = world.tmp / "script.py"
    script.write_text(HOOK + ASKS % str(log))
    with open(log, "w") as stderr:
        done = subprocess.run([python, str(script)], stdout=subprocess.PIPE, stderr=stderr,
                              env=dict(world.env, PROBING_LIBRARY=str(CORE), **env),
                              encoding="utf-8", timeout=60)
    assert done.stdout == "200\nNone None\n", log.read_text()
    page_of(log.read_text())


def test_a_port_that_is_taken_is_told(world, python):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = run(world, python, HOOK + "print('mine')",
                   {"PROBING_PORT": "127.0.0.1:%d" % taken.getsockname()[1]})
    assert (done.returncode, done.stdout) == (0, "mine\n")
    assert re.match("probing: no page: .*in use.*\n$", done.stderr), done.stderr


def test_init_with_an_address_says_where(world, python):
    done = run(world, python, "import sys; sys.path.insert(0, %r)\nimport probing\n"
               "print(probing.init(listen='127.0.0.1:0'))\n" % str(PACKAGE))
    assert done.stdout == "True\n"
    page_of(done.stderr)


def test_script_names():
    names = {}
    exec((PACKAGE / "libprobing_hook.py").read_text().split("try:\n    main()")[0], names)
    for words, script in [(["python", "-u", "a/train.py", "x.py"], "a/train.py"),
                          (["python", "-m", "torch.run", "t.py"], "torch.run"),
                          (["python", "-mpip"], "pip"), (["python", "-c", "x"], ""),
                          (["python", "-W", "error", "-X", "dev", "t.py"], "t.py"),
                          (["python"], ""), (["python", "-"], "")]:
        assert names["script_of"](words) == script, words


def test_init_by_hand(world, python):
    done = run(world, python, "import sys; sys.path.insert(0, %r)\nimport probing\n"
               "print(probing.is_running(), probing.init(), probing.is_running(), "
               "probing.init())\n" % str(PACKAGE))
    assert done.stdout == "False True True False\n", done.stderr
    done = run(world, python, "import sys; sys.path.insert(0, %r)\nimport probing\n"
               "try: probing.init(**{'a=b': 1})\nexcept ValueError as e: print('no')\n"
               % str(PACKAGE))
    assert done.stdout == "no\n"
    assert not os.path.exists(str(PACKAGE / "probing" / "libprobing.so"))


def test_a_process_asks_itself(world, python):
    done = run(world, python, "import sys; sys.path.insert(0, %r)\nimport probing\n" % str(PACKAGE)
               + """
import threading, time
from probing.client import Error, Gone
def fails(call, *words):
    try:
        call(*words)
    except Error as error:
        return type(error).__name__, error.code
print(fails(probing.query, "select 1"))
probing.init()
for _ in range(500):
    if fails(probing.query, "select name from python.modules") is None:
        break
    time.sleep(0.02)
print(probing.query("select 1 + 1 as two").dicts())
print(probing.query("select count(*) > 5 from python.modules")[0])
print(fails(probing.query, "selekt"), fails(probing.config, "no.such.setting"))
before = probing.config("probing.max_memory")
probing.config("probing.max_memory", "123MB")
print(before != probing.config("probing.max_memory"), probing.config()["probing.max_memory"])
rows = []
threads = [threading.Thread(target=lambda: rows.append(probing.query("select 7")[0][0]))
           for _ in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(rows)
""")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("('Gone'"), done.stdout + done.stderr
    assert lines[1:3] == ["[{'two': 2}]", "(True,)"], done.stdout + done.stderr
    assert lines[3].count("('Error', '") == 2, lines[3]
    assert lines[4].startswith("True 123MB") and lines[5] == "[7, 7, 7, 7]", lines


def parameters(node):
    """Names of a function's parameters and which of them have a default."""
    a = node.args
    named = a.posonlyargs + a.args
    defaults = len(named) - len(a.defaults)
    return [(p.arg, i >= defaults) for i, p in enumerate(named)] + \
        [("*", a.vararg is not None)] + [(p.arg, d is not None) for p, d in
                                         zip(a.kwonlyargs, a.kw_defaults)] + \
        [("**", a.kwarg is not None)]


def declared(path):
    """{"Class.method": parameters} of what is public, the first of overloads left out."""
    found, classes = {}, {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(parameters(node))
        elif isinstance(node, ast.ClassDef):
            classes[node.name] = node
            bases = [classes[b.id].body for b in node.bases
                     if isinstance(b, ast.Name) and b.id in classes]
            own = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            taken = [one for body in bases for one in body if getattr(one, "name", None) not in own]
            for one in node.body + taken:
                if isinstance(one, ast.FunctionDef):
                    found.setdefault(node.name + "." + one.name, []).append(parameters(one))
    return found


def test_what_editors_are_told_is_so():
    """Each function of the stubs is there with those parameters, and each public one is told."""
    import sys
    sys.path.insert(0, str(PACKAGE))
    import probing
    told = set()
    for stub in sorted((PACKAGE / "probing").glob("*.pyi")):
        real = declared(stub.with_suffix(".py"))
        for name, forms in declared(stub).items():
            told.add(name)
            if name in ("span", "event", "step", "table") or name == "Table.append":
                continue  # made elsewhere; seen below
            (own,) = real[name]
            assert own in forms or len(forms) > 1, (stub.name, name, own, forms)
    public = {n for n in probing.__all__ if callable(getattr(probing, n))} - {"ProbingError"}
    assert public <= told and (PACKAGE / "probing" / "py.typed").exists()
    for name in public:
        assert getattr(probing, name).__doc__, name
