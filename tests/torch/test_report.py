# SPDX-License-Identifier: Apache-2.0
"""`torch` and `flamegraph torch`: what they add up is whole, and a loop that stands is told."""
import itertools
import json
import re

import pytest
import world as shared
from cases import Case, backward_on
from pythons import FULL

pytestmark = pytest.mark.one_torch


def total_of(folded):
    return sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines())


def test_own_times_of_modules_that_are_used_again(world, python):
    case = Case(world, "reuse.py", python)
    seen = case.run()
    done = case.target.probing("flamegraph", "torch", "--format", "folded")
    assert done.returncode == 0, done.stderr
    steps = case.target.rows("select sum(step_duration_sec), count(*) from "
                             "python.torch_step_timing where sampled = 1")
    assert total_of(done.stdout) / 1e9 == pytest.approx(steps[0][0], rel=1e-6)
    assert "forward;Net;again;again;again;again;again.part " in done.stdout
    done = case.target.probing("torch", "--json")
    assert done.returncode == 0, done.stderr
    screen = json.loads(done.stdout)
    slowest = screen["modules"][0]
    assert (slowest["root"], slowest["module"], slowest["calls"]) == ("Net", "again", seen["calls"])
    own = sum(module["forward_sec"] for module in screen["modules"])
    rows = case.target.rows("select sum(duration) / count(distinct local_step) from "
                            "python.torch_trace where stage = 'post forward' and module = 'Net' "
                            "and local_step in (select steps from python.torch_step_timing)")
    assert own == pytest.approx(rows[0][0], rel=1e-4)
    assert screen["steps"]["count"] == steps[0][1] and screen["waiting"] == []
    shown = case.target.probing("torch").stdout
    assert re.search(r"^  again  +4\.0 ", shown, re.M), shown
    assert "one step in a hundred" not in shown  # there were not so many
    for wrong in ("--last=x", "--json=1", "--watch profile", "--steps 3"):
        assert case.target.probing("torch", *wrong.split()).returncode == 2, wrong


def test_a_module_that_a_checkpoint_calls_again_is_one_module(world, python):
    """In the backward no call of the model is around it: it was shown as a model of its own."""
    case = Case(world, "checkpointed.py", python)
    case.run()
    modules = json.loads(case.target.probing("torch", "--json").stdout)["modules"]
    linear = [m for m in modules if m["module"] == "blocks.1.0"]
    assert [(m["root"], m["calls"]) for m in linear] == [("Net", 1)], modules
    shown = case.target.probing("torch").stdout
    assert re.search(r"^  (Agent: )?actor\.0 ", shown, re.M), shown  # not "actor: actor.0"
    assert re.search(r"^  Net: blocks\.1\.0 +1\.0 ", shown, re.M), shown


def test_top_tells_own_and_total_time_of_modules(world, python):
    """A model's total is its forward, which its modules' own times and its own add up to."""
    target = world.python(
        "import torch, time\n"
        "from torch import nn\n"
        "torch.set_num_threads(1)\n"
        "class Slow(nn.Module):\n"
        "    def forward(self, x):\n"
        "        time.sleep(0.01)\n"
        "        return x\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.part = nn.Sequential(nn.Linear(4, 4), Slow(), nn.Linear(4, 4))\n"
        "        self.head = nn.Linear(4, 4)\n"
        "    def forward(self, x): return self.head(self.part(x))\n"
        "net = Net()\n"
        "print('ready', flush=True)\n"
        "while True: net(torch.ones(2, 4))\n", python=python)
    target.wait_line("ready")
    target.inject("--plugin", "torch")
    shared.wait_for(lambda: target.rows("select count(*) > 50 from python.torch_trace "
                                        "where module = 'Net'") == [[True]], "calls")
    said = target.probing("top", "--once", "--interval", "100ms").stdout
    rows = {row[2]: (float(row[0]), float(row[1])) for row in re.findall(
        r"^ +[\d.]+ +([\d.]+) +([\d.]+) +\S+  post forward +(\S+)$", said, flags=re.M)}
    assert set(rows) == {"Net", "part", "part.0", "part.1", "part.2", "head"}, said
    assert rows["part.1"][0] == rows["part.1"][1] > 9 > rows["part"][0] + rows["Net"][0]
    assert rows["Net"][1] == pytest.approx(sum(own for own, _ in rows.values()), rel=0.1)


