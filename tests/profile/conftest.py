# SPDX-License-Identifier: Apache-2.0
"""What the profiler's tests share: every CPython of the machine, and what samples say."""
import importlib.util
import re
import signal

import pytest
from world import BUILD, ROOT

_file = ROOT / "tests" / "python" / "conftest.py"
_spec = importlib.util.spec_from_file_location("python_conftest", _file)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
PYTHONS = _module.PYTHONS
HELPERS = BUILD / "tests" / "profile"


def pytest_generate_tests(metafunc):
    if "python" in metafunc.fixturenames:
        metafunc.parametrize("python", list(PYTHONS.values()), ids=list(PYTHONS))


def helper(name):
    path = HELPERS / name
    if not path.exists():
        pytest.fail("%s is not built: run scons unit" % path)
    return str(path)


def folded(text):
    """[(frames outermost first, ns)] of folded stacks."""
    found = []
    for line in text.splitlines():
        stack, _, value = line.rpartition(" ")
        found.append((stack.split(";"), int(value)))
    return found


def name(frame):
    """A frame's function without its file: "Thread.run (threading.py)" is run."""
    return re.sub(r" \([^()]*\)$", "", frame).rpartition(".")[2]


def share(stacks, function):
    """Which part of all time has this function in its stack."""
    total = sum(value for _, value in stacks)
    return sum(v for s, v in stacks if function in map(name, s)) / total


def handled_signals(pid):
    """Numbers of the signals that the process has handlers for."""
    with open("/proc/%d/status" % pid) as status:
        mask = int(re.search(r"^SigCgt:\s*(\w+)", status.read(), flags=re.M)[1], 16)
    return {n for n in range(1, signal.NSIG) if mask >> (n - 1) & 1}
