# SPDX-License-Identifier: Apache-2.0
"""A view of the file system with /tmp and /dev/shm of its own, where several users live: the
default roots can be hostile there, and no other test's `gc` takes the traps away."""
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from world import CLI, hide, sanitized, wait_for

ALICE, MALLORY = 54321, 54322  # users that nobody is
LIMIT_S = 120                  # of a command; only a hang takes that long


class Roots:
    """Made by a process that keeps the view; what is below it is reached through /proc."""

    def __init__(self):
        if os.geteuid() != 0:
            pytest.skip("needs root: several users, and file systems of their own")
        self.keeper = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c",
             hide("/tmp", "/dev/shm") + "echo ready; exec sleep infinity"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.keeper.stdout.readline() != "ready\n":
            pytest.skip("no mounts can be made here: " + self.keeper.stderr.read())
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("PROBING", "PROBE", "LD_PRELOAD", "ENDPOINT", "TMPDIR"))}
        self.env.update(sanitized())

    def path(self, *parts):
        return Path("/proc/%d/root" % self.keeper.pid).joinpath(*[p.lstrip("/") for p in parts])

    def words(self, words, uid=0):
        """The words that run a program there as a user."""
        user = ["setpriv", "--reuid=%d" % uid, "--regid=%d" % uid, "--clear-groups"] if uid else []
        return ["nsenter", "--target", str(self.keeper.pid), "--mount", "--wd=/", *user,
                *map(str, words)]

    def probing(self, *words, uid=0, env=None, timeout=LIMIT_S):
        return subprocess.run(self.words([CLI, *words], uid), capture_output=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env=dict(self.env, **(env or {})),
                              encoding="utf-8", errors="replace")

    def start(self, *words, uid=0, env=None, **kwargs):
        return subprocess.Popen(self.words(words, uid), env=dict(self.env, **(env or {})),
                                stdin=subprocess.DEVNULL, **kwargs)

    def directory(self, name, uid, mode=0o700):
        """A directory of a user's, with parents of his below /tmp and /dev/shm."""
        path = self.path(name)
        if not path.parent.exists():
            self.directory(str(Path(name).parent), uid)
        path.mkdir(mode=mode)
        path.chmod(mode)
        os.chown(path, uid, uid)
        return path

    def file(self, name, uid, data=b"", mode=0o600):
        path = self.path(name)
        path.write_bytes(data)
        path.chmod(mode)
        os.chown(path, uid, uid)
        return path

    def link(self, name, target, uid):
        path = self.path(name)
        path.symlink_to(target)
        os.chown(path, uid, uid, follow_symlinks=False)
        return path

    def dead(self, uid, rows=100, env=None):
        """A process of a user's that was entered and killed.  Its number."""
        target = self.start("/usr/bin/python3", "-u", "-c",
                            "import time\nprint('ready')\nwhile True: time.sleep(1)", uid=uid,
                            env=env, stdout=subprocess.PIPE, text=True)
        try:
            assert target.stdout.readline() == "ready\n"
            done = self.probing("-t", target.pid, "inject", "-P", env=env)
            assert done.returncode == 0, done.stdout + done.stderr
            script = self.file("/tmp/kept.lua", uid, b"local t = probing.table('kept', "
                               b"{{'n', 'i64'}})\nfor i = 1, %d do while not t:add{n = i} do end "
                               b"end\n" % rows)
            done = self.probing("-t", target.pid, "script", "run", "/tmp/kept.lua", env=env)
            assert done.returncode == 0, done.stdout + done.stderr
            script.unlink()
            wait_for(lambda: "ended" in self.probing("-t", target.pid, "query",
                     "select state from probing.scripts", env=env).stdout, "the script's end")
        finally:
            target.kill()
            target.wait()
        return target.pid

    def end(self):
        self.keeper.kill()
        self.keeper.wait()
        self.keeper.stdout.close()
        self.keeper.stderr.close()


@pytest.fixture
def roots():
    made = Roots()
    yield made
    made.end()


@pytest.fixture(scope="module")
def shared_roots():
    made = Roots()
    yield made
    made.end()


def copy_of(source, target, uid):
    """A tree as it is, links too, of another user."""
    shutil.copytree(source, target, symlinks=True)
    for path in [target, *target.rglob("*")]:
        os.chown(path, uid, uid, follow_symlinks=False)
