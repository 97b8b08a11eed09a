# SPDX-License-Identifier: Apache-2.0
"""The main job from beginning to end, a test a promise: enter, ask, follow, kill, ask again."""
import json
import os
import re
import signal
import subprocess
import time

import pytest

from world import CLI, CORE, DEBIAN_PYTHON, LIMIT, ROOT, TRAIN, has_torch, wait_for

BY_MODULE = ("select module, stage, avg(duration), count(*) from python.torch_trace "
             "where step > 3 group by module, stage order by 3 desc limit 10")


def steps_of(target):
    return [int(n) for n in re.findall(r"step\D+(\d+)", target.output())]


def loaded_torch(target):
    target.inject()
    done = target.probing("plugin", "load", "torch")
    assert done.returncode == 0, done.stderr
    return target


def test_query_by_module(world):
    target = loaded_torch(world.train())
    wait_for(lambda: (target.rows("select max(step) from python.torch_trace")[0][0] or 0) > 8,
             "eight steps")
    done = target.probing("query", BY_MODULE)
    assert done.returncode == 0, done.stderr
    assert "post forward" in done.stdout and "module" in done.stdout
    rows = target.rows(BY_MODULE)
    assert len(rows) == 10
    assert all(row[2] > 0 and row[3] > 0 for row in rows)
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)


def test_backtrace_of_a_training_process(world):
    target = world.train()
    target.inject()
    done = target.probing("backtrace")
    assert done.returncode == 0, done.stderr
    assert "tiny_transformer.py:" in done.stdout
    # At some moments it is in the interpreter alone.
    wait_for(lambda: re.search(r"lib\w+\.so", target.probing("backtrace").stdout),
             "a native frame of torch")


STUCK = {
    "spin": "while True: pass  # here",
    "lock": "import threading\n    lock = threading.Lock()\n    lock.acquire()\n"
            "    lock.acquire()  # here",
    "gil": "sum(range(10**12))  # here: one C call that holds the GIL for hours",
}


@pytest.mark.parametrize("case", sorted(STUCK))
def test_backtrace_of_a_stuck_process(world, case):
    source = "def stuck():\n    print('ready')\n    %s\nstuck()\n" % STUCK[case]
    line = 1 + source[:source.index("# here")].count("\n")
    target = world.python(source)
    target.wait_line("ready")
    target.inject()
    done = target.probing("backtrace")
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bstuck\b.*:%d\b" % line, done.stdout), done.stdout
    assert target.alive()


def test_eval(world):
    target = world.train()
    target.inject()
    done = target.probing("eval", "import torch; print(torch.__version__)")
    version = subprocess.run([DEBIAN_PYTHON, "-c", "import torch; print(torch.__version__)"],
                             capture_output=True, text=True).stdout
    assert (done.returncode, done.stdout) == (0, version)
    done = target.probing("eval", "def f():\n    raise ValueError('seventeen')\nf()")
    assert done.returncode == 1
    assert "Traceback" in done.stdout and "ValueError: seventeen" in done.stdout
    done = target.probing("eval", "raise SystemExit(3)")
    assert done.returncode != 0
    done = target.probing("eval", "--timeout", "0.5", "while True: pass")
    assert done.returncode == 1 and "interrupted" in done.stderr
    assert target.probing("eval", "6 * 7").stdout == "42\n"
    before = steps_of(target)[-1]
    wait_for(lambda: steps_of(target)[-1] > before, "the loop to go on")


