# SPDX-License-Identifier: Apache-2.0
"""In bursts samples thin out: the error that is stated covers what a program knows that it keeps
about as often as it says, though most of that is in no sample."""
import math

from memory_truth import LIVE
from world import DEBIAN_PYTHON

FUNCTIONS = 60
KEPT = 8 << 20
PROGRAM = """
import os, time
kept = []
made = {"kept": kept}
for i in range(%d):
    exec("def keep%%d():\\n    for i in range(128): kept.append(bytearray(65536))" %% i, made)
print("ready", flush=True)
while not os.path.exists(%r): time.sleep(0.01)
for i in range(%d):
    for k in range(1000): bytearray(500000)
    made["keep%%d" %% i]()
    time.sleep(0.05)
print("done", flush=True)
while True: time.sleep(0.01)
"""


def test_errors_cover_what_is_in_no_sample(world):
    go = world.tmp / "go"
    target = world.python(PROGRAM % (FUNCTIONS, str(go), FUNCTIONS), DEBIAN_PYTHON)
    target.wait_line("ready")
    # so little may it cost that few of many samples are left
    target.inject("--plugin", "python", "--plugin", "memory", "-D", "memory.max_overhead_pct=0.1")
    go.touch()
    target.wait_line("^done", timeout=300)
    (asked, most, unsampled), = target.rows(
        "select sample_bytes_setting, sample_bytes_max, unsampled_bytes from memory.sampling")
    assert most > 10 * asked, "samples were to thin out"
    found = {row[0]: row[1:] for row in target.rows(LIVE % "memory.live")}
    once = twice = 0
    for i in range(FUNCTIONS):
        bytes, error = (found.get("keep%d" % i) or (0, unsampled))[:2]
        once += abs(bytes - KEPT) <= error
        twice += abs(bytes - KEPT) <= 2 * error
        assert error < 3 * max(KEPT, bytes) + 2 * most, "an error that says nothing"
    print("samples up to %.0f MB apart, unsampled %.1f MB; of %d within one error %d, two %d" % (
        most / 1e6, unsampled / 1e6, FUNCTIONS, once, twice))
    # 68 and 95 of 100, and four standard errors of such a count
    for n, share in (once, 0.68), (twice, 0.95):
        least = FUNCTIONS * share - 4 * math.sqrt(FUNCTIONS * share * (1 - share))
        assert n >= least, (once, twice)
