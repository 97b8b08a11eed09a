# SPDX-License-Identifier: Apache-2.0
"""What stands around modules in real programs: results are the same to the last bit with us, and
each row is one that happened."""
import json

import pytest
import world as shared
from test_collectives import Rank, pid_of, start
from cases import HERE, Case

SHARDED = str(HERE / "targets" / "sharded.py")


@pytest.mark.parametrize("more", ["", "backward=on,nan=on,exprs=loss@train"])
def test_the_same_with_whatever_is_around(world, python, more):
    case = Case(world, "wrappers.py", python)
    if more:
        done = case.target.probing("config", "torch.profiling=on," + more)
        assert done.returncode == 0, done.stderr
    seen = case.run()
    assert seen["different"] == [] and seen["calls"] == seen["calls before"]
    rows = case.target.rows("select module, count(*), min(duration) from python.torch_trace "
                            "where stage = 'post forward' group by module")
    counts = {name: n for name, n, _ in rows}
    assert all(shortest > 0 for _, _, shortest in rows)
    happened = {}
    for name, n in seen["calls"].items():
        part = name.split(".")[1]
        happened[part] = happened.get(part, 0) + n
    # parts of DataParallel have its name before theirs; what dynamo traces leaves no row
    for part in ("first", "second"):
        n = counts.get(part, 0) + counts.get("module." + part, 0) + counts.get("Part", 0)
        assert 0 < counts[part] and n <= happened[part] + counts.get("Part", 0), counts
    assert counts["module.first"] == seen["calls"]["data_parallel.first"]
    case.stop()
    assert case.hooks() == ["function"] * 6


@pytest.mark.parametrize("more", ["", "backward=on,nan=on,exprs=loss"])
def test_parts_of_torch_that_look_into_modules(world, python, more):
    """Graphs, traces, quantization, parametrizations, optimizers of every kind."""
    case = Case(world, "features.py", python)
    if more:
        done = case.target.probing("config", "torch.profiling=on," + more)
        assert done.returncode == 0, done.stderr
    seen = case.run()
    assert seen["different"] == {}
    missing = {"exported", "functional", "compiled", "flops"}  # in torch 1.13
    assert set(seen["failed"]) <= missing, seen["failed"]
    assert {"Net", "first", "second", "GraphModule", "RecursiveScriptModule"} <= set(case.counts())
    case.stop()
    assert case.hooks() == ["function"] * 6


@pytest.mark.parametrize("loads", [1, 2])
def test_loaded_while_a_graph_is_traced(world, python, loads):
    """Torch.fx then does not put back our hook, nor one from before a stop()."""
    case = Case(world, "tracing.py", python)
    for _ in range(loads - 1):
        case.stop()
        case.load()
    case.go.touch()
    case.target.wait_line("done")
    shared.wait_for(lambda: case.counts().get("Net", 0) > 10, "rows of calls")
    rows = case.target.rows("select local_step, count(*) from python.torch_trace where "
                            "module = 'Net' group by 1 having count(*) > 1")
    assert rows == []
    case.stop()
    assert case.hooks() == ["function"] * 6


ENGINE = ("import ctypes, torch; at = ctypes.c_void_p.from_address; "
          "d = id(type(torch.autograd.Variable._execution_engine).run_backward); "
          "print(at(at(d + 40).value + 8).value)")  # PyMethodDescrObject's d_method->ml_meth


def test_functions_and_classes_stay_what_they_are(world, python):
    case = Case(world, "functions.py", python)
    entered = case.target.probing("eval", ENGINE).stdout
    done = case.target.probing("config", "torch.profiling=on,nan=on,backward=on")
    assert done.returncode == 0, done.stderr
    seen = case.run()
    assert seen["now"] == seen["before"]
    assert not [text for text in seen["now"].values() if isinstance(text, str)]
    case.stop()
    assert case.hooks() == ["function"] * 6
    assert case.target.probing("eval", ENGINE).stdout != entered


def test_backward_begins_where_it_is_called(world, python):
    """Not only in the engine: Python makes the first gradient, and programs wrap what it calls."""
    target = world.python(
        "import os, time, torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "engine = torch.autograd.backward\n"
        "def slow(*args, **kwargs):\n"
        "    time.sleep(0.02)\n"
        "    engine(*args, **kwargs)\n"
        "torch.autograd.backward = slow\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    model(torch.ones(2, 4)).sum().backward()\n"
        "    optimizer.step()\n", python=python)
    target.wait_line("ready")
    target.inject("--plugin", "torch")
    shared.wait_for(lambda: target.rows("select count(*) > 5 from python.torch_step_timing")
                    == [[True]], "steps")
    assert target.rows("select min(backward_sec) >= 0.02 from python.torch_step_timing") == [[True]]


