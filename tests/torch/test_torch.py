# SPDX-License-Identifier: Apache-2.0
"""The torch plugin in real training processes: what it says is true, and the process never notices.

Each case runs with every torch at hand: Debian's, and those of the Pythons that the variable
PROBING_TEST_TORCH names (separated by `:`, for example a virtual environment with PyPI's torch).
"""
import re
import statistics
import subprocess
import sys
import time

import pytest
import world as shared
from cases import Case, backward_on
from pythons import FULL

LOADS = 50 if FULL else 15


def test_durations_agree_with_a_timing_by_hand(world, python):
    case = Case(world, "durations.py", python)
    by_hand = case.run()
    rows = case.target.rows("select module, median(duration), count(*) from python.torch_trace "
                            "where stage = 'post forward' group by module")
    seen = {name: (usual, n) for name, usual, n in rows}
    for name, spent in by_hand.items():
        assert seen[name][1] == len(spent), name
        # the same unit and the same span; a busy machine may come between the two clocks of a call
        usual = statistics.median(spent)
        assert 0.95 * usual < seen[name][0] < 2 * usual, name


def test_names_are_those_of_named_modules(world, python):
    case = Case(world, "names.py", python)
    wanted = case.run()
    assert case.counts() == wanted


def test_names_while_modules_move(world, python):
    """Shared by two models, renamed, replaced, taken out, wrapped: as named_modules() says then."""
    case = Case(world, "renamed.py", python)
    done = case.target.probing("config", "torch.baseline_every=0")
    assert done.returncode == 0, done.stderr
    wanted = case.run()
    assert case.counts() == wanted


def test_rows_are_right_or_absent(world, python):
    """Exceptions, recursion, threads, freed modules, modules in a forked child: exact counts."""
    case = Case(world, "odd.py", python)
    wanted = case.run()
    assert case.counts() == wanted
    bad = case.target.rows("select count(*) from python.torch_trace where duration < 0 "
                           "or duration is null and stage = 'post forward'")
    assert bad == [[0]]


def test_steps(world, python):
    """Accumulated batches, a scheduler, an optimizer made after us: numbered, timed, adding up."""
    case = Case(world, "steps.py", python)
    wanted = case.run()
    rows = case.target.rows(
        "select local_step, micro_step from python.torch_trace where module = 'Net' order by ts")
    assert rows == wanted["net"]
    rows = case.target.rows("select local_step, module from python.torch_trace "
                            "where stage = 'post step' order by ts")
    assert rows == wanted["optimizers"]
    rows = case.target.rows(
        "select steps, step_duration_sec, forward_sec, backward_sec, optimizer_sec, other_sec "
        "from python.torch_step_timing order by steps")
    assert [row[0] for row in rows] == list(range(1, len(wanted["optimizers"])))
    for _, whole, *parts in rows:
        if None not in parts:
            assert min(parts) >= 0 and sum(parts) == pytest.approx(whole, rel=1e-6)
    measured = [row for row in rows if None not in row]
    assert len(measured) >= len(rows) - 1  # one optimizer's first step has no beginning


@pytest.mark.parametrize("kind", ["plain", "made", "plain two", "plain late", "made late",
                                  "made scheduled", "plain scheduled"])
@pytest.mark.one_torch
def test_a_step_is_when_the_inner_optimizer_steps(world, python, kind):
    """accelerate's accumulate(): step() of the wrapper for each batch is no step by itself."""
    case = Case(world, "accumulates.py", python, kind)
    wanted = case.run()
    rows = case.target.rows("select local_step, micro_step from python.torch_trace "
                            "where module = 'Linear' order by ts")
    assert rows == wanted["forwards"]
    rows = case.target.rows("select local_step, stage from python.torch_trace "
                            "where stage like '% step' order by ts")
    assert rows == [[n, "post step"] for n, _ in wanted["steps"]]
    ends = case.target.rows("select count(*) from python.torch_step_timing where step_end = "
                            "'optimizer'")
    assert ends[0][0] in (len(wanted["steps"]), len(wanted["steps"]) - 1)  # the first has no begin


