# SPDX-License-Identifier: Apache-2.0
"""Real libcupti without a GPU: it refuses, and that is told as it says it.  The wheels are those of
scripts/tools/cupti_layouts.py (build/cupti, or PROBING_TEST_CUPTI)."""
import os
from pathlib import Path

import pytest
from standin import EVERY, Device
from world import ROOT

WHEELS = Path(os.environ.get("PROBING_TEST_CUPTI") or Path(ROOT) / "build" / "cupti")
# 13.2 crashes in cuptiGetVersion() where there is no driver of NVIDIA's: nothing to be asked.
VERSIONS = [v for v in EVERY if not v.startswith("13.2.")]
if not os.environ.get("PROBING_TEST_FULL"):
    VERSIONS = ["11.8.87", "12.9.79", "13.0.85", "13.5.25"]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="there is a GPU: it would not refuse")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_is_told(world, version):
    found = sorted((WHEELS / version).glob("**/libcupti.so.*"))
    if not found:
        pytest.skip("no CUPTI %s: python3 scripts/tools/cupti_layouts.py fetches it" % version)
    d = Device(world, "driver")
    d.do("ctypes.CDLL(%r)" % str(found[0]))
    d.wait_state("refused")
    reason = d.tracing("reason")[0]
    assert str(found[0]) in reason
    assert ("CUPTI_ERROR_NOT_INITIALIZED (15)" in reason or "(999)" in reason
            or reason.endswith("error 999")), reason
    assert d.tracing("records", "begun") == [0, 0]
