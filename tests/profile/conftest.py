# SPDX-License-Identifier: Apache-2.0
"""The profiler's tests run with every CPython of the machine."""
from pythons import parametrize


def pytest_generate_tests(metafunc):
    parametrize(metafunc)