def test_parts_of_a_step_agree_with_a_timing_by_hand(world, python):
    """Waiting for data, forward, backward, two optimizers that work for one step."""
    case = Case(world, "parts.py", python)
    seen = case.run()
    rows = case.target.rows(
        "select sum(dataloader_sec), sum(forward_sec), sum(backward_sec), sum(optimizer_sec), "
        "sum(other_sec), sum(step_duration_sec), count(*) from python.torch_step_timing")
    data, forward, backward, optimizer, other, whole, n = rows[0]
    assert n == seen["steps"] - 1
    assert data + forward + backward + optimizer + other == pytest.approx(whole, rel=1e-9)
    spent = seen["spent"]
    assert 0.8 * spent["dataloader"] < data < 2 * spent["dataloader"]
    for part, ours in (("forward", forward), ("backward", backward), ("optimizer", optimizer)):
        usual = case.target.rows("select median(%s_sec) from python.torch_step_timing" % part)[0][0]
        by_hand = statistics.median(spent[part])  # around ours, and whoever came between
        assert ours <= 1.01 * sum(spent[part]) and usual >= 0.4 * by_hand, part
    assert whole <= seen["wall"]
    waits = case.target.rows("select module, count(*) from python.torch_trace "
                             "where stage = 'post data' group by 1 order by 1")
    assert [n for _, n in waits] == [12, 12]
    screen = case.target.probing("torch")
    assert screen.returncode == 0, screen.stderr
    for words in ("waiting for data", "backward", "optimizer", "suspicious", "torch.loaders"):
        assert words in screen.stdout, screen.stdout
    assert re.search(r"^  0 ", screen.stdout, re.M), screen.stdout
    folded = case.target.probing("flamegraph", "torch", "--format", "folded")
    assert folded.returncode == 0, folded.stderr
    own = dict(line.rsplit(" ", 1) for line in folded.stdout.splitlines())
    assert {"forward;Sequential;%d" % n for n in range(4)} <= set(own)
    inside = sum(int(ns) for way, ns in own.items() if way.startswith("forward;")) / 1e9
    rows = case.target.rows("select sum(duration) from python.torch_trace "
                            "where stage = 'post forward' and module = 'Sequential' and "
                            "local_step in (select steps from python.torch_step_timing)")
    assert inside == pytest.approx(rows[0][0], rel=1e-4)  # own times add up to the whole
    for part in ("waiting for data", "backward", "optimizer;SGD", "other"):
        assert part in own or part + ";_SingleProcessDataLoaderIter" in own, part
    done = case.target.probing("performance", "--torch")
    assert done.returncode == 0 and "loaded already" in done.stdout, done


def test_steps_without_an_optimizer(world, python):
    """Inference: a model that is called again begins a step; probing.step() overrules that."""
    case = Case(world, "inference.py", python)
    steps = case.run()["steps"]
    ends = case.target.rows("select step_end, count(*) from python.torch_step_timing "
                            "group by 1 order by 1")
    assert ends == [["forward", steps - 2], ["probing.step", steps + 3]]
    told = case.target.rows("select global_step, count(*) from python.torch_trace where module = "
                            "'Linear' and global_step is not null group by 1 order by 1")
    assert told == [[1000 + n, 6] for n in range(steps)]
    done = case.target.probing("plugin", "stop", "torch")
    assert done.returncode == 0, done.stderr
    done = case.target.probing("eval", "import sys; print(hasattr(sys, '_probing_step'))")
    assert done.stdout.split() == ["False"]


def test_a_validation_before_the_first_step(world, python):
    """Its batches were steps, and steps of the training had other numbers than the program's."""
    case = Case(world, "validates.py", python)
    steps = case.run()["steps"]
    ends = case.target.rows("select step_end, count(*), max(steps) from python.torch_step_timing "
                            "group by 1")
    assert ends == [["optimizer", steps - 1, steps - 1]]
    rows = case.target.rows("select local_step from python.torch_trace where stage = 'post step'")
    assert rows == [[n] for n in range(steps)]


