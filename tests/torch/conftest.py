# SPDX-License-Identifier: Apache-2.0
"""For tests of the torch plugin: a Python that has torch, and a driver without a GPU."""
import shutil
import subprocess

import pytest
import world as shared
from cases import HERE, PYTHONS


@pytest.fixture(params=PYTHONS)
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
