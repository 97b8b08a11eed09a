# SPDX-License-Identifier: Apache-2.0
"""Buffers as a CUPTI wrote them (raw_cupti.py), played to the plugin: what becomes rows is what
was in them.  recorded/ has those of real ones, where a GPU was at hand (`scons gpu`); the
stand-in's show that recording and playing change nothing."""
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from standin import LIBRARIES, Device
from world import ROOT, wait_for

HERE = Path(ROOT) / "tests" / "cuda"
REAL = sorted((HERE / "recorded").glob("*.json"))
FIGURES = (HERE / "cupti_layouts.h").read_text()
SIZES = [int(n) for n in re.findall(r'^    \{"\w+", "CUpti_\w+", (\d+), \{', FIGURES, re.M)]
VERSIONS = [(name, int(api), SIZES[int(kernel)]) for name, api, kernel in re.findall(
    r'^    \{"([0-9.]+)", (\d+), \{(\d+),', FIGURES, re.M)]  # a kernel's layout comes first
RECORD = """
import sys
sys.path.insert(0, %r)
import raw_cupti as r
cupti = r.Cupti(%r)
assert set(cupti.start().values()) == {0}
lib = cupti.lib
lib.standin_kernel.argtypes = [r.c.c_char_p] + 3 * [r.c.c_uint32] + 3 * [r.c.c_uint64]
for i in range(40):
    lib.standin_kernel(b"first" if i %% 2 else b"second<int>", 0, 7, 3, 1000, 2000, 500 + i)
lib.standin_set(r.c.c_uint64(512), r.c.c_uint64(1000))
lib.standin_sync(r.c.c_uint64(0), r.c.c_uint64(90000))
lib.standin_unknown()
assert cupti.stop() == 0
r.save(cupti, %r)
"""
PLAY = """
import json
about = json.load(open(%(file)r + ".json"))
data = bytearray(open(%(file)r + ".bin", "rb").read())
keep = {at: ctypes.create_string_buffer((name or "").encode())
        for at, name in about["names"].items()}
begins = [sum(about["buffers"][:n]) for n in range(len(about["buffers"]))]
for n, offset, kind in about["records"]:
    at = begins[n] + offset + 104
    if kind == 10:  # its name is where it was in that process
        name = keep[str(int.from_bytes(data[at:at + 8], "little"))]
        data[at:at + 8] = ctypes.addressof(name).to_bytes(8, "little")
for begin, size in zip(begins, about["buffers"]):
    cupti.standin_play(bytes(data[begin:begin + size]), ctypes.c_size_t(size))
"""


def version_of(about):
    """A version of CUPTI that lays records out as that one: one number of API may have several."""
    gaps = [after - offset for (n, offset, kind), (m, after, _) in zip(
        about["records"], about["records"][1:]) if kind == 10 and n == m]
    return next(name for name, api, size in VERSIONS
                if api == about["version"] and size == min(gaps))


def check(world, file):
    about = json.loads(Path(str(file) + ".json").read_text())
    d = Device(world, "driver", "cupti", STANDIN_CUPTI=version_of(about),
               settings=["cuda.kernels=off", "cuda.max_rows_per_second=1000000"])
    d.do("cupti.standin_set_clock(%d - time.time_ns())" % about["timestamp"])
    assert d.target.probing("config", "cuda.kernels=on").returncode == 0
    d.wait_state("tracing")
    before = d.tracing("records", "unknown")
    d.do(PLAY % {"file": str(file)})
    kinds = [kind for _, _, kind in about["records"]]
    wait_for(lambda: sum(d.tracing("records", "unknown")) - sum(before) >= len(kinds),
             lambda: repr((before, len(kinds), d.rows("select * from cuda.tracing"))))
    assert d.tracing("torn", "lost", "late") == [0, 0, 0]
    # No row for calls that were short, and for contexts.
    d.wait_rows("select 1 from cuda.kernels", kinds.count(10))
    for table, of in (("kernels", (10,)), ("memcpy", (1, 2, 22)), ("memory", (49,)),
                      ("sync", (38,)), ("overhead", (17,))):
        n = d.rows("select count(*) from cuda.%s" % table)[0][0]
        assert n == sum(map(kinds.count, of)), table
    assert {row[0] for row in d.rows("select name from cuda.kernels")} == set(
        about["names"].values())
    return d


@pytest.mark.parametrize("version", ["11.8.87", "12.9.79", "13.0.85"])
def test_recording_and_playing_change_nothing(world, version):
    file = world.tmp / "recorded"
    subprocess.run([sys.executable, "-c", RECORD % (
        str(HERE), str(LIBRARIES / "libcupti.so"), str(file))],
        env={"STANDIN_CUPTI": version}, check=True)
    d = check(world, file)
    assert d.tracing("unknown") == [1]
    assert d.rows("select name, count(*), sum(duration_ns), min(launch_ns) from cuda.kernels "
                  "group by name order by name") == [["first", 20, 500 * 20 + 400, 1000],
                                                     ["second<int>", 20, 500 * 20 + 380, 1000]]


@pytest.mark.skipif(not REAL, reason="no GPU was ever at hand to record one")
@pytest.mark.parametrize("file", [f.with_suffix("") for f in REAL], ids=lambda f: f.name)
def test_of_a_real_cupti(world, file):
    check(world, file)
