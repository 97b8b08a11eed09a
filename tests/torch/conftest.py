# SPDX-License-Identifier: Apache-2.0
"""For tests of the torch plugin: a Python that has torch, and a driver without a GPU."""
import shutil
import subprocess
import zlib

import pytest
import world as shared
from cases import HERE, OTHERS, PYTHONS
from pythons import FULL


def pytest_generate_tests(metafunc):
    """Each torch; of a test marked one_torch, or in such a file, one by its name: its subject is
    what we make of the rows, not how they come."""
    if "python" not in metafunc.fixturenames:
        return
    taken = PYTHONS
    if OTHERS and not FULL and metafunc.definition.get_closest_marker("one_torch"):
        taken = [PYTHONS[zlib.crc32(metafunc.function.__name__.encode()) % len(PYTHONS)]]
    metafunc.parametrize("python", taken, indirect=True)


@pytest.fixture
def python(request):
    if request.param == "another torch":
        pytest.skip("no other torch: set PROBING_TEST_TORCH=/path/to/python")
    if not shared.has_torch(request.param):
        pytest.skip("%s has no torch" % request.param)
    return request.param


@pytest.fixture
def library(world):
    """In the place of CUDA's driver."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    made = world.tmp / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(made),
                    str(HERE / "targets" / "libcuda.c")], check=True)
    return str(made)
