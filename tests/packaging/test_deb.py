# SPDX-License-Identifier: Apache-2.0
"""The Debian packages, the archive that runs from any folder, and `scons install`."""
import json
import os
import re
import shutil
import sys

import pytest
from installations import STRANGER, VERSION, build_of, files_below, package, run, worked
from world import BUILD, CORE, ROOT

ARCH = os.uname().machine
DEB_ARCH = {"x86_64": "amd64", "aarch64": "arm64"}[ARCH]


def unpacked(deb, folder):
    if not shutil.which("dpkg-deb"):
        pytest.skip("no dpkg-deb")
    worked("dpkg-deb", "-x", package(deb % (VERSION, DEB_ARCH)), folder)
    return folder


def test_deb(world):
    usr = unpacked("probing_%s-1_%s.deb", world.tmp / "root") / "usr"
    fields = worked("dpkg-deb", "-f", package("probing_%s-1_%s.deb" % (VERSION, DEB_ARCH)))
    assert "Depends: libc6 (>= 2.17)\n" in fields
    assert "%s/lib/probing/libprobing.so, %s" % (usr, build_of(CORE)) in worked(
        usr / "bin" / "probing", "--version", "-v")
    env = {"PYTHONPATH": str(usr / "lib" / "python3" / "dist-packages")}
    assert worked(sys.executable, "-c", "import probing; print(probing.library())",
                  env=env) == "%s/lib/probing/libprobing.so\n" % usr
    assert build_of(CORE) in worked(sys.executable, "-m", "probing", "--version", env=env)
    for name in ("share/man/man1/probing.1.gz", "share/bash-completion/completions/probing",
                 "share/zsh/vendor-completions/_probing", "share/doc/probing/copyright",
                 "share/fish/vendor_completions.d/probing.fish", "include/probing/plugin.h"):
        assert (usr / name).stat().st_size > 0
    worked("bash", "-n", usr / "share" / "bash-completion" / "completions" / "probing")


def test_dpkg_installs_and_removes_it(world):
    """Into a root of its own, which has no scripts to run; nothing stays of it."""
    if not shutil.which("dpkg") or os.geteuid() != 0:
        pytest.skip("no dpkg, or not root")
    root = world.tmp / "root"
    for folder in ("info", "updates", "triggers"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    for name in ("status", "available"):
        (root / "var/lib/dpkg" / name).touch()
    dpkg = ("dpkg", "--root=%s" % root, "--force-depends", "--log=%s/log" % world.tmp)
    worked(*dpkg, "-i", package("probing_%s-1_%s.deb" % (VERSION, DEB_ARCH)))
    command = root / "usr" / "bin" / "probing"
    target = world.python(STRANGER)
    target.wait_line("ready")
    assert "entered" in worked(command, "-t", target.pid, "inject", env=world.env)
    assert "waits_here" in worked(command, "-t", target.pid, "backtrace", env=world.env)
    assert worked(*dpkg, "-V", "probing") == ""
    worked(*dpkg, "-P", "probing")
    assert not (root / "usr").exists() or list((root / "usr").iterdir()) == []


def test_debug_files_are_found_by_build_id(world):
    usr = unpacked("probing_%s-1_%s.deb", world.tmp / "root") / "usr"
    debug = unpacked("probing-dbgsym_%s-1_%s.deb", world.tmp / "debug") / "usr/lib/debug"
    programs = [usr / "bin" / "probing", usr / "lib" / "probing" / "libprobing.so"]
    for path in programs + sorted((usr / "lib" / "probing" / "plugins").glob("*.so")):
        known = re.search("Build ID: ([0-9a-f]+)", worked("readelf", "-n", path)).group(1)
        symbols = debug / ".build-id" / known[:2] / (known[2:] + ".debug")
        assert ".debug_info" in worked("readelf", "-SW", symbols)
        assert ".debug_info" not in worked("readelf", "-SW", path)


def test_lintian_has_nothing_to_say():
    if not shutil.which("lintian"):
        pytest.skip("no lintian")
    for name in ("probing", "probing-dbgsym"):
        path = package("%s_%s-1_%s.deb" % (name, VERSION, DEB_ARCH))
        assert worked("lintian", "--allow-root", path) == ""


def test_archive_runs_from_any_folder(world):
    worked("tar", "-C", world.tmp, "-xf", package("probing-%s-%s.tar.xz" % (VERSION, ARCH)))
    top = (world.tmp / ("probing-%s-%s" % (VERSION, ARCH))).rename(world.tmp / "any where")
    command = top / "bin" / "probing"
    assert "%s/lib/probing/libprobing.so" % top in worked(command, "--version", "-v")
    target = world.python(STRANGER)
    target.wait_line("ready")
    assert "entered" in worked(command, "-t", target.pid, "inject", env=world.env)
    assert "waits_here" in worked(command, "-t", target.pid, "backtrace", env=world.env)
    bom = json.loads((top / "share" / "doc" / "probing" / "sbom.cdx.json").read_text())
    assert bom["bomFormat"] == "CycloneDX"
    names = {p["name"]: p for p in bom["components"]}
    assert set(names) == {"lua", "lmdb", "zlib", "libwebsockets", "libunwind"}
    assert all(p["version"] and p["licenses"] and "sha256:" in p["purl"] for p in names.values())
    licenses = worked(command, "--licenses")
    assert all("%s %s" % (n, p["version"]) in licenses for n, p in names.items())


def test_install_and_its_list(world):
    """`scons install` brings the Python package, and says what it has put where."""
    if BUILD != ROOT / "build" / "release" or not shutil.which("scons"):
        pytest.skip("scons installs build/release")
    code, out, err = run("scons", "-s", "install", "DESTDIR=%s/dest" % world.tmp, "prefix=/opt/p",
                         cwd=ROOT)
    assert code == 0, out + err
    top = world.tmp / "dest"
    listed = (top / "opt/p/lib/probing/files.txt").read_text().split("\n")[:-1]
    assert sorted("/" + n for n in files_below(top)) == sorted(listed)
    package_of = next((top / "opt/p/lib").glob("python3*/*-packages"))
    assert worked(sys.executable, "-c", "import probing; print(probing.library())",
                  env={"PYTHONPATH": str(package_of)}) == "%s/opt/p/lib/probing/libprobing.so\n" \
        % top
    assert worked(top / "opt/p/bin/probing", "--version") == worked(
        sys.executable, "-m", "probing", "--version", env={"PYTHONPATH": str(package_of)})
    other = package_of / "others.py"
    other.write_text("")
    words = ["scons", "-s", "uninstall", "DESTDIR=%s/dest" % world.tmp, "prefix=/opt/p"]
    code, out, err = run(*words, cwd=ROOT)
    assert code == 0, out + err
    assert [str(p) for p in files_below(top)] == [str(other.relative_to(top))]
    assert not (top / "opt/p/bin").exists() and package_of.exists()
    code, out, err = run(*words, cwd=ROOT)
    assert code != 0 and "nothing to uninstall" in out + err
