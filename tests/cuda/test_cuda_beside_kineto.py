# SPDX-License-Identifier: Apache-2.0
"""torch's own profiler runs: CUPTI is left to it, and taken again when it has ended.  torch is
real (2 or newer, PROBING_TEST_TORCH); CUPTI is a stand-in, which that torch does not call: of a
version that has one owner of buffers."""
import os

import pytest
from standin import Device
from world import wait_for

NEWER = [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
ON = "print([k for k in range(64) if cupti.standin_enabled(k)])"


@pytest.mark.skipif(not NEWER, reason="no torch 2: set PROBING_TEST_TORCH=/path/to/python")
def test_aside_while_the_profiler_runs(world):
    d = Device(world, "driver", "cupti", python=NEWER[0], STANDIN_CUPTI="13.0.85")
    d.do("import torch, torch.profiler\nprofile = torch.profiler.profile()")
    d.wait_state("tracing")
    d.do("kernel('before')")
    d.wait_rows("select 1 from cuda.kernels")
    d.do("profile.__enter__()")
    wait_for(lambda: d.tracing("state") == ["aside"], "it stepped aside")
    assert "torch.profiler (Kineto) runs" in d.tracing("reason")[0]
    # Nothing that torch's profiler switches on is switched off, nor are its buffers taken.
    assert d.do(ON) == "[1, 2, 4, 5, 10, 17, 38]"
    registered = d.do("print(cupti.standin_calls(3))")
    d.do("kernel('of the other')")
    # A user may switch it off meanwhile, and on again.
    for value in "off", "on":
        assert d.target.probing("config", "cuda.kernels=" + value).returncode == 0
    d.wait_state("aside")
    assert d.do("print(cupti.standin_calls(3))") == registered
    d.do("profile.__exit__(None, None, None)")
    d.wait_state("tracing")
    d.do("kernel('after')")
    d.wait_rows("select 1 from cuda.kernels where name = 'after'")
    assert d.rows("select name from cuda.kernels order by ts") == [["before"], ["after"]]


@pytest.mark.skipif(not NEWER, reason="no torch 2: set PROBING_TEST_TORCH=/path/to/python")
def test_a_profile_that_ends_after_us_leaves_nothing_on(world):
    d = Device(world, "driver", "cupti", python=NEWER[0], STANDIN_CUPTI="13.0.85")
    d.do("import torch, torch.profiler\nprofile = torch.profiler.profile()")
    d.wait_state("tracing")
    d.do("profile.__enter__()")
    d.wait_state("aside")
    d.do("profile.__exit__(None, None, None)")
    assert d.target.probing("config", "cuda.kernels=off").returncode == 0
    assert d.do(ON) == "[]"
