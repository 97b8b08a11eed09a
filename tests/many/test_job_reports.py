# SPDX-License-Identifier: Apache-2.0
"""Reports about a whole job: a stranger's plugin brings one, and it is as one of ours."""
import os
from pathlib import Path

import pytest
from ranks import Player, four, named, start_ranks  # noqa: F401
from world import remote_shell

SOURCE = (Path(__file__).parent / "reports" / "tally.c").read_text()


@pytest.fixture(scope="module")
def tally(four):
    """Four ranks of a job with the plugin, which the command finds."""
    made = four.plugin("tally", SOURCE)
    four.env["PROBING_PLUGIN_PATH"] = str(four.tmp)
    done = four.probing("-t", "job:" + four.job, "plugin", "load", str(made))
    assert done.returncode == 0, done.stderr
    return four


def answered(world):
    return "60 votes of 4\n" + "".join("2 columns, %d: %d\n" % (i, 10 * i) for i in range(4)) \
        + "".join("rank %d answered\n" % t.pid for t in world.ranks)


def test_it_runs_once_for_all(tally):
    for words in (["-t", "job:" + tally.job, "tally"], ["cluster", "tally", "--job", tally.job],
                  ["cluster", "--job", tally.job, "tally", "--json"],
                  ["cluster", "--job=" + tally.job, "tally"],
                  ["-t", named(*tally.ranks), "tally"]):
        done = tally.probing(*words)
        assert done.returncode == 0 and done.stdout == answered(tally), (words, done)
        assert done.stderr == "", words


SHELL = """#!/bin/sh
[ "$1" = lost ] && { echo "ssh: no route to $1" >&2; exit 255; }
shift
exec sh -c "$*"
"""


def test_whom_it_asks_is_said_as_for_the_others(tally):
    """--hosts, and how they are reached, were options of `hang` and its like only; so was -t."""
    done = tally.probing("-t", "job:" + tally.job, "cluster", "tally", "--json")
    assert done.returncode == 0 and done.stdout == answered(tally), done
    env = remote_shell(tally, SHELL)
    shell = ["--rsh", env.pop("PROBING_RSH"), "--remote-probing", env.pop("PROBING_REMOTE")]
    words = ["cluster", "tally", "--job", tally.job, "--hosts", "far"]
    done = tally.probing(*words, *shell, "--timeout", "60s")
    assert done.returncode == 0 and "60 votes of 4\n" in done.stdout, done
    done = tally.probing(*words[:-1], "far,lost", *shell, "--at-once=4")
    assert done.returncode == 1 and "60 votes of 4\n" in done.stdout, done
    assert "4 of 5 answered" in done.stderr and "no route to lost" in done.stderr, done.stderr


def test_a_job_s_name_names_nobody_else(tally):
    """What a job is called stands in its processes' environment, whoever has written it there:
    `job:NAME` was put into a list as it was, and what stood behind a comma was asked, too."""
    mark, job = tally.tmp / "mark", "x-%d,ssh:evil/all,n[1" % os.getpid()
    env = remote_shell(tally, "#!/bin/sh\necho $1 >> '%s'\nexit 1\n" % mark)
    ranks = start_ranks(tally, 2, TORCHELASTIC_RUN_ID=job)
    for target in ranks:
        assert target.probing("plugin", "load", str(tally.tmp / "tally.so")).returncode == 0
    try:
        done = tally.probing("cluster", "tally", "--job", job, env=env)
        assert done.returncode == 0 and done.stdout.startswith("10 votes of 2\n"), done
        assert not mark.exists(), mark.read_text()
    finally:
        for target in ranks:
            target.kill()


def test_one_process_is_a_job_too(tally):
    done = tally.probing("-t", str(tally.ranks[2].pid), "tally")
    assert done.returncode == 0 and done.stdout == (
        "20 votes of 1\n2 columns, 2: 20\nrank %d answered\n" % tally.ranks[2].pid), done


def test_who_does_not_answer_is_told(tally):
    silent = Player(lambda connection: connection.close())
    try:
        done = tally.probing("-t", named(tally.ranks[0], tally.ranks[3], silent), "tally")
        assert done.returncode == 1 and "30 votes of 2\n" in done.stdout, done
        assert "2 of 3 answered" in done.stderr and silent.name in done.stderr, done.stderr
    finally:
        silent.close()


def test_what_it_may_not(tally):
    done = tally.probing("-t", "job:" + tally.job, "tally", "--call")
    assert done.returncode == 1 and "one process only" in done.stderr, done.stderr
    done = tally.probing("cluster", "tally", "--job", tally.job, "--jsn")
    assert done.returncode == 2 and "did you mean '--json'" in done.stderr, done.stderr
    done = tally.probing("cluster", "tally", "--job", "no-such-job")
    assert done.returncode == 1 and "no-such-job" in done.stderr, done.stderr
    for words, said in ((["--job"], "--job NAME"), (["--at-once", "0"], "--at-once must be")):
        done = tally.probing("cluster", "tally", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
    done = tally.probing("-t", "job:x", "cluster", "tally", "--job", "x")
    assert done.returncode == 2 and "takes targets (-t), or a job" in done.stderr, done.stderr
    done = tally.probing("tally")
    assert done.returncode == 2 and "tally needs a target" in done.stderr, done.stderr


def test_ranks_without_the_plugin(world):
    world.plugin("tally", SOURCE)
    world.env["PROBING_PLUGIN_PATH"] = str(world.tmp)
    target = world.start("sleep", "600")
    target.inject()
    done = target.probing("tally")
    assert done.returncode == 1 and "plugin load tally" in done.stderr, done.stderr


def test_cluster_names_them(tally):
    done = tally.probing("cluster", "tallies")
    assert done.returncode == 2 and "of plugins," in done.stderr and "tally" in done.stderr
    # Its own help, not that of cluster.
    own = tally.probing("cluster", "--job", tally.job, "tally", "--help")
    assert own.returncode == 0 and own.stdout == tally.probing("tally", "--help").stdout != ""
    told = tally.probing("help", "cluster").stdout
    assert "tally" in told and "the votes of a job" in told, told
    # a report that is not about a job is none of cluster's
    assert tally.probing("cluster", "torch").returncode == 2


def test_the_flag_needs_a_target(world):
    world.plugin("tally", SOURCE.replace("PROBING_REPORT_TARGET | PROBING_REPORT_JOB",
                                         "PROBING_REPORT_JOB"))
    world.env["PROBING_PLUGIN_PATH"] = str(world.tmp)
    done = world.probing("help")
    assert "tally" not in done.stdout and "says that it needs no target" in done.stderr


def test_who_lacks_the_plugin_is_told(tally):
    without = tally.start("sleep", "600")
    without.inject()
    done = tally.probing("-t", named(tally.ranks[0], tally.ranks[3], without), "tally")
    assert "30 votes of 2\n" in done.stdout, done
    assert str(without.pid) in done.stderr, done.stderr
    without.kill()