def test_steps_that_a_grad_scaler_skips(world, python):
    case = Case(world, "scaler.py", python)
    stages = case.run()["stages"]
    if stages is None:
        pytest.skip("this torch scales no gradients on the CPU")
    rows = case.target.rows("select local_step, stage, module from python.torch_trace "
                            "where stage like '% step' order by ts")
    assert rows == [[step, stage, "SGD"] for step, stage in stages]
    n = case.target.rows("select count(*) from python.torch_step_timing")
    assert n == [[len(stages) - 1]]


def test_one_step_in_three(world, python):
    case = Case(world, "steps.py", python)
    done = case.target.probing("config", "torch.sample_every=3")
    assert done.returncode == 0, done.stderr
    wanted = case.run()
    steps = case.target.rows("select distinct local_step from python.torch_trace order by 1")
    assert steps == [[n] for n in range(0, len(wanted["optimizers"]) + 1, 3)]
    sampled = case.target.rows("select steps, sampled from python.torch_step_timing order by 1")
    assert sampled == [[n, int(n % 3 == 0)] for n in range(1, len(wanted["optimizers"]))]
    for bad in ("-1", "1x", "", "99999999"):
        done = case.target.probing("config", "torch.sample_every=" + bad)
        assert done.returncode != 0 and "every" in done.stderr, bad


def test_loaded_in_the_middle_of_a_forward(world, python):
    """The call that began before us has no row, and is not taken for what it calls."""
    case = Case(world, "middle.py", python)
    shared.wait_for(lambda: case.counts().get("inner", 0) >= 3, "calls from inside it")
    case.run()
    rows = case.target.rows("select module, micro_step, count(*) from python.torch_trace "
                            "where stage = 'post forward' group by module, micro_step")
    seen = {(module, micro): n for module, micro, n in rows}
    assert sorted(seen, key=str) == [("Outer", 0), ("inner", 0), ("inner", None)]
    assert seen["Outer", 0] == 1 and seen["inner", 0] == 3

def lateness():
    """Seconds that a process may wait for a processor here and now."""
    def once():
        begin = time.monotonic()
        time.sleep(0.005)  # how late it wakes is what is measured
        sum(range(100000))
        return time.monotonic() - begin - 0.005
    return max(once() for _ in range(20))


def test_backward_of_modules(world, python):
    """Times are those that the target gave them; gradients stay as they were, to the last bit."""
    tick = max(0.05, 3 * lateness())
    for tries in range(3):  # what the machine is late by does not grow with the tick
        worst = backward_is_over(world, python, tick) / tick
        if worst < 0.8:
            break
        tick *= 3
    assert worst < 0.8, "a neighbour's time: %.2f ticks of %.3f s" % (worst, tick)


def backward_is_over(world, python, tick):
    """Seconds that are measured beyond what modules slept, at most."""
    for name in "go", "answer.json":
        if (world.tmp / name).exists():
            (world.tmp / name).unlink()
    case = Case(world, "backward.py", python, str(tick))
    backward_on(case.target)
    wanted, worst = case.run(), 0
    rows = case.target.rows("select module, duration from python.torch_trace "
                            "where stage = 'post backward' order by ts")
    seen = {}
    for module, duration in rows:
        seen.setdefault(module, []).append(duration)
    assert sorted(seen) == sorted(wanted)
    for name, durations in seen.items():  # a neighbour's time would be a tick more, or less
        assert len(durations) == len(wanted[name]), name
        over = [duration - slept for duration, slept in zip(durations, wanted[name])]
        assert -0.001 <= min(over), (name, over, tick)
        worst = max(worst, min(over))
    return worst


