# SPDX-License-Identifier: Apache-2.0
"""Building without a network: the sources of the libraries are where the packager has put them.

The whole build of a source archive takes minutes; here it is what finds, proves and refuses them.
"""
import configparser
import hashlib
import os
import shutil
import subprocess
import sys

import pytest
from world import ROOT

PARTS = ("scripts/tools/deps.py", "scripts/tools/licenses.py", "scripts/tools/lua_mends.py",
         "core/deps.lock", "core/script/poll.h")


@pytest.fixture
def tree(tmp_path):
    """deps.py and what it reads, in a tree whose lock names tarballs of this test: those in
    tmp_path/given."""
    top = tmp_path / "tree"
    for name in PARTS:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, top / name)
    (tmp_path / "given").mkdir()
    locks = configparser.ConfigParser()
    locks.read(top / "core" / "deps.lock")
    for name in locks.sections():
        data = b"the source of " + name.encode()
        (tmp_path / "given" / locks[name]["file"]).write_bytes(data)
        locks[name].update(sha256=hashlib.sha256(data).hexdigest(), urls="")
    with open(top / "core" / "deps.lock", "w") as out:
        locks.write(out)
    return top


def deps(tree, *words, given=None):
    """(exit code, all that it said) of deps.py where no network is."""
    space = ["unshare", "--net", "--map-root-user"]
    if subprocess.run(space + ["true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no network namespace can be made here")
    env = {k: v for k, v in os.environ.items() if k != "PROBING_DEPS_DIR"}
    env.update({"PROBING_DEPS_DIR": str(given)} if given else {})
    done = subprocess.run(space + [sys.executable, str(tree / "scripts/tools/deps.py"), *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env,
                          timeout=300)
    return done.returncode, done.stdout


def same_files(one, other):
    return {p.name: p.read_bytes() for p in one.iterdir()} == {
        p.name: p.read_bytes() for p in other.iterdir()}


def test_given_tarballs_are_taken(tree, tmp_path):
    assert deps(tree, "--fetch", str(tmp_path / "out"), given=tmp_path / "given") == (0, "")
    assert same_files(tmp_path / "out", tmp_path / "given")


def test_those_of_a_source_archive_are_taken(tree, tmp_path):
    shutil.copytree(tmp_path / "given", tree / "deps")
    assert deps(tree, "--fetch", str(tmp_path / "out")) == (0, "")
    assert same_files(tmp_path / "out", tmp_path / "given")


@pytest.mark.parametrize("harm,why", [
    (lambda path: path.unlink(), "is not there"),
    (lambda path: path.write_bytes(b"another"), "has another sha256 than")])
def test_what_is_not_right_is_refused(tree, tmp_path, harm, why):
    """Before anything is built."""
    broken = tmp_path / "given" / "lmdb_0.9.24.orig.tar.gz"
    harm(broken)
    for words in ([str(tmp_path / "out")], ["--fetch", str(tmp_path / "out")]):
        code, said = deps(tree, *words, given=tmp_path / "given")
        assert code == 1 and "%s %s" % (broken, why) in said, said
        assert "Traceback" not in said and "--fetch %s" % (tmp_path / "given") in said
        assert not (tmp_path / "out" / "lib").exists()


def test_no_network_and_nothing_given(tree, tmp_path):
    code, said = deps(tree, "--fetch", str(tmp_path / "out"))
    assert code == 1 and "no place has the pinned" in said and "Traceback" not in said, said
