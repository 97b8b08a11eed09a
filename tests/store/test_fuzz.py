# SPDX-License-Identifier: Apache-2.0
"""The saved inputs of the segment reader's fuzz target, replayed and changed a thousand times."""
import subprocess

import pytest

from world import BUILD, ROOT

TARGET = BUILD / "tests" / "fuzz" / "segment_fuzz"


def test_segments_of_any_bytes():
    if not TARGET.exists():
        pytest.skip("%s is not built: scons unit" % TARGET)
    corpus = sorted((ROOT / "tests" / "fuzz" / "corpus" / "segment").iterdir())
    done = subprocess.run([TARGET, *corpus], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "%d inputs\n" % len(corpus) and corpus