def test_variables_and_the_first_nan(world, python):
    case = Case(world, "variables.py", python)
    line = ("on,exprs=loss@train,acc1@train,kept,meter.avg@train,grid@train,text@train,flag,"
            "nothing@train,loss@elsewhere,model.last.weight.grad,"
            'state["acc"],state["all"][-1]["a,b"][1]@Stepper.step,slotted.rate,number@Other.step,'
            "meter.median,meter.mean,meter.deeper,meter.negative,meter.endless,"
            "box.any,box[1],meter.unit,wide,exact,huge,meta,hidden.grad,state,nan=on")
    done = case.target.probing("config", "probing.torch.profiling=" + line)
    assert done.returncode == 0, done.stderr
    seen = case.run()
    losses = seen["losses"]
    steps = range(len(losses))

    def series(name, column="value_f64"):
        return [row[0] for row in case.target.rows(
            "select %s from python.variables where name = '%s' and value not like 'not there%%' "
            "order by ts" % (column, name))]
    assert series("loss") == pytest.approx(losses)
    assert [value == "nan" for value in series("loss", "value")] == [n == 3 for n in steps]
    assert series("acc1") == pytest.approx([n / 10 for n in steps])
    assert series("kept") == [n * 2 for n in steps]
    assert series("meter.avg") == [n * 0.5 for n in steps]
    assert series("text", "value") == ["step %d" % n for n in steps]
    assert series("flag", "value") == [str(n % 2 == 0) for n in steps]
    assert series("grid.max") == [max(n, 3.0) for n in steps] and set(series("grid.nan")) == {1.0}
    assert series("grid.min") == [-1.0 for _ in steps]
    assert series("model.last.weight.grad.mean")[2] == 2.0
    assert series('state["acc"]') == [n / 4 for n in steps]
    assert set(series('state["all"][-1]["a,b"][1]')) == {2.5}
    assert set(series("slotted.rate")) == {0.25} and set(series("wide")) == {float(1 << 70)}
    assert set(series("exact", "value")) == {str((1 << 53) + 1)}
    assert series("huge", "value")[0].endswith("xxx...")
    assert set(series("meter.unit", "value")) == {"ms"}
    assert "meta tensor" in series("meta", "value")[0]
    assert "no number" in series("state", "value")[0]
    assert "code" in series("meter.median", "value")[0] and seen["asked"] == 0
    # a property that only gives an attribute is read, as its code would give it
    assert series("meter.mean") == [n * 0.5 for n in steps]
    assert set(series("meter.deeper")) == {0.75}
    for refused in ("meter.negative", "meter.endless", "box.any", "box[1]"):
        assert "code" in series(refused, "value")[0]
    assert "keeps no gradient" in series("hidden.grad", "value")[0]
    missing = case.target.rows("select name, func from python.variables where value like "
                               "'not there at the end of 10 steps' order by 1")
    assert missing == [["loss", "elsewhere"], ["nothing", "train"], ["number", "Other.step"]]
    told = case.target.rows("select count(*) from probing.log where text like 'torch.variables: %'")
    assert told == [[3]]
    names = case.target.rows("select distinct name, func from python.variables order by 1, 2")
    assert ["kept", "train"] in names and ["model.last.weight.grad.nan", "<module>"] in names
    found = case.target.rows("select local_step, func, value_f64, value from python.variables "
                             "where name = 'nonfinite'")
    assert found == [[3, "breaks", 8, "8 NaN and 0 infinite of 8 in its output; "
                                      "its input is finite"]]
    logs = case.target.rows("select step, loss from training_logs where loss is not null "
                            "order by 1")
    assert [step for step, _ in logs] == [n for n in steps if n != 3]


def test_training_logs_know_a_loss_by_its_name(world, python):
    """As the environment has it: train_loss is the loss, val_loss and others are not."""
    words = "on,exprs=train_loss@train,val_loss@train,epoch@train,acc1@train,metrics[\"test/loss\"]"
    case = Case(world, "logs.py", python, env={"PROBING_TORCH_PROFILING": words})
    wanted = case.run()["logs"]
    rows = case.target.rows("select step, epoch, loss from training_logs order by timestamp")
    assert [row[:2] for row in rows] == [[n, epoch] for n, (epoch, _) in enumerate(wanted)]
    assert [row[2] for row in rows] == pytest.approx([loss for _, loss in wanted])
    other = case.target.rows("select distinct name, value is null from training_logs")
    assert other == [["train_loss", False]]
    # a row is a step: what is counted and averaged there is of steps
    assert case.target.rows("select count(*) from training_logs") == [[len(wanted)]]
    mean = case.target.rows("select avg(loss), avg(value) from training_logs")[0]
    assert mean == pytest.approx([sum(loss for _, loss in wanted) / len(wanted)] * 2)


