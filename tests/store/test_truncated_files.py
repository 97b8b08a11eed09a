# SPDX-License-Identifier: Apache-2.0
"""Somebody cuts our files short under a program that is sampled: it goes on, the answers say so."""
import os

import pytest
from world import wait_for

SPIN = """
import sys, time
print("ready", flush=True)
while True:
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    print("goes on", flush=True)
"""


@pytest.mark.parametrize("names", [["rings"], ["strings"], ["data.mdb"],
                                   ["data.mdb", "rings", "strings"]], ids=",".join)
def test_files_cut_short(world, names):
    target = world.python(SPIN)
    target.wait_line("ready")
    target.inject("-P")
    wait_for(lambda: target.rows("select count(*) from python.samples")[0][0] > 5, "samples")
    directory = next(d for d in world.data.iterdir() if d.name.startswith("%d-" % target.pid))
    for name in names:
        os.truncate(directory / name, 0)
    seen = target.output().count("goes on")
    wait_for(lambda: target.output().count("goes on") > seen + 10, "the program to go on")
    assert target.probing("backtrace").returncode == 0
    wait_for(lambda: target.probing("query", "select max(ts) from python.samples").returncode == 0,
             "an answer")
    assert target.probing("eject").returncode == 0
    seen = target.output().count("goes on")
    wait_for(lambda: target.output().count("goes on") > seen + 3, "the program after eject")
    assert target.alive()