def test_calls_a_step_are_those_of_whole_steps(world, python):
    """Only some modules of the step under way have been called: 0.9 times would be no truth."""
    case = Case(world, "halfway.py", python)
    case.run()
    screen = json.loads(case.target.probing("torch", "--json").stdout)
    assert {m["module"]: m["calls"] for m in screen["modules"]} == {"Linear": 1, "Tanh": 1}


@pytest.mark.parametrize("kind", ["reentrant", "other"])
def test_forwards_that_a_checkpoint_computes_again(world, python, kind):
    """Each has its row, and its place in the backward; of steps not whole nothing is shown."""
    case = Case(world, "checkpoints.py", python, kind)
    wanted = case.run()
    rows = case.target.rows("select stage, module, count(*) from python.torch_trace where "
                            "stage like '% forward' and local_step > 0 group by 1, 2")
    late = [["post forward", "Sigmoid", 1]]
    assert sorted(rows) == sorted(late + [[stage, name, n] for stage, calls in wanted.items()
                                          for name, n in calls.items()])
    folded = case.target.probing("flamegraph", "torch", "--format", "folded").stdout
    ways = [line.rsplit(" ", 1)[0] for line in folded.splitlines()]
    assert "Tanh" not in folded and "Sigmoid" not in folded, folded
    assert not [way for way in ways if way.startswith("forward;blocks")], folded
    again = "backward;recomputed forward;blocks.1"
    assert {again, again + ";blocks.1.inside;blocks.1.inside.0"} <= set(ways), folded
    whole = case.target.rows("select sum(step_duration_sec) from python.torch_step_timing")[0][0]
    assert total_of(folded) / 1e9 == pytest.approx(whole, rel=1e-6)
    screen = json.loads(case.target.probing("torch", "--json").stdout)
    seen = {m["module"]: (m["root"], m["calls"], m["backward_sec"] is not None)
            for m in screen["modules"]}
    assert seen["blocks.0.out"] == ("Net", 1, True) and seen["Net"] == ("Net", 1, False), seen