def test_list_tables_describe_config_eject(world):
    target = loaded_torch(world.train())
    listed = world.probing("list")
    assert re.search(r"\b%d\b" % target.pid, listed.stdout)
    plugins = target.probing("plugin", "list")
    assert plugins.returncode == 0 and "torch" in plugins.stdout and "python" in plugins.stdout
    tables = target.probing("tables")
    assert tables.returncode == 0 and "torch_trace" in tables.stdout
    described = target.probing("describe", "python.torch_trace")
    assert described.returncode == 0 and "duration" in described.stdout
    config = target.probing("config")
    assert config.returncode == 0 and "probing.max_memory" in config.stdout
    assert target.probing("config", "set", "probing.max_memory", "512MB").returncode == 0
    got = target.probing("config", "get", "probing.max_memory")
    assert got.returncode == 0 and "512MB" in got.stdout
    wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 0, "rows")
    done = target.probing("eject")
    assert done.returncode == 0, done.stderr
    threads = "/proc/%d/task" % target.pid
    wait_for(lambda: not [t for t in os.listdir(threads)
                          if open("%s/%s/comm" % (threads, t)).read().startswith("probing/")],
             "our threads to end")
    again = target.probing("eval", "1")
    assert again.returncode != 0 and "inject" in again.stderr
    assert target.rows("select count(*) from python.torch_trace")[0][0] > 0  # its data stays
    before = steps_of(target)[-1]
    wait_for(lambda: steps_of(target)[-1] > before, "the loop to go on")
    target.inject()
    assert target.rows("select 1") == [[1]]


def test_data_of_one_that_is_just_dying(world):
    """Killed, but not reaped: at no moment is it said that there is nothing."""
    for _ in range(5):
        target = world.python("import time\nmuch = bytearray(b'x') * (300 << 20)\n"
                              "print('ready', flush=True)\ntime.sleep(600)")  # dies for a while
        target.wait_line("ready")
        target.inject()
        target.process.send_signal(signal.SIGKILL)
        done = target.probing("query", "select 1 as one")
        assert done.returncode == 0 and "one" in done.stdout, done.stderr


@pytest.mark.parametrize("killed", [False, True], ids=["living", "dead"])
def test_interrupted_query(world, killed):
    """Ctrl-C ends a query that would take hours, and the living go on answering."""
    target = world.python("import time\nprint('ready', flush=True)\ntime.sleep(600)")
    target.wait_line("ready")
    target.inject()
    name = str(target.pid)
    if killed:  # by its directory: /tmp may have one of another process that had this pid, which
        target.kill()  # a command that is given the pid says
        name, = [str(place) for place in world.data.glob("%d-*" % target.pid)]
    busy = subprocess.Popen(
        [str(CLI), "-t", name, "query",
         "select count(*) from generate_series(1, 100000) a"
         " join generate_series(1, 1000000) b on a.a < b.b"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=world.env)
    ticks = "/proc/%d/stat" % (busy.pid if killed else target.pid)

    def works():
        fields = open(ticks).read().rsplit(")", 1)[1].split()
        return int(fields[11]) >= 20  # utime, proc(5)

    wait_for(works, "the query to be under way")
    busy.send_signal(signal.SIGINT)
    assert busy.wait(LIMIT) == 130
    assert busy.communicate() == ("", "")
    assert target.rows("select 1") == [[1]]


def test_watch_shows_rows_as_they_arrive(world):
    target = loaded_torch(world.train())
    sql = "select step, module, duration from python.torch_trace where stage = 'post step'"
    watch = subprocess.Popen([str(CLI), "-t", str(target.pid), "watch", "--interval", "200ms",
                              "--format", "jsonl", sql],
                             stdout=subprocess.PIPE, text=True, env=world.env)
    try:
        seen = [json.loads(watch.stdout.readline()) for _ in range(5)]
    finally:
        watch.terminate()
    steps = [row.get("step", row.get("local_step")) for row in seen]
    assert steps == sorted(set(steps)) and all(row["duration"] > 0 for row in seen)
    assert watch.wait(LIMIT) in (0, 130)


@pytest.mark.parametrize("by", ["pid", "directory"])
def test_after_kill_every_row_is_there(world, by):
    target = loaded_torch(world.train())
    # Rows whose append returned before the kill: at least those a query has just seen.
    count = "select count(*) from python.torch_trace"
    seen = wait_for(lambda: [n for n in target.rows(count)[0] if n > 200], "200 rows")[0]
    target.kill()
    name = str(target.pid) if by == "pid" else str(next(world.data.iterdir()))
    done = world.probing("-t", name, "query", "--format", "json",
                         "select count(*), count(distinct seq), max(step) from python.torch_trace")
    assert done.returncode == 0, done.stderr
    count, distinct, last = json.loads(done.stdout)["rows"][0]
    assert count >= seen and last >= 1
    done = world.probing("-t", name, "query", BY_MODULE)
    assert done.returncode == 0 and "post forward" in done.stdout
    assert world.probing("-t", name, "tables").returncode == 0
    assert str(target.pid) in world.probing("list", "--dead").stdout


def test_started_by_pth_hook(world):
    package = ROOT / "plugins" / "python" / "package"
    # As `pip install` would leave it: a site directory with the .pth file and the package.
    script = world.tmp / "train_with_hook.py"
    script.write_text("import runpy, site\nsite.addsitedir(%r)\n"
                      "runpy.run_path(%r, run_name='__main__')\n" % (str(package), str(TRAIN)))
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    target = world.start(DEBIAN_PYTHON, "-u", str(script),
                         env={"PROBING": "1", "PROBING_LIBRARY": str(CORE)})
    target.wait_line(r"step\D+\d+")
    assert target.rows("select 1") == [[1]]
    assert target.probing("plugin", "load", "torch").returncode == 0
    wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 0, "rows")
    assert "tiny_transformer.py:" in target.probing("backtrace").stdout


