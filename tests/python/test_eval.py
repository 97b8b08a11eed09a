# SPDX-License-Identifier: Apache-2.0
"""eval: output, values, names, exceptions, limits, and that the process stays as it was."""
import os
import re
import subprocess
import threading
import time

import pytest
from pythons import PYTHONS, is_threaded
from world import CLI, wait_for

pytestmark = pytest.mark.some_pythons

LOOP = """
import sys, threading, time
secret = 41
class Thing: pass
count = 0
print("ready", flush=True)
while True:
    count += 1
    if count % 20 == 0:
        print("tick", count, flush=True)
    time.sleep(0.005)
"""


def test_values_and_output(world, python):
    target = world.start(python, LOOP).inject()
    for code, text in [("secret + 1", "42\n"), ("None", ""), ("x = 5; None", ""), ("x * 2", "10\n"),
                       ("print('a'); print('b', end=''); 'c'", "ab'c'\n".replace("ab", "a\nb")),
                       ("import sys\nsys.stderr.write('to stderr\\n'); None", "to stderr\n"),
                       ("def f(n):\n    return n + x\n\nf(1)", "6\n"), ("f(2)", "7\n"),
                       ("[n for n in range(3) if n < x]", "[0, 1, 2]\n"),
                       ("'größer 🙂'", "'größer 🙂'\n"), ("Thing.__name__", "'Thing'\n"),
                       ("-1", "-1\n"), ("# nothing", "")]:
        done = target.eval(code)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, ""), code
    # the user's module has none of it, and sees nothing of the output
    done = target.eval("import __main__; hasattr(__main__, 'x'), hasattr(__main__, 'f')")
    assert done.stdout == "(False, False)\n"
    # gc needs no import, as long as the program calls nothing else so
    for code, text in [("any(type(o) is type for o in gc.get_objects())", "True\n"),
                       ("import __main__; hasattr(__main__, 'gc')", "False\n"),
                       ("__main__.gc = 7", ""), ("gc", "7\n"), ("del __main__.gc", ""),
                       ("gc.__name__", "'gc'\n")]:
        done = target.eval(code)
        assert (done.returncode, done.stdout) == (0, text), (code, done.stderr)
    assert target.eval("secret = 7; secret").stdout == "7\n"
    assert target.eval("import __main__; __main__.secret").stdout == "41\n"
    assert target.eval("import sys; sys.stdout.__class__.__name__; type(sys.__stdout__) is "
                       "type(sys.stdout)").stdout == "False\n"
    assert "to stderr" not in target.output()
    wait_for(lambda: target.output().count("tick") > 3, "the loop's own prints")
    assert target.eval("count > 0").stdout == "True\n", "__main__ of now, not of the first eval"


def test_a_thread_does_not_outlive_its_python_state(world, python):
    """What is imported may keep the state under which it was, by thread (pybind11: an eval imported
    torch, and the backward() of a later one crashed the program)."""
    target = world.start(python, LOOP).inject()
    tid = int(target.eval("import threading; threading.get_native_id()").stdout)
    wait_for(lambda: not os.path.exists("/proc/%d/task/%d" % (target.pid, tid)), "its end")
    assert target.eval("6 * 7").stdout == "42\n" and target.alive()


def test_exceptions(world, python):
    target = world.start(python, LOOP).inject()
    done = target.eval("def f():\n    raise ValueError('seventeen')\nf()")
    text = done.stdout + done.stderr
    assert done.returncode == 1
    assert text.startswith("Traceback (most recent call last):\n  File \"<eval>\", line 3")
    assert "raise ValueError('seventeen')" in text and text.strip().endswith(
        "ValueError: seventeen")
    assert "probing>" not in text
    for code, part in [("raise SystemExit(3)", "SystemExit: 3"), ("x ===", "SyntaxError"),
                       ("import sys; sys.exit()", "SystemExit"), ("1/0", "ZeroDivisionError"),
                       ("raise KeyboardInterrupt", "KeyboardInterrupt"),
                       ("class R:\n  def __repr__(s): raise OSError('bad')\nR()", "OSError: bad")]:
        done = target.eval(code)
        assert done.returncode == 1 and part in done.stdout + done.stderr, code
    assert target.eval("1").returncode == 0
    assert target.alive()


