# SPDX-License-Identifier: Apache-2.0
"""torch.modules and torch.gradients say what torch itself says."""
import pytest
from test_torch import Case, python  # noqa: F401  (a fixture)


def test_modules_and_gradients(world, python):  # noqa: F811
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
    gradients = case.target.rows("select name, norm, nan, infinite, settled, note, elements "
                                 "from torch.gradients where root = 'Model'")
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
