# SPDX-License-Identifier: Apache-2.0
"""Every source is right for clang too, with gcc's warnings as errors; `scons clang` builds it.

Unit tests' own files are read in the full tier only."""
import os
import sys

import pytest
from pythons import FULL
from world import ROOT

sys.path.insert(0, os.path.join(ROOT, "scripts", "tools"))
import check_clang  # noqa: E402


def rooms():
    """{folder: its sources}"""
    found = {}
    try:
        for path in sorted(check_clang.commands()):
            if FULL or not path.endswith("_test.c"):
                found.setdefault(os.path.dirname(path), []).append(path)
    except check_clang.Skip:
        found["no room"] = ["no source"]  # the test says why
    return found


ROOMS = rooms()


@pytest.mark.parametrize("room", ROOMS)
def test_clang_has_no_complaint(room):
    try:
        assert list(check_clang.complaints(check_clang.read, ROOMS[room])) == []
    except check_clang.Skip as why:
        pytest.skip(str(why))


BAD = "int main(void)\n{\n    int x;\n    return x && 0 ? 1 : x;\n}\n"


GOOD = "int main(void)\n{\n    return 0;\n}\n"


@pytest.mark.parametrize("source,bad", [(GOOD, False), (BAD, True)])
def test_it_can_tell(tmp_path, source, bad):
    path = tmp_path / "x.c"
    path.write_text(source)
    try:
        text = check_clang.read(str(path), "gcc -o x.o -c -Wall -Werror %s" % path)
    except check_clang.Skip as why:
        pytest.skip(str(why))
    assert bool(text) == bad and not (tmp_path / "x.o").exists(), text
