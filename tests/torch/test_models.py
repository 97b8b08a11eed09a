# SPDX-License-Identifier: Apache-2.0
"""torch.modules and torch.gradients say what torch itself says."""
import pytest
from cases import Case
from world import wait_for

QUERIES = 60


def test_modules_and_gradients(world, python):
    case = Case(world, "models.py", python)
    wanted = case.run()
    rows = case.target.rows("select root || ':' || name, class, training, parameters, trainable, "
                            "bytes, buffer_bytes, parent, depth, device from torch.modules")
    seen = {row[0]: row[1:7] for row in rows if row[0] in wanted["modules"]}
    assert seen == wanted["modules"]
    assert len(rows) == len({row[0] for row in rows})  # what is shared is there once
    by_name = {row[0]: row[7:] for row in rows}
    assert by_name["Model:Model"] == [None, 0, None]
    assert by_name["Model:head"] == ["Model", 1, "cpu"]
    assert by_name["Model:blocks.0.shared"] == ["blocks.0", 3, "cpu"]
    gradients = case.target.rows("select name, norm, nan_count, inf_count, consistent, note, "
                                 "elements from torch.gradients where root = 'Model'")
    broken = "blocks.1.own.weight"
    norms = {row[0]: row[1] for row in gradients}
    assert set(norms) == set(wanted["norms"])  # what is frozen has none
    for name, norm in wanted["norms"].items():
        if name != broken:
            assert norms[name] == pytest.approx(norm, rel=1e-5, abs=1e-9), name
    assert [row[2:5] for row in gradients if row[0] == broken] == [[1, 1, 1]]
    assert all(row[4] == 1 and row[5] is None for row in gradients)
    notes = case.target.rows("select distinct note from torch.gradients where root = 'Linear'")
    assert notes == [["none just now"]]
    held = case.target.rows("select sum(gradient_bytes), sum(bytes) from torch.modules "
                            "where root = 'Model'")
    assert 0 < held[0][0] < held[0][1]


def test_gradients_of_threads_that_train(world, python):
    """Each is read by its own thread: to free a gradient torch gives up the GIL half way, and who
    asked for it then crashed the program."""
    case = Case(world, "training.py", python)
    done = case.target.probing("config", "torch.profiling=on,nan=on")
    assert done.returncode == 0, done.stderr
    for _ in range(QUERIES):
        rows = case.target.rows("select root, count(*), count(norm), max(note) "
                                "from torch.gradients group by 1 order by 1")
        assert rows == [["First", 40, 40, None], ["Other", 80, 80, None]]
        assert case.target.rows("select root, min(gradient_bytes) from torch.modules where "
                                "parameters > 0 group by 1 order by 1") == [
            ["First", 4224], ["Other", 4224]]
    case.go.touch()
    case.target.wait_line("First has ended")
    for _ in range(2):
        case.target.wait_line("Other has ended")
    # The others' models go a moment after their last words.
    wait_for(lambda: case.target.rows("select root, count(norm), min(note) from torch.gradients "
                                      "group by 1") ==
             [["First", 0, "not read: the thread that calls its model did not reach a safe point"]],
             "the first model alone, not read")
    rows = case.target.rows("select distinct gradient_bytes from torch.modules where root = 'First'"
                            " and parameters > 0")
    assert rows == [[None]]
    case.stop()
    assert case.target.alive()
