# SPDX-License-Identifier: Apache-2.0
"""Each Python that is tried, and each torch; in the long form beside busy processes, too."""
import os

from truth import LONG, some_pythons
from world import DEBIAN_PYTHON, has_torch

TORCHES = [DEBIAN_PYTHON] + [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]


def pytest_generate_tests(metafunc):
    names = metafunc.fixturenames
    if "python" in names:
        found = some_pythons()
        metafunc.parametrize("python", list(found.values()), ids=list(found))
    if "torch" in names:
        metafunc.parametrize("torch", [p for p in TORCHES if has_torch(p)])
    if "busy" in names:
        metafunc.parametrize("busy", [False, True] if LONG else [False], ids="busy {}".format)