def test_other_threads_print_where_they_did(world, python):
    target = world.start(python, LOOP).inject()
    done = target.eval("import time\nfor i in range(4):\n    print('mine', i)\n    time.sleep(.2)")
    assert done.stdout == "".join("mine %d\n" % i for i in range(4))
    assert "mine" not in target.output()
    done = target.eval("import sys; sys.stdout is sys.__stdout__")
    assert done.stdout == "False\n", "while an eval runs it is replaced"
    wait_for(lambda: target.output().count("tick") > 5, "prints of the main thread")


def test_output_streams_and_is_not_bounded(world):
    python = list(PYTHONS.values())[0]
    target = world.start(python, LOOP).inject()
    done = target.eval("for i in range(60000): print('x' * 50)")
    assert done.stdout == ("x" * 50 + "\n") * 60000


def test_times_have_units(world, python):
    """The help's own example, --timeout 30s, was refused: seconds without a unit only."""
    target = world.start(python, LOOP).inject()
    for good in ("30s", "62.5", "0.5m", "1h", "60000ms"):
        assert target.eval("40 + 2", "--timeout", good).stdout == "42\n", good
    for bad in ("s", "5x", "25h", "-1", "1.s.", "99999999999999999999"):
        assert "needs a time" in target.eval("1", "--timeout", bad).stderr, bad
    late = target.eval("while True: pass", "--timeout", "300ms")
    assert late.returncode == 1 and "--timeout" in late.stderr


def test_a_file(world, python):
    target = world.start(python, LOOP).inject()
    path = world.tmp / "look.py"
    path.write_text("""# größer
import sys, time
found = [a.upper() for a in argv[1:]]
if __name__ == "__main__":
    print(__file__, found, secret, len(sys.argv))
"not shown"
def inner():
    raise ValueError("seventeen")  # here
if "fail" in argv: inner()
""", encoding="utf-8")
    done = target.eval(str(path), "-f")
    assert (done.returncode, done.stdout) == (0, "%s [] 41 1\n" % path), done.stderr
    done = target.probing("eval", "--timeout", "20s", "--file", str(path), "--x y", "fail")
    assert done.returncode == 1 and "['--X Y', 'FAIL'] 41" in done.stdout
    assert 'File "%s", line 9' % path in done.stdout and 'line 8, in inner' in done.stdout
    assert 'raise ValueError("seventeen")  # here' in done.stdout
    assert target.eval("found, 'argv' in globals()").stdout == "(['--X Y', 'FAIL'], False)\n"
    path.write_text("import time\nprint('first', flush=True)\ntime.sleep(0.1)\nwhile True: pass\n")
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "eval", "-f", str(path)],
                              stdout=subprocess.PIPE, env=world.env)
    assert client.stdout.readline() == b"first\n", "output streams while it runs"
    client.kill()
    client.wait()
    done = target.eval(str(path), "--timeout", "0.5", "-f")
    assert done.returncode == 1 and "--timeout" in done.stderr
    assert done.stdout in ("first\n", ""), done  # where the machine has no time for even that
    for words, part in [(["-f"], "needs a file"), (["-f", "/no/such"], "No such file"),
                        (["-f", "/dev/zero"], "larger than")]:
        done = target.probing("eval", *words)
        assert done.returncode != 0 and part in done.stderr, done.stderr
    done = subprocess.run([str(CLI), "-t", str(target.pid), "eval", "-f", "-", "one"],
                          input=b"print(argv)", stdout=subprocess.PIPE, env=world.env, timeout=60)
    assert done.stdout == b"['<stdin>', 'one']\n"