BY_HAND = """
import os, sys, time, torch
model, loss_of = torch.nn.Linear(4, 1), torch.nn.MSELoss()
x, go = torch.ones(2, 4), sys.argv[0] + ".go"
print("ready", flush=True)
while not os.path.exists(go):
    time.sleep(0.01)
made = %r and torch.optim.SGD(model.parameters(), lr=0.01)
for n in range(20):
    model.eval()
    model(x)
    model.train()
    loss = loss_of(model(x), x[:, :1])
    loss.backward()
    if not made:
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.01)
            p.grad = None
    elif n %% 5 == 4:
        made.step()
        made.zero_grad()
print("done", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("made", [False, True])
def test_parameters_changed_by_hand(world, python, made):
    """As in PyTorch's word_language_model: a step ends when the next batch comes; but not where an
    optimizer is there, which shall step after some batches."""
    target = world.python(BY_HAND % made, python=python)
    target.wait_line("ready")
    target.inject()
    for words in (("plugin", "load", "torch"),
                  ("config", "torch.profiling=on,exprs=loss,baseline=0")):
        assert target.probing(*words).returncode == 0
    (world.tmp / "target-0.py.go").touch()
    target.wait_line("done")
    ends = target.rows("select step_end, count(*), count(backward_sec) from "
                       "python.torch_step_timing group by 1")
    assert ends == ([["optimizer", 3, 3]] if made else [["backward", 18, 18]])
    assert target.rows("select count(*) from training_logs") == [[4 if made else 19]]
    calls = target.rows("select distinct local_step, count(*) from python.torch_trace where module "
                        "= 'Linear' and micro_step is not null group by 1 order by 1")
    assert calls == ([[n, 5] for n in range(4)] if made else [[n, 1] for n in range(20)])


def test_gradients_that_are_used_by_hand(world, python):
    """They are there after the backward only."""
    target = world.python(
        "import torch\n"
        "model = torch.nn.Linear(4, 4)\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    model.zero_grad(set_to_none=True)\n"
        "    model(torch.ones(2, 4)).sum().backward()\n", python=python)
    target.wait_line("ready")
    target.inject("--plugin", "torch")
    shared.wait_for(lambda: target.rows("select count(*) > 5 from python.torch_step_timing")
                    == [[True]], "steps")
    assert target.rows("select name, norm from torch.gradients order by 1") == \
        [["bias", 4.0], ["weight", 8.0]]


def test_a_compiled_model_has_its_forward_in_the_step(world, python):
    case = Case(world, "compiled.py", python)
    steps = case.run()["steps"]
    if not steps:
        pytest.skip("this torch compiles nothing")
    rows = case.target.rows("select count(*), count(forward_sec) from python.torch_step_timing")
    assert rows == [[steps - 1, steps - 1]]
    rows = case.target.rows("select count(*), sum(micro_step) from python.torch_trace "
                            "where module = 'OptimizedModule'")
    assert rows == [[steps, 0]]


def test_loaded_in_the_middle_of_a_backward(world, python):
    case = Case(world, "in_backward.py", python)
    shared.wait_for(lambda: case.counts().get("Identity", 0) >= 3, "calls from inside it")
    assert case.run() == {"same": True}
    counts = case.counts()
    assert counts["Net"] == 2 and counts["first"] == 2
    assert 2 <= counts["second"] <= 5  # with those that checkpoint computes again, by any name


def test_a_backward_is_the_same_where_its_wait_is_measured(world, python):
    """Run again on one graph, failing, inside of another one, and while the plugin stops: nothing
    is left in the program but the one hook of the backward that outlived the plugin."""
    case = Case(world, "waits_in_backward.py", python, env={"RANK": "0", "WORLD_SIZE": "2"})
    case.go.touch()
    case.target.wait_line("inside")
    rows = case.target.rows("select comm_sec >= 0.1, comm_sec >= 0.005 from "
                            "python.torch_step_timing order by local_step")
    assert rows == [[True, True], [None, None], [False, True]]
    case.stop()
    case.go.with_name("go.on").touch()
    assert case.run() == {"again": [[2.0] * 3] * 20, "failing": ["the program's own"] * 20,
                          "nested": [5.0] * 3, "kept": True, "standing": [2.0] * 3,
                          "left": [2.0] * 3}
    case.load()
    assert case.target.rows("select count(*) from probing.log where level = 'error'") == [[0]]


def test_sharded_ranks(world, python):
    jobs = start(world, python, SHARDED)
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    for number, rank in enumerate(ranks):
        before, now = json.loads((world.tmp / ("answer.%d" % number)).read_text())
        assert before == now
        kinds = 2 if now["fsdp"] else 1
        n = rank.rows("select count(*) from python.torch_trace where stage = 'post step'")
        assert n == [[4 * kinds]]
        names = {name for name, in rank.rows("select distinct module from python.torch_trace "
                                             "where stage = 'post forward'")}
        assert {"DistributedDataParallel", "module", "module.0", "module.2"} <= names
        if now["fsdp"]:
            assert {"0", "1", "2"} <= names
    for rank in ranks:
        rank.run("plugin", "stop", "torch")
