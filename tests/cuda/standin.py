# SPDX-License-Identifier: Apache-2.0
"""A Python process with stand-ins for CUDA's driver and for CUPTI, which does what it is told by
`eval`.  What it records is made up, record by record: no GPU is behind it."""
import json
import os
import re
from pathlib import Path

from world import BUILD, DEBIAN_PYTHON, ROOT, wait_for

LIBRARIES = BUILD / "tests" / "cuda" / "libraries"
EVERY = re.findall(r'^    \{"([0-9.]+)", \d+, \{[0-9, ]+\}\},$',
                      (Path(ROOT) / "tests" / "cuda" / "cupti_layouts.h").read_text(), re.M)
# At least one record of each layout; all of them are read in cupti/record_test.c.
VERSIONS = EVERY if os.environ.get("PROBING_TEST_FULL") else ["11.8.87", "12.9.79", "13.5.25"]
PROGRAM = """
import ctypes, os, sys, threading, time
def load(name):
    return ctypes.CDLL(os.path.join(%(libraries)r, name))
def stand(*names):
    global driver, cupti
    if "driver" in names:
        driver = load("libcuda.so.1")
        driver.cuInit(0)
    if "cupti" in names:
        cupti = load(os.environ.get("STANDIN_FILE", "libcupti.so"))
        cupti.standin_kernel.restype = cupti.standin_copy.restype = ctypes.c_uint64
        cupti.standin_kernel.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32,
                                         ctypes.c_int32] + 3 * [ctypes.c_uint64]
        cupti.standin_copy.argtypes = [ctypes.c_uint32, ctypes.c_uint64, ctypes.c_bool] \\
            + 3 * [ctypes.c_uint64]
        cupti.standin_memory.argtypes = [ctypes.c_uint32] + 3 * [ctypes.c_uint64]
        cupti.standin_sync.argtypes = cupti.standin_set.argtypes = 2 * [ctypes.c_uint64]
        cupti.standin_peer.argtypes = [ctypes.c_uint64] + 2 * [ctypes.c_uint32] + [ctypes.c_uint64]
        cupti.standin_set_clock.argtypes = [ctypes.c_int64]
        cupti.standin_burst.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_double]
        cupti.standin_load.argtypes = [ctypes.c_char_p, ctypes.c_uint32, ctypes.c_double] \\
            + 2 * [ctypes.c_uint64]
names = []
def kernel(name="kernel", device=0, stream=7, grid=10, call=5000, after=20000, ns=1000000):
    names.append(name.encode())  # CUPTI's stay, too
    return cupti.standin_kernel(names[-1], device, stream, grid, call, after, ns)
stand(*%(names)r)
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""


class Device:
    """The target and what is asked of it.  always: it is traced all the time; what tests launch as
    fast as it goes would be too much for cuda.window as it is usual."""

    def __init__(self, world, *names, python=DEBIAN_PYTHON, settings=(), plugins="cuda",
                 always=True, **env):
        self.libraries = LIBRARIES
        self.target = world.start(python, "-c", PROGRAM % {"libraries": str(LIBRARIES),
                                                           "names": names}, env=env)
        self.target.wait_line("ready")
        if always and (plugins or settings):  # a setting of a plugin loads it
            settings = ["cuda.window=always", *settings]
        words = [w for s in settings for w in ("-D", s)]
        self.target.inject(*words)
        for plugin in plugins.split():
            done = self.target.probing("plugin", "load", plugin)
            assert done.returncode == 0, done.stderr

    def do(self, code):
        done = self.target.probing("eval", code)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def rows(self, sql):
        return self.target.rows(sql)

    def tracing(self, *columns):
        return self.rows("select %s from cuda.tracing" % ", ".join(columns))[0]

    def wait_state(self, state):
        return wait_for(lambda: self.tracing("state")[0] == state,
                        lambda: "state %s, but %r" % (state, self.tracing("state", "reason")))

    def wait_rows(self, sql, n=1):
        return wait_for(lambda: (lambda r: r if len(r) >= n else None)(self.rows(sql)),
                        lambda: "%d rows of %s; %s" % (n, sql, json.dumps(
                            self.rows("select * from cuda.tracing"))))