def test_training_logs_without_a_loss(world, python):
    """A row for each step, of the first variable; the epoch is one only where nothing else is."""
    words = "on,exprs=epoch@train,acc1@train,val_loss@train,no_such@train"
    case = Case(world, "logs.py", python, env={"PROBING_TORCH_PROFILING": words})
    wanted = case.run()["logs"]
    rows = case.target.rows("select step, epoch, loss, name, value from training_logs order by 1")
    assert rows == [[n, epoch, None, "acc1", 0.5] for n, (epoch, _) in enumerate(wanted)]


@pytest.mark.parametrize("kind", ["dict", "object", "tuple", "scalar"])
def test_a_loss_that_no_function_has(world, python, kind):
    """As with transformers' Trainer and Lightning: its frame is gone when the step ends."""
    case = Case(world, "losses.py", python, kind)
    done = case.target.probing("config", "torch.variables=loss")
    assert done.returncode == 0, done.stderr
    wanted = case.run()["losses"]
    rows = case.target.rows("select step, loss from training_logs order by step")
    assert rows == [[n, pytest.approx(loss)] for n, loss in enumerate(wanted)]
    where = case.target.rows("select distinct func from python.variables")
    assert where == [["Net.forward" if kind in ("dict", "object") else "backward"]]


def test_what_is_not_there_is_told_on_the_screen(world, python):
    case = Case(world, "losses.py", python, "scalar")
    done = case.target.probing("config", "torch.variables=acc@train,loss")
    assert done.returncode == 0, done.stderr
    case.run()
    screen = case.target.probing("torch").stdout
    assert "torch.variables: acc of train was not there" in screen
    assert "torch.variables: loss" not in screen
    done = case.target.probing("config", "torch.variables=loss")
    assert done.returncode == 0, done.stderr
    screen = case.target.probing("torch")
    assert screen.returncode == 0 and "torch.variables" not in screen.stdout, screen.stderr


def test_the_first_nan_in_gradients(world, python):
    """Where all outputs are finite: the module that it began in, or the last one, after which the
    loss was made."""
    case = Case(world, "gradients.py", python)
    done = case.target.probing("config", "torch.detect_nan=on")
    assert done.returncode == 0, done.stderr
    case.run()
    rows = case.target.rows("select local_step, func, value_type, value from python.variables "
                            "where name = 'nonfinite' order by ts")
    assert [row[:3] for row in rows] == [[2, "root", "gradient"], [4, "last", "gradient"]], rows
    assert re.match(r"\d NaN and \d infinite of 4 in the gradient of scale; modules called after "
                    "it have finite", rows[0][3]), rows
    assert "it was called last" in rows[1][3]
    screen = case.target.probing("torch").stdout
    assert "in the gradients of module root" in screen, screen


def test_the_first_nan_under_autocast_in_checkpoints_and_scaled(world, python):
    """A checkpoint calls its modules again in the backward: they are not the last ones."""
    case = Case(world, "precision.py", python)
    done = case.target.probing("config", "torch.detect_nan=on")
    assert done.returncode == 0, done.stderr
    seen = case.run()
    rows = case.target.rows("select local_step, func, value_type from python.variables "
                            "where name = 'nonfinite' order by ts")
    assert [row for row in rows if row[0] < seen["steps"]] == seen["wanted"]
    # a part that is compiled is one module, with all inside it
    assert [row[1] for row in rows if row[0] >= seen["steps"]] == ["body"] * seen["compiled"]


