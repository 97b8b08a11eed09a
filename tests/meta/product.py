# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests about the project: where things are, and how to ask a tool."""
import os
import subprocess

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, os.environ.get("PROBING_TEST_BUILD", "build/release"))
TOOLS = os.path.join(ROOT, "scripts", "tools")


def built(name):
    """Path of a product; the test is skipped when it was not built (the build says why)."""
    path = os.path.join(BUILD, name)
    if not os.path.exists(path):
        pytest.skip("%s is not built" % name)
    return path


def tool(*command):
    """(exit code, output) of one command, run at the top of the checkout."""
    env = dict(os.environ, LC_ALL="C", PATH="/usr/bin:/bin:" + os.environ["PATH"])
    done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode(errors="replace")


def output(*command):
    rc, text = tool(*command)
    assert rc == 0, text
    return text


def plugins():
    folder = os.path.join(BUILD, "plugins")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, n) for n in names if n.endswith(".so")]
