# SPDX-License-Identifier: Apache-2.0
"""`probing launch -- PROGRAM`: the program itself, with the core in it from the start."""
import json
import os
import shutil
import signal
import subprocess

import pytest

from pythons import FULL
from world import CLI, DEBIAN_PYTHON, LIMIT, TRAIN, has_torch, wait_for

SHOW = """
import os, signal, subprocess, sys, time
def show(where):
    print(where, os.getpid(), {k: v for k, v in os.environ.items()
                               if k.startswith(('LD_', 'PROBING_LAUNCH'))},
          [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)], flush=True)
show('program')
subprocess.run(['/bin/sh', '-c', 'echo child $$ $LD_PRELOAD $PROBING_LAUNCH'])
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print('sleeping', child.pid, flush=True)
time.sleep(600)
"""


def launch(world, *words, env=None):
    return world.start(str(CLI), "launch", *words, env=env)


def answers(world, pid):
    return world.probing("-t", str(pid), "eval", "1").returncode == 0


def has_core(pid):
    return "libprobing" in open("/proc/%d/maps" % pid).read()


@pytest.mark.parametrize("children", [False, True])
@pytest.mark.parametrize("before", ["", "libm.so.6"])
def test_environment_is_as_it_was(world, before, children):
    words = ["--children"] if children else []
    env = {"LD_PRELOAD": before} if before else {}
    target = launch(world, "-D", "probing.log_level=debug", *words, "--", DEBIAN_PYTHON, "-c", SHOW,
                    env=env)
    target.wait_line("sleeping")
    wait_for(lambda: answers(world, target.pid), "the core")
    pid = int(target.output().split("sleeping ")[1])
    said = target.output()
    assert target.probing("config", "get", "probing.log_level").stdout == "debug\n"
    if children:
        wait_for(lambda: answers(world, pid), "the child's core")
    else:
        expected = {"LD_PRELOAD": before} if before else {}
        assert said.startswith("program %d %r " % (target.pid, expected))
        assert not has_core(pid)
    assert "default_int_handler" in said and "Handlers.SIG_DFL" in said
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("words,code,said", [
    (["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], 7, "out\nerr\n"),
    (["sh", "-c", "kill -TERM $$"], -15, ""), (["true", "--", "-h"], 0, ""),
    (["/bin/sh", "-c", "trap 'exit 9' INT; kill -INT $$; sleep 60"], 9, ""),
    (["/bin/sh", "-c", "yes | head -1"], 0, "y\n")])
def test_it_is_the_program(world, words, code, said):
    """Same output, exit code and signals, SIGPIPE too."""
    target = launch(world, "--", *words)
    assert target.process.wait(LIMIT) == code
    assert target.output() == said


def test_it_has_the_signals_of_who_launched_it(world):
    """The command ignores some for itself: a program that did would not end by `ulimit -f`."""
    said = launch(world, "--", "grep", "SigIgn", "/proc/self/status")
    assert said.process.wait(LIMIT) == 0
    ignored = int(said.output().split()[1], 16)
    assert not any(ignored >> signo - 1 & 1 for signo in (signal.SIGXFSZ, signal.SIGPIPE))


def test_what_cannot_be_launched_is_said(world):
    for words, why in ((["--"], "needs a program"), (["/bin/true"], "must follow '--'"),
                       (["--", "/no/such"], "No such file"), (["--plugin", "/x.so", "--", "true"],
                                                             "by name")):
        done = world.probing("launch", *words)
        assert done.returncode in (1, 2) and why in done.stderr, done.stderr
    if shutil.which("cc"):
        source, program = world.tmp / "s.c", world.tmp / "static"
        source.write_text("int main(void) { return 0; }\n")
        if subprocess.run(["cc", "-static", str(source), "-o", str(program)],
                          capture_output=True).returncode == 0:
            done = world.probing("launch", "--", str(program))
            assert done.returncode == 1 and "statically linked" in done.stderr


@pytest.mark.parametrize("compiler,why", [
    ("musl-gcc", "runs on musl; probing needs glibc"),
    ("aarch64-linux-gnu-gcc", "is built for another machine")])
def test_programs_of_other_worlds_are_refused(world, compiler, why):
    """musl's loader would not begin a program with us; the shell would read the other one."""
    if not shutil.which(compiler) or os.uname().machine == "aarch64":
        pytest.skip("no %s here" % compiler)
    source, program = world.tmp / "s.c", world.tmp / "other"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run([compiler, str(source), "-o", str(program)], check=True)
    done = world.probing("launch", "--", str(program))
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "%s %s" % (program, why) in done.stderr


@pytest.mark.parametrize("flags", [["musl-gcc"], ["cc", "-static"]], ids=["musl", "static"])
def test_children_of_other_worlds_run(world, flags):
    """musl's loader began no child with a library of glibc's: exit code 127."""
    if not shutil.which(flags[0]):
        pytest.skip("no %s here" % flags[0])
    source, program = world.tmp / "s.c", world.tmp / "other"
    source.write_text("#include <stdio.h>\nint main(void) { return puts(\"it runs\") < 0; }\n")
    subprocess.run([*flags, str(source), "-o", str(program)], check=True)
    target = launch(world, "--children", "--", DEBIAN_PYTHON, "-c",
                    "import subprocess, time; r = subprocess.run([%r], stderr=2); "
                    "print('ended', r.returncode, flush=True); time.sleep(600)" % str(program))
    target.wait_line("ended")
    assert "it runs\nended 0\n" in target.output(), target.output()
    wait_for(lambda: answers(world, target.pid), "the core of a program of glibc's")


@pytest.mark.parametrize("how", ["environment", "setting"])
def test_a_place_that_is_of_no_use_is_said(world, how):
    """The core started nowhere, and nobody heard of it; the program runs on."""
    env = {"PROBING_DATA_DIR": "/proc/nowhere"} if how == "environment" else {}
    words = [] if env else ["-D", "probing.data_dir=/proc/nowhere"]
    target = launch(world, *words, "--", "/bin/sh", "-c", "echo out; exit 7", env=env)
    assert target.process.wait(LIMIT) == 7
    said = target.output().splitlines()
    assert said[-1] == "out" and len(said) == 2, said
    assert said[0].startswith("probing: the program runs without the core: PROBING_DATA_DIR: ")
    assert not list(world.data.iterdir())
    done = world.probing("launch", "--", "/bin/true")
    assert (done.returncode, done.stderr) == (0, "")


def test_torch_waits_for_its_import(world):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    go = world.tmp / "go"
    script = world.tmp / "late.py"
    script.write_text("import os, runpy, sys, time\n"
                      "while not os.path.exists(%r): time.sleep(0.01)\n"
                      "sys.argv = [%r]\nrunpy.run_path(%r, run_name='__main__')\n"
                      % (str(go), str(TRAIN), str(TRAIN)))
    target = launch(world, "--plugin", "torch", "--", DEBIAN_PYTHON, "-u", str(script))
    state = "select state, reason from probing.plugins where name = 'torch'"
    wait_for(lambda: answers(world, target.pid) and target.rows(state), "the plugin")
    seen = wait_for(lambda: [row for row in target.rows(state) if row[0] != "loading"], "its state")
    assert seen[0][0] == "waiting" and "import torch" in seen[0][1]
    go.write_text("go")
    wait_for(lambda: target.rows(state)[0][0] == "running", "torch to be imported")
    wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 0, "rows")
    assert target.probing("eject").returncode == 0
    assert target.alive()


LOOP = "import os, time\nprint('python', os.getpid(), sorted(k for k in os.environ if k in " \
    "('LD_PRELOAD', 'PROBING_LAUNCH')), flush=True)\nwhile True: time.sleep(0.01)\n"
SHIM = "#!/usr/bin/env bash\nset -e\nread -r line < /dev/null || true\nexec %s \"$@\"\n"
RUN = """
import subprocess, sys
workers = [subprocess.Popen([sys.executable, '-u'] + sys.argv[1:]) for i in range(2)]
for worker in workers:
    worker.wait()
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_torch_waits_for_a_thread_that_keeps_the_gil(world):
    """As torch 1.13 does in init_process_group(), until the other ranks are there."""
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    script = world.tmp / "keeps.py"
    # Longer than the plugin waits; in a full run longer than the core waits for a plugin.
    script.write_text("import ctypes, time\nctypes.PyDLL(None).sleep(%d)\nimport torch\n"
                      "while True:\n    time.sleep(0.05)\n" % (12 if FULL else 6))
    target = launch(world, "--plugin", "torch", "--", DEBIAN_PYTHON, "-u", str(script))
    state = "select state from probing.plugins where name = 'torch'"
    wait_for(lambda: answers(world, target.pid) and target.rows(state) == [["running"]],
             "torch to be imported")


@pytest.mark.parametrize("chain", ["shim", "shims", "env", "forked", "torchrun"])
def test_it_reaches_the_python_at_the_end_of_a_chain(world, chain):
    """A pyenv shim is a script that execs another, that execs Python; others fork it."""
    if not shutil.which("bash"):
        pytest.skip("no bash")
    loop = world.tmp / "loop.py"
    loop.write_text(LOOP)
    shim = executable(world.tmp / "shim", SHIM % DEBIAN_PYTHON)
    words = {
        "shim": [shim, str(loop)],
        "shims": [executable(world.tmp / "outer", SHIM % shim), str(loop)],
        "env": ["env", "A=1", "nice", "-n", "1", shim, str(loop)],
        "forked": ["/bin/sh", "-c", "ls / > /dev/null; {0} -I -B -c 'import sys'; {0} --version;"
                   "{0} {1}; true".format(DEBIAN_PYTHON, loop)],
        "torchrun": [DEBIAN_PYTHON, "-u", executable(world.tmp / "torchrun", RUN), str(loop)],
    }[chain]
    target = launch(world, "--", *words)
    n = 2 if chain == "torchrun" else 1
    wait_for(lambda: target.output().count("python ") == n and target.output().endswith("\n"),
             "the program")
    said = [line.split(maxsplit=2) for line in target.output().splitlines() if "python" in line]
    pids = [int(line[1]) for line in said]
    try:
        for line, pid in zip(said, pids):
            assert line[2] == "[]"
            wait_for(lambda: answers(world, pid), "the core")
        assert len(os.listdir(str(world.data))) == n, "nothing else has a core"
        if target.pid in pids:
            assert chain in ("shim", "shims", "env")
        else:
            done = target.probing("eval", "1")
            assert done.returncode == 1
            assert "the core is in: " in done.stderr, done.stderr
            assert sorted(map(int, done.stderr.split("in:")[1].split())) == sorted(pids)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


def test_a_shell_that_has_begun_nothing_says_so(world):
    os.mkfifo(str(world.tmp / "never"))
    target = launch(world, "--", "/bin/sh", "-c",
                    "echo here; read line < %s; true" % (world.tmp / "never"))
    target.wait_line("here")
    done = target.probing("eval", "1")
    assert done.returncode == 1 and "not started a Python yet" in done.stderr, done.stderr


def test_a_program_that_is_no_python_is_entered_behind_a_wrapper(world):
    target = launch(world, "--", "env", "A=1", "sleep", "600")
    wait_for(lambda: target.probing("info").returncode == 0, "the core")
    assert len(os.listdir(str(world.data))) == 1


@pytest.mark.parametrize("words", [["python"], ["python", "python"],
                                   ["profile", "python", "profile"]])
def test_a_plugin_named_twice_is_there_once(world, words):
    """launch loads python by itself: `--plugin python` was a second time, and it failed."""
    options = [word for name in words for word in ("--plugin", name)]
    target = launch(world, *options, "--", DEBIAN_PYTHON, "-c", "import time; time.sleep(600)")
    wait_for(lambda: answers(world, target.pid), "the core")
    rows = target.rows("select name, state from probing.plugins order by 1")
    assert rows == [[name, "running"] for name in sorted(set(words + ["python"]))]


def test_a_plugin_asked_for_in_many_ways_is_there_once(world):
    """By launch, by a setting, by inject and by plugin load: the same one, and it is said."""
    target = launch(world, "-D", "probing.plugins=python,python, profile,python", "--",
                    DEBIAN_PYTHON, "-c", "import time; time.sleep(600)")
    wait_for(lambda: answers(world, target.pid), "the core")
    done = target.probing("inject", "--plugin", "python", "-P")
    assert done.returncode == 0, done.stderr
    assert "plugin python is loaded already" in done.stdout
    assert "plugin profile is loaded already" in done.stdout
    done = target.probing("plugin", "load", "python")
    assert done.returncode == 0 and done.stdout == "plugin python is loaded already\n"
    assert target.rows("select name, state from probing.plugins order by 1") == [
        ["profile", "running"], ["python", "running"]]
    assert target.rows("select count(*) from probing.log where text like '%requested twice%'") \
        == [[2]]


@pytest.mark.skipif(not has_torch(DEBIAN_PYTHON), reason="no torch")
def test_torch_in_a_python_that_begins_late(world):
    """The core was there before the interpreter: the plugin failed for good.  A pyvenv.cfg that is
    a pipe keeps Python from beginning until we say so."""
    python, config = world.tmp / "bin" / "python3", world.tmp / "pyvenv.cfg"
    python.parent.mkdir()
    python.symlink_to(DEBIAN_PYTHON)
    os.mkfifo(config)
    target = launch(world, "--plugin", "torch", "--", str(python), "-c",
                    "import sys, time\n"
                    "sys.path.append('/usr/lib/python3/dist-packages')\n"
                    "import torch\n"
                    "time.sleep(600)")
    states = "select state, reason from probing.plugins where name = 'torch'"

    def state():
        done = target.probing("query", states, "--format", "json")
        return json.loads(done.stdout)["rows"][0] if done.returncode == 0 else [None, ""]
    wait_for(lambda: "no Python interpreter runs" in (state()[1] or ""), "the plugin's first try")
    config.write_text("home = /usr/bin\n")
    wait_for(lambda: state()[0] == "running", "the plugin")
