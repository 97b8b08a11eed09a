# SPDX-License-Identifier: Apache-2.0
"""Each fuzz target over its saved inputs or its own seed: whole, cut and changed."""
import subprocess

import pytest

from world import BUILD, ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"


NAMES = sorted(f.name[:-len("_fuzz.c")] for f in (ROOT / "tests" / "fuzz").glob("*_fuzz.c"))


@pytest.mark.parametrize("name", NAMES)
def test_any_bytes(name):
    target = BUILD / "tests" / "fuzz" / (name + "_fuzz")
    if not target.exists():
        pytest.skip("%s is not built: scons unit" % target)
    files = sorted((CORPUS / name).iterdir()) if (CORPUS / name).exists() else []
    done = subprocess.run([target, *files], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stderr)
    fed, word = done.stdout.split()
    assert word == "inputs" and int(fed) > 1000
