# SPDX-License-Identifier: Apache-2.0
"""Who asks has little: of stack, of address space, of what a name may be.  Nothing crashes, and
each error names its cause."""
import os
import signal
import subprocess

import pytest
from ranks import four, rows  # noqa: F401
from test_relay import far, parent_of  # noqa: F401
from world import CLI, wait_for


def limited(far, limit, value, *words):  # noqa: F811
    """The command under such a limit, soft and hard; value: of bash's `ulimit`."""
    return subprocess.run(["bash", "-c", "ulimit %s %d && exec \"$@\"" % (limit, value), "x",
                           str(CLI), *words], env=dict(far.world.env, **far.here),
                          capture_output=True, text=True, timeout=120)


def test_a_small_stack(far):  # noqa: F811
    """With 64 kB it crashed where other machines were asked, with 32 kB anywhere."""
    job = "job:" + far.job
    for target in (job, "ssh:h1/" + job):
        done = limited(far, "-s", 64, "-t", target, "query", "--format", "json",
                       "select count(*) as n from global.probing.tables where name = 'tables'")
        assert done.returncode == 0 and rows(done) == [{"n": 4}], (target, done)
    for words in (["-t", job, "eval", "__import__('os').getpid()"], ["list"],
                  ["cluster", "status", "--job", far.job]):
        done = limited(far, "-s", 32, *words)
        assert done.returncode == 0 and str(far.ranks[3].pid) in done.stdout, (words, done)


def test_little_address_space(far):  # noqa: F811
    """With 20 MB `list` said that nobody has a core, and others that there are too many threads.
    With 8 an error had no words, and who asked another machine said nothing at all."""
    for kilobytes in (20480, 16384, 12288, 10240, 9216, 8704, 8448, 8320, 8192, 8128, 8064, 8032):
        for words in (["list"], ["-t", "job:" + far.job, "query", "select 1"],
                      ["-t", "ssh:h1/job:" + far.job, "query", "select 1"]):
            done = limited(far, "-v", kilobytes, *words)
            assert done.returncode in (0, 1, 127), (kilobytes, words, done)  # 127: of the loader
            assert "ulimit -u" not in done.stderr, (kilobytes, words, done)
            if done.returncode == 0:
                assert str(far.ranks[3].pid) in done.stdout or words != ["list"], done
            else:
                assert done.stderr[:9] != "probing: " or done.stderr[9:].strip(), done
                assert done.stderr, (kilobytes, words, done)
            assert kilobytes < 12288 or done.returncode == 0, (kilobytes, words, done)


def test_few_files(far):  # noqa: F811
    """`list` said that nobody has a core, and `ship` that no rank of the job runs, or that their
    directories do not say whose they are."""
    for n in range(4, 14):
        done = limited(far, "-n", n, "list")
        assert done.returncode == 0 and str(far.ranks[3].pid) in done.stdout \
            or done.returncode == 1 and "Too many open files" in done.stderr, (n, done)
        done = limited(far, "-n", n, "-t", "job:" + far.job, "ship", "--once", "--to",
                       "parquet:/nowhere", "--state", "/nowhere/state")
        assert done.returncode == 1 and "(ulimit -n)" in done.stderr, (n, done)


def test_the_process_with_the_connections_is_killed(far):  # noqa: F811
    """As by the kernel where memory is short: the command ended, and said nothing."""
    asker = far.begin("-t", "ssh:gated/job:" + far.job, "query", "select 1")
    wait_for(lambda: "gated" in far.shells(), "the remote shell")
    os.kill(parent_of(far.shells()["gated"]), signal.SIGKILL)
    out, err = asker.communicate(timeout=120)
    far.open_gate()  # what stood for ssh hears of no end
    assert asker.returncode == 1 and out == "" and "has ended: signal 9" in err, (out, err)


@pytest.mark.parametrize("name", [
    "relay:h1", "relay:h1/12", "relay:[::1]", "relay:h1:0", "relay:h1:65536", "relay:h1:x",
    "relay::22", "relay:", "ssh:", "ssh:-x", "ssh:a b/12", "relay:h[1-2]", "ssh:h1,relay:h2"])
def test_a_name_of_no_host_is_misuse(far, name):  # noqa: F811
    """relay:HOST without its port was one who did not answer, as if it might another time."""
    done = far.probing("-t", name, "query", "select 1")
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("probing: ") and done.stderr.count("\n") == 1, done