def test_our_own_cost_has_what_is_read_of_variables(world, python):
    case = Case(world, "cost.py", python)
    done = case.target.probing("config", "torch.variables=kept@work")
    assert done.returncode == 0, done.stderr
    n = case.run()["steps"]
    rows = case.target.rows("select steps, overhead_sec from python.torch_step_timing "
                            "where overhead_sec is not null")
    small = [cost for step, cost in rows if step < n]
    large = [cost for step, cost in rows if step > n]  # of what the step before it has kept
    assert statistics.median(large) > 5 * statistics.median(small)  # 4 million numbers against 1


def test_settings_as_people_write_them(world, python):
    case = Case(world, "steps.py", python)

    def said(setting):
        return case.target.probing("config", setting)
    for right in ("torch.variables=loss", "torch.variables= loss@train , meter.avg@train",
                  "torch.variables=x@<module>,model.0.weight.grad", "torch.variables=",
                  "torch.variables=a[\"b,c\"]@train,d['e'][-1].f@T.step",
                  "torch.profiling=on,exprs=a[\"b=c,d\"],e,nan=on", "torch.modules=*",
                  "torch.modules=first, second.*",
                  "torch.profiling=on, variables=loss@train, acc@train",
                  "torch.profiling=random:0.5", "torch.profiling=rate=0.25",
                  "torch.sample_rate=0.1", "torch.profiling=off", "torch.profiling=true"):
        assert said(right).returncode == 0, right
    names = ["torch.variables=" + name for name in (
        "1+1", "a b", "@", "x@", "x@y@z", "..a", "a..b", "a.", "f(x)", "x@<>", "loss.item()",
        "a[", "a[b]", "a['b", "a['']", "[0]", "a[1]b", "a[99999999999]")]
    for wrong in (*names, "torch.modules=,,", "torch.sample_rate=2",
                  "torch.sample_rate=-1", "torch.sample_rate=nan", "torch.profiling=on,foo=1",
                  "torch.comm_timeout=-1", "torch.detect_nan=maybe", "torch.memory=2"):
        done = said(wrong)
        assert done.returncode != 0 and len(done.stderr.splitlines()) == 1, wrong
    case.run()
    assert case.target.rows("select count(*) > 0 from python.torch_trace") == [[True]]


def test_settings_that_set_others_say_so(world, python):
    case = Case(world, "steps.py", python)

    def holds(*names):
        return [case.target.probing("config", "get", "torch." + n).stdout.strip() for n in names]

    def done(*words):
        result = case.target.probing(*words)
        assert result.returncode == 0, result.stderr
    done("config", "torch.profiling=0.25,backward=on,exprs=loss@train, acc,layers=a.*")
    names = ("profiling", "sample_rate", "sample_every", "backward", "detect_nan", "variables",
             "modules")
    line = "0.25,backward=on,exprs=loss@train, acc,layers=a.*"
    said = [line, "0.25", "0", "on", "off", "loss@train,acc", "a.*"]
    assert holds(*names) == said
    done("config", "torch.backward=off")
    said[0], said[3] = "", "off"
    assert holds(*names) == said
    done("config", "torch.sample_every=3")
    said[1], said[2] = "0.333333", "3"
    assert holds(*names) == said
    assert case.target.probing("config", "torch.profiling=on,nan=maybe").returncode == 1
    assert holds(*names) == said
    for word in ("stop", "load"):
        done("plugin", word, "torch")
    assert holds(*names) == said
    done("config", "torch.sample_rate=1")
    said[1:3] = "1", "1"
    assert holds(*names) == said


def test_the_first_nan_in_every_layout(world, python):
    """And whatever is read of tensors, modes of the program do not hear of it."""
    case = Case(world, "nonfinite.py", python)
    done = case.target.probing("config", "torch.profiling=on,nan=on,backward=on,exprs=optimizer")
    assert done.returncode == 0, done.stderr
    seen = case.run()
    rows = case.target.rows("select local_step, func, value from python.variables "
                            "where name = 'nonfinite' order by ts")
    kinds = seen["kinds"]
    assert [row[:2] for row in rows][:len(kinds)] == [[n, name] for n, name in enumerate(kinds)]
    whole = {name: text for _, name, text in rows}
    assert whole["sliced"].startswith("1 NaN and 0 infinite of 500 ")
    assert whole["holes"].startswith("1 NaN and 0 infinite of 32 ")
    assert whole["infinite"].startswith("0 NaN and 1 infinite of 1003 ")
    assert whole["expanded"].startswith("9 NaN and 0 infinite of 63 ")
    assert "more numbers than are counted" in whole["large"]
    assert seen["heard"][0] == seen["heard"][1] and seen["heard"][0]


