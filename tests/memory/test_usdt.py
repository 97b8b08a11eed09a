# SPDX-License-Identifier: Apache-2.0
"""The memory plugin's probes for tools outside, as readelf sees them: the arguments themselves are
proven by plugins/memory/sample/usdt_test.c."""
import platform
import re
import shutil
import subprocess

import pytest
from world import BUILD

ARGUMENTS = {"x86_64": ["8@%rdi", "8@%rsi", "8@%rdx"], "aarch64": ["8@x0", "8@x1", "8@x2"]}


@pytest.mark.parametrize("stripped", [False, True])
def test_the_notes_name_the_probes(tmp_path, stripped):
    plugin = BUILD / "plugins" / "memory.so"
    if not shutil.which("readelf"):
        pytest.skip("no readelf")
    if stripped:  # as in packages
        whole, plugin = plugin, tmp_path / "memory.so"
        subprocess.run(["strip", "-o", str(plugin), str(whole)], check=True)
    notes = subprocess.run(["readelf", "-n", str(plugin)], capture_output=True, text=True).stdout
    found = dict(re.findall(r"Provider: otel_memory\s+Name: (\w+)\s+Location: 0x0*[1-9a-f]\w*, .*?"
                            r"Semaphore: 0x0+\s+Arguments: (.*)", notes))
    wanted = ARGUMENTS[platform.machine()]
    assert found == {"alloc": " ".join(wanted), "free": wanted[0]}, notes