@pytest.mark.parametrize("how", ["gil", "spin"])
def test_gil_is_stuck(world, python, how):
    if is_threaded(python):
        pytest.skip("a free-threaded build has no GIL")
    code = {"gil": "ctypes.PyDLL(None).sleep(600)", "spin": "while True: pass"}[how]
    target = world.start(python, "import ctypes\ndef hog():\n    print('ready', flush=True)\n"
                         "    %s  # here\nhog()\n" % code).inject()
    began = time.monotonic()
    done = target.eval("open('%s', 'w')" % (target.world.tmp / "never"),
                       "--timeout", "0.5" if how == "gil" else "60")
    if how == "spin":  # Python code gives the GIL away when asked
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode != 0 and time.monotonic() - began < 60
    assert "GIL is held by thread %d" % target.pid in done.stderr, done.stderr
    assert "hog" in done.stderr and "hog" in done.stdout, done.stdout
    # many of them block nobody
    for _ in range(4):
        assert target.eval("1", "--timeout", "0.1").returncode != 0
    assert target.probing("backtrace").returncode == 0
    assert not (target.world.tmp / "never").exists()


HARD = {  # what hears of no interrupt, for long
    "sleeps": "import time; time.sleep(600)",
    "catches": "def spin():\n  while True: pass\nwhile True:\n  try: spin()\n"
               "  except BaseException: pass",
}


@pytest.mark.parametrize("how", sorted(HARD))
def test_nobody_waits_for_code_that_does_not_end(world, python, how):
    target = world.start(python, LOOP).inject()
    done = target.eval(HARD[how], "--timeout", "2")  # in which it begins on a busy machine, too
    assert done.returncode != 0 and "did not react" in done.stderr, done.stderr
    (tid,) = re.findall(r"in thread (\d+)", done.stderr)
    assert "<eval>" in target.probing("backtrace", "--all", "--thread", tid).stdout
    assert target.eval("1 + 1", "--timeout", "60").stdout == "2\n"
    assert target.probing("eject").returncode == 0
    wait_for(lambda: target.output().count("tick") > 3, "the main thread's own prints")
    target.inject()
    assert target.eval("40 + 2", "--timeout", "60").stdout == "42\n"
    assert target.probing("eject").returncode == 0 and target.alive()


def test_code_left_behind_ends_by_itself(world, python):
    """After we have left: what it prints is nobody's, and sys.stdout is the program's again."""
    target = world.start(python, LOOP.replace("    count += 1", """
    if count == 0: real = sys.stdout
    count += 1
    if sys.stdout is not real and count % 20 == 0: print("stands in", flush=True)""")).inject()
    pipe = world.tmp / "pipe"
    os.mkfifo(pipe)
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "eval",
                               "import os\ntry: print('begun', flush=True); os.open(%r, 0)\n"
                               "finally: print('lost')" % str(pipe)],
                              stdout=subprocess.PIPE, env=world.env)
    assert client.stdout.readline() == b"begun\n"
    client.kill()
    client.wait()
    assert target.probing("eject").returncode == 0
    wait_for(lambda: "stands in" in target.output(), "that it is left behind")
    pipe.write_bytes(b"")
    wait_for(lambda: re.search(r"stands in\ntick \d+\ntick", target.output()), "its end")
    assert "lost" not in target.output() and target.alive()


def test_evals_beside_each_other(world, python):
    target = world.start(python, LOOP).inject()
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "eval",
                               "import time\nmine = 1\nwhile True:\n"
                               "    print('a', flush=True)\n    time.sleep(0.02)"],
                              stdout=subprocess.PIPE, env=world.env)
    assert client.stdout.readline() == b"a\n"
    for _ in range(5):
        assert target.eval("mine + secret", "--timeout", "60").stdout == "42\n"
    done = target.probing("query", "select count(*) > 5 as c from python.objects")
    assert "true" in done.stdout, done.stderr
    assert all(client.stdout.readline() == b"a\n" for _ in range(5))
    client.kill()
    client.wait()
    assert target.eval("mine", "--timeout", "60").stdout == "1\n"


