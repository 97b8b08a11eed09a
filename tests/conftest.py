# SPDX-License-Identifier: Apache-2.0
"""The fixture that every end-to-end test may ask for; what it is stands in tests/world.py.  And
what failed, for scripts/tools/run_tests.py, which may run it again alone."""
import json
import os

from world import world  # noqa: F401


def pytest_runtest_logreport(report):
    path = os.environ.get("PROBING_TEST_FAILURES")
    if path and report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"test": report.nodeid, "said": report.longreprtext}) + "\n")