def test_started_by_preload(world):
    target = world.train(env={"LD_PRELOAD": str(CORE)})
    assert target.rows("select 1") == [[1]]
    assert target.probing("plugin", "load", "torch").returncode == 0
    wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 0, "rows")
    assert "tiny_transformer.py:" in target.probing("backtrace").stdout
    plain = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE)})
    wait_for(lambda: plain.probing("query", "select 1").returncode == 0, "a core in sleep")


def test_script_follow(world):
    target = loaded_torch(world.train())
    script = subprocess.Popen([str(CLI), "-t", str(target.pid), "script", "run",
                               str(ROOT / "scripts" / "slow_step.lua"), "--follow"],
                              stdout=subprocess.PIPE, text=True, env=world.env)
    try:
        wait_for(lambda: "slow_step" in target.probing("script", "list").stdout, "the script")
        wait_for(lambda: target.rows("select count(*) from python.torch_step_timing")[0][0] > 20,
                 "steps to compare with")
        target.process.send_signal(signal.SIGSTOP)  # a step that takes half a second more
        end = time.monotonic() + 0.5
        wait_for(lambda: time.monotonic() > end, "half a second")
        target.process.send_signal(signal.SIGCONT)
        assert " ms=" in " " + script.stdout.readline()
        rows = wait_for(lambda: target.rows("select step, ms from script.slow_steps"), "slow steps")
        assert all(ms > 0 for _, ms in rows)
    finally:
        script.terminate()
    assert script.wait(LIMIT) in (0, 130)
    listed = target.probing("script", "list")
    assert listed.returncode == 0 and "slow_step" in listed.stdout
    assert target.probing("script", "stop", "slow_step").returncode == 0
    assert target.alive()


BY_HAND = """
import time, torch
class Busy(torch.nn.Module):
    def forward(self, x):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return x
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.busy = Busy()
        self.mix = torch.nn.Linear(512, 512)
    def forward(self, x):
        return self.mix(self.busy(x))
net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.0)
x = torch.ones(8, 512)
while True:
    net(x).sum().backward(); opt.step()
    time.sleep(0.01)
    spent, begin = 0.0, time.time()
    for _ in range(100):
        t = time.perf_counter()
        net.busy(x)
        spent += time.perf_counter() - t
    print('window %.6f %.6f spent %.9f' % (begin, time.time(), spent), flush=True)
    time.sleep(0.01)
"""


def test_agrees_with_a_timing_by_hand(world):
    """The same hundred calls, timed by the target itself from outside the calls, and by us."""
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    target = world.python(BY_HAND, python=DEBIAN_PYTHON)
    target.wait_line("window")
    loaded_torch(target)
    seen = target.output().count("window")
    wait_for(lambda: target.output().count("window") > seen + 1, "a window that is wholly ours")
    begin, end, spent = re.findall(r"window ([\d.]+) ([\d.]+) spent ([\d.]+)", target.output())[-1]
    calls, measured = target.rows(
        "select count(*), sum(duration) from python.torch_trace where module = 'busy' and stage = "
        "'post forward' and ts >= to_timestamp(%s) and ts <= to_timestamp(%s)" % (begin, end))[0]
    assert calls == 100
    assert 0.8 * float(spent) < measured < 1.01 * float(spent)