def test_await(world, python):
    target = world.start(python, LOOP).inject()
    code = "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.01)\n    return n\n"
    for more, text in [("await f(7)", "7\n"), ("x = await f(8)\nx + 1", "9\n"),
                       ("x = await f(8)", ""), ("[await f(n) for n in range(3)]", "[0, 1, 2]\n"),
                       ("async with asyncio.Lock() as l:\n    print(l)", "None\n")]:
        done = target.eval(code + more)
        assert (done.returncode, done.stdout) == (0, text), (more, done.stdout)
    done = target.eval("await f('no')\nawait 5")
    assert done.returncode == 1 and "TypeError: " in done.stdout
    assert "asyncio" not in done.stdout, "the client's own frames only"
    done = target.eval("await asyncio.sleep(600)", "--timeout", "0.5")
    assert done.returncode == 1 and "--timeout" in done.stderr
    wait_for(lambda: "<eval>" not in target.probing("backtrace", "--all").stdout, "its end")
    assert target.eval("def g(): return await f(1)").returncode == 1


def test_the_programs_input_is_its_own(world, python):
    target = world.start(python, """
import os, sys, time
r, w = os.pipe()
os.write(w, b"first\\nsecond\\n")
os.dup2(r, 0)
sys.stdin = open(0)
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
print("it read", sys.stdin.readline(), flush=True)
time.sleep(600)
""", arguments=[str(world.tmp / "go")]).inject()
    done = target.eval("input('name? ')")
    assert done.returncode == 1 and "EOFError" in done.stdout and "name? " in done.stdout
    assert target.eval("import sys; sys.stdin.read(), list(sys.stdin)").stdout == "('', [])\n"
    for code in ("quit()", "exit()", "sys.stdin.close()", "sys.stdout.close()"):
        target.eval(code)
    done = target.eval("help(len)")
    assert done.returncode == 0 and "built-in function len" in done.stdout
    (world.tmp / "go").write_text("")
    target.wait_line("^it read first")


def test_bytes_are_the_clients(world, python):
    target = world.start(python, LOOP).inject()
    done = subprocess.run([str(CLI), "-t", str(target.pid), "eval", "import sys\n"
                           "out = sys.stdout.buffer; out.write(b'gr\\xc3\\xb6\\0x'); out.flush()"],
                          stdout=subprocess.PIPE, env=world.env, timeout=60)
    assert done.stdout == "gr\xf6\0x".encode()


def test_nothing_of_the_programs_is_kept(world, python):
    """A value that it lets go is freed, whatever was asked about it."""
    target = world.start(python, """
import sys, time, weakref
class Big: pass
big = Big()
gone = weakref.ref(big)
def use(): return 1
print("ready", flush=True)
while True: time.sleep(0.005)
""").inject()
    assert target.eval("big, [b for b in [big]]").returncode == 0
    assert target.eval("def f(): return use() + 1\nf()").stdout == "2\n"
    assert target.eval("import __main__; __main__.big = None").returncode == 0
    wait_for(lambda: target.eval("import gc; gc.collect(); gone() is None").stdout == "True\n",
             "it to go")
    assert target.eval("f()").stdout == "2\n"
    code = "import __main__\n__main__.later = f\n__main__.seen = sorted(globals())"
    assert target.eval(code).returncode == 0
    assert target.eval("import __main__; 'big' in __main__.seen and later()").stdout == "2\n"


def test_a_program_without_threading(world, python):
    """The first importing thread is its main thread, and to 3.12 waits for itself at the end."""
    target = world.start(python, """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
print("threading" in sys.modules and sys.modules["threading"].main_thread().native_id in
      (os.getpid(), None), flush=True)
""", arguments=[str(world.tmp / "go")]).inject()
    done = target.eval("import threading, logging\nthreading.main_thread() is "
                       "threading.current_thread()")
    assert done.stdout == "False\n"
    assert target.eval("len(threading.enumerate())").stdout in ("1\n", "2\n")
    (world.tmp / "go").write_text("")
    assert target.process.wait(60) == 0
    assert target.output() == "ready\nTrue\n", target.output()


