# SPDX-License-Identifier: Apache-2.0
"""Files of the program's that are called as modules of the standard library."""
import re
import subprocess

from world import CLI, LIMIT

PROGRAM = """
import sys
folder = sys.path.pop(0)
import threading, time
KEPT = {"abc", "builtins", "codecs", "encodings", "genericpath", "io", "marshal", "os", "posix",
        "posixpath", "site", "stat", "sys", "threading", "time", "warnings", "zipimport"}
def names():
    import pkgutil
    for module in pkgutil.iter_modules([path for path in sys.path if "-packages" not in path]):
        if not module.name.startswith("_") and module.name not in KEPT:
            yield module.name
found = sorted(set(names()))
for name in list(sys.modules):
    if name.partition(".")[0] in found:
        del sys.modules[name]
for name in found:
    with open(folder + "/" + name + ".py", "w") as file:
        file.write("print('A FILE OF THE PROGRAM RAN: %s')\\n%s\\n" % (name, sys.argv[1]))
sys.path.insert(0, folder)

class T:
    def step(self, n):
        time.sleep(0.01)
        return n * 2

print("ready", len(found), flush=True)
t, n = T(), 0
while True:
    n = t.step(1)
"""


def asked(world, python, line):
    """A program beside which such files lie, which all end with that line; entered."""
    target = world.start(python, PROGRAM, arguments=[line])
    target.wait_line(r"ready \d\d\d")
    return target.inject()


def test_a_look_runs_no_file_of_the_program(world, python):
    """Each eval ran the program's ast.py, and failed; an exception ran traceback.py ..."""
    target = asked(world, python, "")
    for words, part in [(("eval", "6 * 7"), "42"), (("eval", "1 / 0"), "ZeroDivisionError"),
                        (("eval", "def f(:"), "SyntaxError"), (("complete", "t.st"), "t.step"),
                        (("trace", "T.step", "--args", "--limit", "1"), '"result": 2'),
                        (("backtrace", "--tasks"), "no task of asyncio"),
                        (("query", "select count(*) > 9 from python.objects"), "true"),
                        (("query", "select count(*) > 9 from python.modules"), "true")]:
        done = target.probing(*words)
        assert part in done.stdout and done.stdout.count("OF THE PROGRAM") == 0, (words, done)
    assert "OF THE PROGRAM" not in target.output()
    # the program's own imports are as they were, and so are a client's
    assert target.eval("import json").stdout == "A FILE OF THE PROGRAM RAN: json\n"


def test_files_that_fail_break_nothing(world, python):
    """"no memory to run the code", it said."""
    target = asked(world, python, "raise ImportError('theirs')")
    assert target.eval("6 * 7").stdout == "42\n"
    assert "ZeroDivisionError" in target.eval("1 / 0").stdout
    assert "ImportError: theirs" in target.eval("import json").stdout
    assert target.rows("select count(*) > 9 from python.objects") == [[True]]
    done = target.probing("trace", "T.step", "--args", "--limit", "1")
    assert '"result": 2' in done.stdout, done
    # asyncio is the program's own, or none
    done = target.eval("async def f(): return 5\nawait f()")
    assert re.search("SyntaxError|asyncio is .*asyncio.py", done.stdout), done


def test_several_load_the_same_at_once(world, python):
    """One saw another's module half loaded: "module 'ast' has no attribute 'child_nodes'"."""
    target = asked(world, python, "")
    both = [subprocess.Popen([str(CLI), "-t", str(target.pid), "eval",
                              "await None" if n % 2 else "1/0"],
                             stdout=subprocess.PIPE, text=True, env=world.env) for n in range(16)]
    for n, one in enumerate(both):
        text = one.communicate(timeout=LIMIT)[0]
        assert re.search("asyncio is|SyntaxError" if n % 2 else "ZeroDivisionError", text), text
        assert "has no attribute" not in text, text
