# SPDX-License-Identifier: Apache-2.0
"""Who asks has little: of stack, of address space, of what a name may be.  Nothing crashes, and
each error names its cause."""
import subprocess

import pytest
from ranks import four, rows  # noqa: F401
from test_relay import far  # noqa: F401
from world import CLI


def limited(far, limit, value, *words):  # noqa: F811
    """The command under such a limit, soft and hard."""
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
    """With 20 MB `list` said that nobody has a core, and others that there are too many threads."""
    for megabytes in (20, 16, 12, 10, 9, 8):
        for words in (["list"], ["-t", "job:" + far.job, "query", "select 1"]):
            done = limited(far, "-v", megabytes << 10, *words)
            assert done.returncode in (0, 1, 127), (megabytes, words, done)  # 127: of the loader
            assert "ulimit -u" not in done.stderr, (megabytes, words, done)
            if done.returncode == 0:
                assert str(far.ranks[3].pid) in done.stdout or words != ["list"], done
            else:
                assert done.stderr, (megabytes, words, done)
            assert megabytes < 12 or done.returncode == 0, (megabytes, words, done)


@pytest.mark.parametrize("name", [
    "relay:h1", "relay:h1/12", "relay:[::1]", "relay:h1:0", "relay:h1:65536", "relay:h1:x",
    "relay::22", "relay:", "ssh:", "ssh:-x", "ssh:a b/12", "relay:h[1-2]", "ssh:h1,relay:h2"])
def test_a_name_of_no_host_is_misuse(far, name):  # noqa: F811
    """relay:HOST without its port was one who did not answer, as if it might another time."""
    done = far.probing("-t", name, "query", "select 1")
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("probing: ") and done.stderr.count("\n") == 1, done