def test_backwards_that_end_at_the_same_moment(world, python):
    """A module ends with its first part, and may begin with its last: it is around that, still."""
    enough = world.tmp / "enough"  # a backward that has not ended has no row
    target = world.python(
        "import os, time, torch\n"
        "from torch import nn\n"
        "torch.set_num_threads(1)\n"
        "def part(): return nn.Sequential(nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4))\n"
        "model = nn.Sequential(part(), nn.ReLU(), part())\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "print('ready', flush=True)\n"
        "while not os.path.exists(%r):\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "    time.sleep(0.0005)\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n" % str(enough), python=python)
    target.wait_line("ready")
    target.inject()
    done = target.probing("plugin", "load", "torch")
    assert done.returncode == 0, done.stderr
    backward_on(target, runs=True)
    shared.wait_for(lambda: target.rows("select count(*) > 500 from python.torch_step_timing")
                    == [[True]], "steps")
    enough.touch()
    target.wait_line("done")
    ways = [line.rsplit(" ", 1)[0].split(";") for line in
            target.probing("flamegraph", "torch", "--format", "folded").stdout.splitlines()]
    seen = [way[1:] for way in ways if way[0] == "backward" and len(way) > 1]
    for way in seen:  # Sequential;2;2.0;2.0.0
        parts = way[-1].split(".") if way != ["Sequential"] else []
        assert way == ["Sequential"] + [".".join(parts[:n + 1]) for n in range(len(parts))], seen
    assert len(seen) > 5, seen


def test_steps_of_several_loads_are_not_one(world, python):
    target = world.python(
        "import time, torch\n"
        "torch.set_num_threads(1)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n"
        "    time.sleep(0.005)\n", python=python)
    target.wait_line("ready")
    for enter in (True, False, True):
        if enter:
            target.inject()
        assert target.probing("plugin", "load", "torch").returncode == 0
        seen = target.rows("select count(*) from python.torch_step_timing")[0][0]
        shared.wait_for(lambda: target.rows("select count(*) from python.torch_step_timing")[0][0]
                        > seen + 10, "steps")
        words = ("plugin", "stop", "torch") if enter else ("eject",)
        assert target.probing(*words).returncode == 0
    twice = target.rows("select steps from python.torch_step_timing group by 1 having count(*) > 1")
    rows = target.rows("select local_step from python.torch_trace where module = '0' "
                       "group by 1 having count(*) > 1")
    assert twice == rows == []


def parts_begun_before_us(target):
    """{thread: ([module], ns)}: parts of its first call, where that began before what is shown."""
    rows = target.rows("select tid, module, (duration * 1000000000)::bigint "
                       "from python.torch_trace where stage = 'post forward' and local_step in "
                       "(select steps from python.torch_step_timing where sampled = 1) "
                       "order by local_step, seq")
    found = {}
    for tid in {row[0] for row in rows}:
        first = list(itertools.takewhile(lambda row: row[1] != "Sequential",
                                         (row for row in rows if row[0] == tid)))
        found[tid] = [row[1] for row in first], sum(row[2] for row in first)
    return found


def test_steps_that_another_thread_ends(world, python):
    """A forward in the middle of which a step ends is one call with its parts, not several."""
    enough = world.tmp / "enough"  # a call that has not ended has no row, what it called has
    target = world.python(
        "import os, threading, time, torch\n"
        "torch.set_num_threads(1)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).eval()\n"
        "def serve():\n"
        "    while not os.path.exists(%r):\n"
        "        with torch.no_grad(): model(torch.ones(2, 4))\n"
        "        time.sleep(0.0005)\n"
        "threads = [threading.Thread(target=serve, daemon=True) for _ in range(3)]\n"
        "for t in threads: t.start()\n"
        "print('ready', flush=True)\n"
        "for t in threads: t.join()\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n" % str(enough), python=python)
    target.wait_line("ready")
    target.inject()
    assert target.probing("plugin", "load", "torch").returncode == 0
    shared.wait_for(lambda: target.rows("select count(*) from python.torch_trace")[0][0] > 3000,
                    "calls")
    enough.touch()
    target.wait_line("done")
    folded = target.probing("flamegraph", "torch", "--format", "folded").stdout
    own = dict(line.rsplit(" ", 1) for line in folded.splitlines())
    alone = sum(int(ns) for way, ns in own.items() if way in ("forward;0", "forward;1"))
    early = parts_begun_before_us(target)
    assert all(modules in ([], ["1"], ["0", "1"]) for modules, _ in early.values()), early
    assert alone == sum(ns for _, ns in early.values()), (early, folded)
    assert int(own["forward;Sequential;0"]) > 0 < int(own["forward;Sequential;1"]), folded
    shown = target.probing("torch")
    assert shown.returncode == 0 and "in none of torch's parts" not in shown.stdout, shown


def test_a_loop_that_stands(world, python):
    hangs = world.tmp / "hangs"
    case = Case(world, "stands.py", python, str(hangs))
    case.go.touch()

    def told(pattern):
        return shared.wait_for(lambda: re.search(pattern, case.target.probing("torch").stdout),
                               pattern)
    waits = told(r"no step has ended for [\d.]+ s: the loop has been waiting for data for [\d.]+ s"
                 r"\n  the next batch is to come from worker \d \(pid (\d+)\), which is \w+\n")
    assert waits[1] == hangs.read_text()
    other = world.probing("-t", waits[1], "backtrace", "--external")
    assert "__getitem__" in other.stdout, other
    line = json.loads(case.target.probing("torch", "--json").stdout)
    assert line["loop"]["phase"] == "waiting for data" and "no step" in line["waiting"][0]
    hangs.unlink()
    case.target.wait_line("holds the GIL")
    row = shared.wait_for(lambda: case.target.rows(
        "select tid, steps, phase, phase_sec from torch.loop where phase_sec > 0.1"), "the loop")[0]
    assert row[:3] == [case.target.pid, 17, "other"]


def test_names_longer_than_the_screen_was_made_for(world, python):
    """As those of Hugging Face's models: what differs stands at their end."""
    target = world.python(
        "import torch, time\n"
        "from torch import nn\n"
        "parts = nn.ModuleDict({n: nn.Linear(4, 4) for n in ('query', 'key')})\n"
        "class SequenceClassification(nn.Sequential): pass\n"
        "model = SequenceClassification(nn.ModuleDict({'encoder_layer_attention_self': parts}))\n"
        "model.forward = lambda x: [part(x) for part in parts.values()]\n"
        "other = nn.Linear(4, 4)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    with torch.no_grad(): model(torch.ones(4)), other(torch.ones(4))\n", python=python)
    target.wait_line("ready")
    target.inject("--plugin", "torch")
    name = "SequenceClassification: 0.encoder_layer_attention_self."
    shared.wait_for(lambda: all("  %s%s  " % (name, end) in target.probing("torch").stdout
                                for end in ("query", "key")), "both names, whole")


@pytest.mark.skipif(not FULL, reason="waits for 20 s and more: PROBING_TEST_FULL=1 runs it")
def test_what_our_own_profile_took_is_no_growth_of_the_program(world, python):
    """torch's profiler leaves its memory with the program's allocator: 400 MB were told."""
    target = world.python(
        "import torch, time\n"
        "from torch import nn\n"
        "torch.set_num_threads(1)\n"
        "net = nn.Sequential(*[nn.Linear(16, 16) for _ in range(20)])\n"
        "opt = torch.optim.SGD(net.parameters(), lr=0.01)\n"
        "for i in range(10000000):\n"
        "    opt.zero_grad()\n"
        "    net(torch.ones(4, 16)).sum().backward()\n"
        "    opt.step()\n"
        "    if i == 20: print('ready', flush=True)\n"
        "    time.sleep(0.002)\n", python=python)
    target.wait_line("ready")
    target.inject("--plugin", "torch")
    looks = "select rss_after_bytes is not null, rss_after_bytes - rss_before_bytes from torch.loop"
    shared.wait_for(lambda: target.rows(looks)[0][0], "looks at memory")
    before = target.rows("select anon_bytes from process.memory")[0][0]
    done = target.probing("torch", "profile", "--steps", "200")
    assert done.returncode == 0, done.stderr
    took = target.rows("select anon_bytes from process.memory")[0][0] - before
    if took < 40 << 20:
        pytest.skip("the profile took only %d MB" % (took >> 20))  # this would show nothing
    span = "select rss_span_sec from torch.loop"
    begun = target.rows(span)[0][0]
    shared.wait_for(lambda: target.rows(span)[0][0] > begun * 2 + 3, "the newer half")
    assert target.rows(looks)[0][1] < took / 2, (target.rows(looks), took)
    assert "as it keeps what it allocates" not in target.probing("torch").stdout


def test_a_cost_within_its_error_has_no_figure(world, python):
    """Steps with rows take 8 ms longer than those without, or 2 ms less, in turn: 3 +- 1.8 ms."""
    target = world.python(
        "import sys, time, torch\n"
        "model, n = torch.nn.Linear(4, 4), 0\n"
        "print('ready', flush=True)\n"
        "while n < 150:\n"
        "    if hasattr(sys, '_probing_step'):\n"
        "        sys._probing_step(n)\n"
        "        n += 1\n"
        "    model(torch.ones(2, 4))\n"
        "    turn = (n - 1) // 5 % 2\n"
        "    time.sleep(0.01 if n % 5 == 4 else 0.018 if turn else 0.008)\n"
        "print('done', flush=True)\n"
        "time.sleep(600)\n", python=python)
    target.wait_line("ready")
    target.inject("-D", "torch.baseline_every=5")
    assert target.probing("plugin", "load", "torch").returncode == 0
    target.wait_line("done")
    shown = target.probing("torch").stdout
    compared = re.search(r"^  compared .*\n.*", shown, re.M).group()
    figure = re.search(r"([+-][\d.]+) % \+- ([\d.]+)", compared)
    assert figure is None or abs(float(figure[1])) >= 2 * float(figure[2]), compared
    if figure is None:
        assert re.search(r"not measurable: below [\d.]+ %", compared), compared
