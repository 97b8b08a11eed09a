# SPDX-License-Identifier: Apache-2.0
"""The python plugin's tests run their targets with every CPython of the machine."""
import pytest
import world as shared
from pythons import parametrize
from scripts import Scripts


def pytest_generate_tests(metafunc):
    parametrize(metafunc)


@pytest.fixture
def world(tmp_path):
    yield from shared.lend(Scripts(tmp_path))
