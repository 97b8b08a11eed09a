# SPDX-License-Identifier: Apache-2.0
"""Loss, learning rate and gradient norm without a name of any function: a row a step, and the
program's own numbers to the last bit; and why there are no rows where there are none."""
import json
import subprocess

import pytest
import world as shared
from cases import Case

PROGRAMS = ["engine", "nanogpt", "returned", "outside", "loader", "accumulate"]
FRAMEWORKS = ["trainer", "lightning", "lightning_dict", "accelerate"]
LOGS = "select step, loss, lr, grad_norm from training_logs order by step"


def told(case, said):
    """Compare training_logs with what the program says."""
    rows = case.target.rows(LOGS)
    assert [row[:2] for row in rows] == [[n, loss] for n, loss in enumerate(said["loss"])]
    assert [row[2] for row in rows] == said["lr"]
    if said.get("grad_norm"):
        assert [row[3] for row in rows] == said["grad_norm"]
    whole = case.target.rows("select count(*), count(loss), min(name), max(name) "
                             "from training_logs")
    assert whole == [[len(said["loss"]), len(said["loss"]), "loss", "loss"]]
    calls = case.target.rows("select micro_step, count(*) from python.torch_trace where "
                             "stage = 'post forward' and micro_step is not null group by 1 "
                             "order by 1")
    assert [micro for micro, _ in calls] == list(range(said["micro"]))
    return rows


PART = """
import time
import torch
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
losses = torch.tensor([1.0, 2.0, 3.0])
def step():
    loss = losses[2]
    optimizer.step()
print("ready", flush=True)
while True:
    step()
    time.sleep(0.01)
"""


def test_a_loss_that_lies_in_the_middle_of_a_tensor(world, python):
    target = world.python(PART, python)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "torch")
    seen = "select distinct value_f64 from python.variables where name = 'loss'"
    assert shared.wait_for(lambda: target.rows(seen), "a loss") == [[3.0]]


@pytest.mark.parametrize("kind", PROGRAMS)
def test_loops_as_people_write_them(world, python, kind):
    case = Case(world, "programs.py", python, kind)
    said = case.run()
    if not said["clips_elsewhere"] and kind != "accumulate":  # that one has a variable grad_norm
        said["grad_norm"] = [None] * len(said["loss"])  # torch before 2.6
    rows = told(case, said)
    if said["clips_elsewhere"]:
        assert (rows[0][3] is None) == (kind in ("outside", "loader"))  # they clip nothing


@pytest.mark.parametrize("kind", FRAMEWORKS)
def test_frameworks(world, python, kind):
    module = kind.split("_")[0]
    name = {"trainer": "transformers", "lightning": "lightning.pytorch"}.get(module, module)
    done = shared.subprocess.run([python, "-c", "import " + name], capture_output=True)
    if done.returncode:
        pytest.skip("%s has no %s" % (python, name))
    told_of = Case(world, "frameworks.py", python, kind)
    told(told_of, told_of.run())


def test_a_speed_that_the_program_has(world, python):
    """A loss calculated after optimizer.step() is there at the end of the next step."""
    case = Case(world, "programs.py", python, "nanogpt",
                env={"PROBING_TORCH_PROFILING": "on,exprs=loss,tokens_per_sec"})
    said = case.run()
    rows = case.target.rows("select loss, tokens_per_sec, samples_per_sec, lr, grad_norm "
                            "from training_logs order by step")
    assert [row[0] for row in rows] == said["loss"]
    assert [row[1] for row in rows] == [None] + said["tokens_per_sec"][:-1]
    assert {tuple(row[2:]) for row in rows} == {(None, None, None)}


def test_names_of_a_loss_that_is_not_called_so(world, python):
    """A function and one number for each example have the name, too: they are no loss."""
    case = Case(world, "losses.py", python, "named")
    wanted = case.run()["losses"]
    rows = case.target.rows("select step, loss from training_logs order by step")
    assert rows == [[n, loss] for n, loss in enumerate(wanted)]


def test_compiled_functions_may_clip(world, python):
    """The stand-in for torch's function is a function, with code and closure."""
    case = Case(world, "clip_compiled.py", python)
    seen = case.run()
    if not seen:
        pytest.skip("this torch compiles nothing")
    assert seen["compiled"] == seen["plain"] and seen["breaks"] == 0
    where = "import torch; print(torch.nn.utils.clip_grad._get_total_norm.__closure__[0])"
    entered = case.target.probing("eval", where).stdout
    case.stop()
    left = case.target.probing("eval", where).stdout
    assert "function object" in left and entered != left