def test_late_gil_does_not_run_a_cancelled_eval(world):
    python = list(PYTHONS.values())[0]
    pipe = world.tmp / "pipe"
    os.mkfifo(pipe)  # to open it is to wait for who opens its other end
    target = world.start(python, "import ctypes, time\nprint('ready', flush=True)\n"
                         "ctypes.PyDLL(None).open(%r, 0)\nprint('free', flush=True)\n"
                         "time.sleep(600)" % bytes(pipe)).inject()
    done = target.eval("print(1, file=open('%s', 'w'))" % (world.tmp / "never"), "--timeout", "0.2")
    assert done.returncode != 0
    pipe.write_bytes(b"")
    target.wait_line("^free")
    assert target.eval("1").stdout == "1\n"
    assert not (world.tmp / "never").exists()


def test_bad_arguments(world):
    python = list(PYTHONS.values())[0]
    target = world.start(python, LOOP).inject()
    for words in [["--timeout"], ["--timeout", "x", "1"], ["--timeout", "1e9", "1"], ["1", "2"]]:
        done = target.probing("eval", *words)
        assert done.returncode != 0 and done.stderr.strip(), words
    assert target.alive()


def test_concurrent_evals(world):
    python = list(PYTHONS.values())[0]
    target = world.start(python, LOOP).inject()
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update(
        {i: target.eval("import time; time.sleep(0.05); %d" % i).stdout})) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {i: "%d\n" % i for i in range(6)}


def test_client_that_leaves(world, python):
    """Its code is interrupted, and the next client is served."""
    target = world.start(python, LOOP).inject()
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "eval",
                               "print('begun', flush=True)\nwhile True: pass"],
                              stdout=subprocess.PIPE, env=world.env)
    assert client.stdout.readline() == b"begun\n", "output streams while the code runs"
    client.kill()
    client.wait()
    done = target.eval("40 + 2", "--timeout", "60")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert target.eval("import sys; sys.stdout is sys.__stdout__").returncode == 0
    wait_for(lambda: target.output().count("tick") > 3, "the main thread's own prints")


def test_threads_that_print_meanwhile(world, python):
    """print() does not hold the sys.stdout that it writes to: what stood for it went too soon."""
    target = world.start(python, """
import sys, threading, time
sys.setswitchinterval(1e-6)
print("ready", flush=True)
def prints():
    while True:
        print("a", "b", "c", end="\\r")
sys.stdout.flush()
sys.stdout = open("/dev/null", "w")
for _ in range(3): threading.Thread(target=prints, daemon=True).start()
while True: time.sleep(1)
""").inject()
    for i in range(60):
        done = target.eval("print(%d)" % i, "--timeout", "60")
        assert (done.returncode, done.stdout) == (0, "%d\n" % i), (i, done.stderr)
    assert target.alive()


def test_forks_while_evals_run(world, python):
    target = world.start(python, """
import os, sys, time
print("ready", flush=True)
bad = n = 0
while True:
    pid = os.fork()
    if pid == 0:
        x = [i for i in range(1000)]
        os._exit(0) if n & 1 else sys.exit(0)
    bad += os.waitpid(pid, 0)[1] != 0
    n += 1
    if bad:
        print("bad child", flush=True)
    time.sleep(0.001)
""").inject()
    wait_for(lambda: int(target.eval("n").stdout or 0) > 60, "60 children")
    assert target.eval("bad").stdout == "0\n"
    assert target.probing("backtrace").returncode == 0


EXITS = {
    "end": ("pass", 0, ""),
    "sys.exit": ("sys.exit(5)", 5, ""),
    "os._exit": ("os._exit(6)", 6, ""),
    "exception": ("raise RuntimeError('over')", 1, "RuntimeError: over"),
    "thread": ("threading.Thread(target=time.sleep, args=(0.2,)).start()", 0, ""),
}


@pytest.mark.parametrize("how", sorted(EXITS))
def test_exit_is_as_it_was(world, python, how):
    code, status, text = EXITS[how]
    target = world.start(python, """
import atexit, os, sys, threading, time
print("ready", flush=True)
sys.argv.append("")
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
at = time.time()
atexit.register(lambda: print("bye", flush=True))
%s
""" % code, arguments=[str(world.tmp / "go")])
    target.inject()
    assert target.eval("1 + 1").stdout == "2\n"
    began = time.monotonic()
    (world.tmp / "go").write_text("")
    assert target.process.wait(60) == status
    took = time.monotonic() - began
    assert text in target.output() and "Fatal" not in target.output(), target.output()
    assert took < 30, "an exit of %.2f s" % took


