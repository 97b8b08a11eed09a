# SPDX-License-Identifier: Apache-2.0
"""A program without Python: its native stacks are shown; what needs Python says why it cannot."""
import os
import shutil
import subprocess

import pytest

SOURCE = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void wait_for_work(void) { for (;;) pause(); }
static void *work(void *a) { wait_for_work(); return a; }
int main(void) { pthread_t t; pthread_create(&t, 0, work, 0); puts("ready"); fflush(stdout);
  pthread_join(t, 0); }
"""


@pytest.fixture
def program(world):
    if not shutil.which("cc"):
        pytest.skip("no cc here")
    (world.tmp / "program.c").write_text(SOURCE)
    subprocess.run(["cc", "-O1", str(world.tmp / "program.c"), "-o", str(world.tmp / "program"),
                    "-pthread"], check=True)
    target = world.start(str(world.tmp / "program"))
    target.wait_line("ready")
    target.inject()
    return target


def test_native_stacks(program):
    before = os.readlink("/proc/%d/fd/0" % program.pid)
    done = program.probing("backtrace")
    assert done.returncode == 0 and done.stderr == "", done
    assert os.readlink("/proc/%d/fd/0" % program.pid) == before  # its input was closed once
    main, worker = done.stdout.split("\n\n")
    assert '"program"' in main and " main (program+" in main
    assert " wait_for_work (program+" in worker and "pause" in worker
    assert program.rows("select thread_name from python.backtrace"
                        " where func = 'wait_for_work'") == [["program"]]


def test_what_needs_python_says_so(program):
    for words in (["eval", "1"], ["trace", "a.b"], ["debug", "--pause"], ["backtrace", "--python"],
                  ["backtrace", "--tasks"]):
        done = program.probing(*words)
        assert done.returncode == 1 and "no CPython in this process" in done.stderr, done
    done = program.probing("plugin", "load", "torch")
    assert done.returncode == 1 and "found no Python" in done.stderr, done


def test_it_leaves_and_comes_again(program):
    assert program.probing("eject").returncode == 0
    program.inject()
    assert " wait_for_work (" in program.probing("backtrace").stdout
    assert program.alive()