@pytest.mark.one_torch
def test_loss_curve_is_the_same_over_many_loads(world, python):
    """However many steps the loop has done meanwhile: as many without us give the same losses."""
    plain, entered = world.tmp / "plain", world.tmp / "entered"
    target = world.train("--losses", str(entered), python=python)
    target.inject()
    for _ in range(LOADS):
        for word in ("load", "stop"):
            done = target.probing("plugin", word, "torch")
            assert done.returncode == 0, done.stdout + done.stderr
    last = entered.read_text().count("\n")
    shared.wait_for(lambda: entered.read_text().count("\n") > last + 1, "steps after the last")
    target.kill()
    seen = entered.read_text().splitlines()[:last + 1]  # the last line may not be whole
    subprocess.run([python, "-W", "ignore", str(shared.TRAIN), "--steps", str(len(seen)),
                    "--losses", str(plain)], check=True, env=world.env, stdout=subprocess.DEVNULL)
    assert seen == plain.read_text().splitlines()


def test_stop_leaves_no_hook(world, python):
    case = Case(world, "steps.py", python)
    assert "hook" in case.hooks()
    case.run()
    for _ in range(LOADS):
        case.stop()
        case.load()
    case.stop()
    assert case.hooks() == ["function"] * 6


# The plugin's look for the group waits, with the GIL given up, while a file is there.
WAITS_IN_A_STEP_END = """
import os, sys, time
import torch
import torch.distributed.distributed_c10d as c10d
here, go = sys.argv[1:]
class World:
    @property
    def _default_pg(self):
        while os.path.exists(here) and not os.path.exists(go):
            open(here, "w").write("inside")
            time.sleep(0.005)
    default_pg = _default_pg
c10d._world = World()
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for n in range(10 ** 9):
    loss = model(torch.ones(1, 2)).sum()
    loss.backward()
    optimizer.step()
    print("step", n, flush=True)
    time.sleep(0.001)
"""


def test_stopped_and_ejected_in_the_middle_of_a_steps_end(world, python):
    """Python runs there, so the GIL is given up; who ends the plugin waits for the thread."""
    script, here, go = (world.tmp / name for name in ("waits.py", "here", "go"))
    script.write_text(WAITS_IN_A_STEP_END)
    target = world.start(python, "-W", "ignore", "-u", str(script), str(here), str(go))
    target.wait_line("step")
    for words in (("plugin", "stop", "torch"), ("eject",)):
        target.inject("--plugin", "torch")
        here.touch()
        shared.wait_for(lambda: here.read_text() == "inside", "the thread in the step's end")
        leaves = subprocess.Popen([str(shared.CLI), "-t", str(target.pid), *words], env=world.env,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            leaves.communicate(timeout=1)  # it waits for the thread; if not, we go on all the same
        except subprocess.TimeoutExpired:
            pass
        go.touch()
        said = leaves.communicate(timeout=60)[1]
        steps = target.output().count("step")
        shared.wait_for(lambda: not target.alive() or target.output().count("step") > steps + 3,
                        "steps")
        assert target.alive(), target.process.poll()
        assert leaves.returncode == 0, said
        here.unlink()
        go.unlink()


def test_refuses_a_process_without_torch(world):
    target = world.python("import time\nprint('ready', flush=True)\n"
                          "while True: time.sleep(0.01)\n", python=sys.executable)
    target.wait_line("ready")
    target.inject()
    done = target.probing("plugin", "load", "torch")
    assert done.returncode != 0
    assert "import torch" in done.stderr and len(done.stderr.strip().splitlines()) <= 2
    assert target.probing("query", "select 1").returncode == 0 and target.alive()