def test_exit_while_an_eval_runs(world, python):
    target = world.start(python, """
import os, sys, time
print("ready", flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(0.005)
""", arguments=[str(world.tmp / "go")])
    target.inject()
    answer = {}
    thread = threading.Thread(target=lambda: answer.update(
        done=target.eval("print('begun')\nwhile True: pass")))
    thread.start()
    (world.tmp / "go").write_text("")
    assert target.process.wait(60) == 0
    thread.join(60)
    assert not thread.is_alive(), "the client hangs"
    assert "Fatal" not in target.output() and "rror" not in target.output(), target.output()


def test_what_it_starts_is_the_programs(world, python):
    """Threads and processes had our thread's name and its blocked signals: eject waited for one,
    backtrace hid it, and nobody could end the other."""
    target = world.start(python, LOOP).inject()
    signals = "[l for l in open('/proc/%s/status' % what) if l.startswith('SigBlk')][0]"
    blocked = target.eval("what = 'self/task/%d'; %s" % (target.pid, signals)).stdout
    done = target.eval("import subprocess, threading, time\n"
                       "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
                       "child = subprocess.Popen(['sleep', '600'])\n"
                       "what = child.pid; %s" % signals)
    assert done.stdout == blocked and "SigBlk" in blocked, done.stdout + done.stderr
    assert target.probing("backtrace").stdout.count("Thread ") == 2
    done = target.eval("import os\nr, w = os.pipe()\npid = os.fork()\nif pid == 0:\n"
                       "    os.write(w, open('/proc/self/comm', 'rb').read())\n"
                       "    time.sleep(600)\n    os._exit(0)\nos.read(r, 99).decode()")
    assert done.stdout.endswith(target.eval("open('/proc/%d/comm').read()" % target.pid).stdout)
    assert target.eval("child.terminate(); os.kill(pid, 9); child.wait()").stdout == "-15\n"
    assert target.probing("eject").returncode == 0
    assert len(os.listdir("/proc/%d/task" % target.pid)) == 2  # it sleeps on: nobody waited for it
    comms = target.world.tmp.joinpath("/proc/%d/task" % target.pid).glob("*/comm")
    assert not [c for c in comms if c.read_text().startswith("probing/")]


def test_while_the_core_comes_and_leaves(world, python):
    """One in six that came before the plugin heard 'unknown command'."""
    target = world.start(python, LOOP)
    words, over = set(), threading.Event()

    def ask():
        while not over.is_set():
            done = target.eval("print(secret)")
            words.add((done.stdout + done.stderr).replace(str(target.pid), "PID"))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(6):
        target.inject()
        wait_for(lambda: "41\n" in words, "an answer")
        words.discard("41\n")
        assert target.probing("eject").returncode == 0
    over.set()
    for thread in threads:
        thread.join(60)
    wrong = [w for w in words if "unknown" in w or "not run" in w or "on its way" in w]
    assert not wrong, wrong


def test_an_assignment_says_whose_variable_it_is(world, python):
    target = world.start(python, LOOP).inject()
    for code, names in (("secret = 2", "secret"), ("own = 43", "own"),
                        ("secret += 1; own = 2", "secret"), ("a, secret = 1, 2", "secret")):
        said = target.eval(code).stdout
        assert said.startswith("probing: %s: set in eval's own variables" % names), said
        assert said.count("\n") == 1
        assert target.eval("import __main__; __main__.secret").stdout == "41\n"
    change = said[said.index("import __main__"):].replace("...", "3")
    assert target.eval(change).stdout == "" and target.eval("__main__.secret").stdout == "3\n"
    for code in ("a = 1; b = 2", "secret = 3; secret", "def f(x=1): secret = x", "f(x=2)"):
        assert "eval's own" not in target.eval(code).stdout, code