def empty(case, sql):
    done = case.target.probing("query", "--format", "json", sql)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout).get("empty", "")


def test_tables_without_rows_say_why(world, python):
    case = Case(world, "losses.py", python, "scalar")
    no_step = "no step has ended since the torch plugin was loaded"
    for sql, why in [("select * from training_logs", no_step),
                     ("select count(*), avg(loss) from training_logs", no_step),
                     ("select * from python.torch_step_timing", no_step),
                     ("select * from python.torch_trace", "no module of torch has been called"),
                     ("select * from comm_metrics", "no operation of torch.distributed"),
                     ("select * from python.torch_device_time", "torch.device_times is off"),
                     ("select * from torch.ops", "probing torch profile")]:
        assert why in empty(case, sql), sql
    for form, place in [("table", "stdout"), ("csv", "stderr"), ("jsonl", "stderr")]:
        done = case.target.probing("query", "--format", form, "select * from training_logs")
        assert no_step in getattr(done, place) and "incomplete" not in done.stderr, form
    done = case.target.probing("config", "torch.variables=")
    assert done.returncode == 0, done.stderr
    assert "torch.variables is empty" in empty(case, "select * from training_logs")
    done = case.target.probing("config", "torch.variables=no_such")
    assert done.returncode == 0, done.stderr
    case.run()
    why = empty(case, "select * from training_logs")
    assert "no_such was not there at the end of 10 steps" in why
    # what no row has met is no reason
    assert empty(case, "select * from python.torch_step_timing where steps > 1000") == ""
    assert empty(case, "select count(*) from python.torch_step_timing where steps > 1000") == ""
    case.stop()
    assert "plugin load torch" in empty(case, "select * from comm_metrics")


@pytest.mark.parametrize("kind", ["variable", "backward"])
def test_a_loss_on_a_gpu_is_read_later(world, python, library, kind):
    """With a stand-in for the driver: nobody waits, and the number is that of its own step."""
    case = Case(world, "device_loss.py", python, library, kind,
                env={"PROBING_TORCH_PROFILING": "on,device_times=on,exprs=loss"})
    said = case.run()
    assert said["refused"] == 0 and said["asked"] == 0
    rows = case.target.rows("select step, loss from training_logs where loss is not null "
                            "order by step")
    wanted = [[n, loss] for n, loss in enumerate(said["losses"]) if n != said["captured"]]
    assert len(rows) > len(wanted) - 8 and rows == wanted[:len(rows)]  # the last are under way
    why = case.target.rows("select local_step, value from python.variables where "
                           "value_f64 is null and value like 'not read%'")
    assert [n for n, _ in why] == [said["captured"]] and "would wait for its device" in why[0][1]


def test_a_loss_on_a_gpu_is_not_waited_for(world, python, library):
    case = Case(world, "device_loss.py", python, library, "variable")
    said = case.run()
    assert said["refused"] == 0 and said["asked"] == 0
    rows = case.target.rows("select count(*), count(loss) from training_logs")
    assert rows[0][1] == 0 and rows[0][0] >= len(said["losses"])
    why = case.target.rows("select distinct value from python.variables where name = 'loss' and "
                           "value_f64 is null")
    assert len(why) == 1 and "torch.device_times=on" in why[0][0], why


def test_watching_the_loss_tells_each_step_once(world, python):
    """As a select with groups the view was told whole at each tick."""
    case = Case(world, "losses.py", python, "scalar")
    words = [str(shared.CLI), "-t", str(case.target.pid), "watch", "--interval", "30ms", "-f",
             "jsonl", "--last", "1000", "select step, loss from training_logs"]
    stream = subprocess.Popen(words, env=world.env, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE)
    try:
        case.run()
        last = case.target.rows("select max(step) from training_logs")[0][0]
        told = {}
        while last not in told:
            row = json.loads(stream.stdout.readline())
            assert row["loss"] not in told.get(row["step"], []), row
            told.setdefault(row["step"], []).append(row["loss"])
    finally:
        stream.kill()
    assert "aggregates" not in stream.stderr.read()
