# SPDX-License-Identifier: Apache-2.0
"""The public headers: they compile alone everywhere, and keep what earlier versions promised."""
import os
import shutil

import pytest
from product import ROOT, TOOLS, tool

INCLUDE = os.path.join(ROOT, "include")
SDK = os.path.join(ROOT, "sdk")
TABLES = os.path.join(ROOT, "tests", "abi")
COMPILERS = [("gcc", "c"), ("clang", "c"), ("g++", "c++"), ("clang++", "c++")]
STANDARDS = {"c": ("c99", "c17"), "c++": ("c++11", "c++17")}


def headers():
    found = [os.path.relpath(os.path.join(folder, name), INCLUDE)
             for folder, _, names in os.walk(INCLUDE) for name in names if name.endswith(".h")]
    return sorted(found) + ["probing_sdk.h"]


def tables():
    names = sorted(os.listdir(TABLES)) if os.path.isdir(TABLES) else []
    return [n for n in names if n.startswith("offsets_")]


@pytest.mark.parametrize("compiler,language", COMPILERS)
@pytest.mark.parametrize("header", headers())
def test_header_compiles_alone(header, compiler, language, tmp_path):
    if not shutil.which(compiler, path="/usr/bin:/bin"):
        pytest.skip("%s is not installed" % compiler)
    source = tmp_path / ("alone.c" if language == "c" else "alone.cc")
    source.write_text("#include <%s>\nint main(void) { return 0; }\n" % header)
    for standard in STANDARDS[language]:
        rc, text = tool(compiler, "-std=" + standard, "-Wall", "-Wextra", "-pedantic", "-Werror",
                        "-fsyntax-only", "-I" + INCLUDE, "-I" + SDK, str(source))
        assert rc == 0, "%s: %s" % (standard, text)


@pytest.mark.parametrize("table", tables())
def test_promises_are_kept(table):
    """When 1.0 is not yet frozen: scripts/tools/offsets.py --write."""
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "offsets.py"), "--check",
                    os.path.join(TABLES, table))
    assert rc == 0, text
