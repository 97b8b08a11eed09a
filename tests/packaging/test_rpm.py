# SPDX-License-Identifier: Apache-2.0
"""The RPM, where rpmbuild is."""
import os
import re
import shutil
import subprocess

import pytest
from installations import VERSION, archives, build_of, package, venv, worked
from world import CORE

import rpm_package

if not shutil.which("rpmbuild"):
    pytest.skip("no rpmbuild (Debian: rpm)", allow_module_level=True)

ARCH = os.uname().machine
NAME = "probing-%s-1.%s.rpm" % (VERSION, ARCH)


def test_what_it_says():
    asked = worked("rpm", "-qp", "--qf", "%{LICENSE}|%{BUILDHOST}|%{ARCH}", package(NAME))
    terms, host, arch = asked.split("|")
    assert terms.startswith("Apache-2.0 AND ") and "OLDAP-2.8" in terms and "Zlib" in terms
    assert (host, arch) == ("reproducible", ARCH)
    needs = worked("rpm", "-qp", "--requires", package(NAME)).splitlines()
    assert [n for n in needs if not n.startswith("rpmlib(")] == ["glibc >= 2.17"]
    worked("rpm", "-K", "--nosignature", package(NAME))
    owned = worked("rpm", "-qpl", package(NAME)).splitlines()
    for folder in ("/usr/lib/probing", "/usr/include/probing/ext", "/usr/share/doc/probing"):
        assert folder in owned  # so that nothing stays of them


def test_it_runs(world):
    if not shutil.which("cpio"):
        pytest.skip("no cpio")
    top = world.tmp / "root"
    top.mkdir()
    unpacked = subprocess.run("rpm2cpio %s | cpio -id --quiet" % package(NAME), shell=True, cwd=top,
                              stderr=subprocess.PIPE)
    assert unpacked.returncode == 0, unpacked.stderr
    command = top / "usr" / "bin" / "probing"
    out = worked(command, "--version", "-v")
    assert re.search("^library +%s/usr/lib/probing/libprobing.so, %s$" % (
        re.escape(str(top)), re.escape(build_of(CORE))), out, flags=re.M), out
    env = {"PYTHONPATH": str(top / "usr" / "lib" / "probing" / "python")}
    assert worked("/usr/bin/python3", "-m", "probing", "--version", env=env) == worked(
        command, "--version")
    assert worked("/usr/bin/python3", "-c", "import probing; print(probing.library())",
                  env=env) == "%s/usr/lib/probing/libprobing.so\n" % top
    # The line of docs/installation.md that brings the hook, too.
    own = venv("/usr/bin/python3", world.tmp / "venv")
    site = next((world.tmp / "venv").rglob("site-packages"))
    (site / "libprobing.pth").write_text("import site; site.addsitedir(%r)\n" % env["PYTHONPATH"])
    assert worked(own, "-c", "import probing; print(probing.is_running())",
                  env=dict(world.env, PROBING="1")) == "True\n"


def test_the_same_each_time(tmp_path):
    files = [archives.File("usr/bin/x", b"#!/bin/sh\n", 0o755),
             archives.File("usr/share/probing/y", b"text", 0o644)]

    def make():
        return rpm_package.rpm(files, ARCH, 1700000000, name="x", version="1", summary="s",
                               license="MIT", packager="nobody", text="t")
    first = make()
    assert first == make()
    (tmp_path / "x.rpm").write_bytes(first)
    assert "usr/bin/x" in worked("rpm", "-qpl", tmp_path / "x.rpm")
