# SPDX-License-Identifier: Apache-2.0
"""The fixture that every end-to-end test may ask for; what it is stands in tests/world.py.  In
which order tests run, and beside which, where several run at once (xdist).  And what failed, for
scripts/tools/run_tests.py, which may run it again alone."""
import json
import os
import sys
import zlib

import pytest

# What pytest makes of each test file costs seconds of a processor in each worker: kept, once, where
# nobody else's is.  (For the programs under test PYTHONDONTWRITEBYTECODE stays as it is.)
sys.dont_write_bytecode = False
sys.pycache_prefix = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                                  "build", "pycache")
from world import world  # noqa: E402,F401


def pytest_configure(config):
    for line in ("some_pythons: with three of the CPythons (pythons.some), not each",
                 "one_torch: with one of the torches, which is taken by the test's name"):
        config.addinivalue_line("markers", line)


def shares(item):
    """Whether it needs what a fixture makes once for several tests of its file."""
    made = (defs[-1] for defs in item._fixtureinfo.name2fixturedefs.values())
    return any(fixture.scope != "function" and not fixture.func.__module__.startswith("_pytest.")
               for fixture in made)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items):
    """What shares something runs in one worker, which makes it once, and first, for it is long.
    All others are mixed, always in the same way: tests that compute beside those that wait."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        if shares(item):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    items.sort(key=lambda item: not shares(item) and zlib.crc32(item.nodeid.encode()))


def name_of(report):
    """As pytest takes it: xdist adds the group that a test runs in."""
    name, _, group = report.nodeid.rpartition("@")
    return name if name.startswith(group + "::") else report.nodeid


def pytest_runtest_logreport(report):
    path = os.environ.get("PROBING_TEST_FAILURES")
    if path and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"test": name_of(report), "said": report.longreprtext}) + "\n")
