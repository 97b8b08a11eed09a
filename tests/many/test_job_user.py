# SPDX-License-Identifier: Apache-2.0
"""A job has one user: what processes of others say of themselves makes them no ranks of it."""
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from world import CLI, DEBIAN_PYTHON, IDLE, World, lend, remote_shell, threads_of, wait_for

NOBODY = 65534
AS_NOBODY = ("setpriv", "--reuid=%d" % NOBODY, "--regid=%d" % NOBODY, "--clear-groups")

pytestmark = pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"),
                                reason="only root can be another user, too")


@pytest.fixture(scope="module")
def jobs():
    """A job of root with two ranks, one that nobody's process calls itself of, with a core, and a
    job of nobody."""
    folder = Path(tempfile.mkdtemp(prefix="job-user-", dir="/tmp"))
    folder.chmod(0o755)
    made = World(folder)
    made.data.chmod(0o1777)
    loan = lend(made)
    next(loan)
    made.job = "%d-%s" % (os.getpid(), folder.name[-4:])

    def rank(number, job=made.job, before=(), program=(DEBIAN_PYTHON, "-u", "-c", IDLE), **more):
        return made.start(*before, *program, env=dict(
            more, RANK=str(number), WORLD_SIZE="2", SLURM_JOB_ID=job,
            SLURM_JOB_NODELIST="of-%s[1-2]" % ("nobody" if before else "root")))

    made.rank = rank
    made.ranks = [rank(0), rank(1)]
    made.stranger = rank(1, before=AS_NOBODY)
    made.theirs = rank(0, job=made.job + "-his", before=AS_NOBODY)
    for target in made.targets:
        target.wait_line("ready")
    for target in made.ranks + [made.stranger]:
        target.inject()
    yield made
    next(loan, None)
    shutil.rmtree(str(folder))


def left_out(said, world):
    return "1 process of nobody (%d)" % world.stranger.pid in said and "left out" in said


def ranks_of(done):
    return [json.loads(line)["pid"] for line in done.stdout.splitlines()]


def test_code_is_sent_to_the_ranks_of_the_user_who_asks(jobs):
    code = "import builtins; builtins.evaluated = 'yes'; evaluated"
    done = jobs.probing("-t", "job:" + jobs.job, "eval", code)
    assert done.returncode == 0 and left_out(done.stderr, jobs), done
    assert done.stdout == "ranks 0-1: 'yes'\n", done.stdout
    seen = "getattr(__import__('builtins'), 'evaluated', 'no')"
    assert [t.probing("eval", seen).stdout for t in jobs.ranks + [jobs.stranger]] == \
        ["'yes'\n", "'yes'\n", "'no'\n"]


def test_it_is_no_member_of_an_answer(jobs):
    done = jobs.probing("-t", "job:" + jobs.job, "query", "--format", "json",
                        "select _rank, count(*) as n from global.cpu.tasks group by 1 order by 1")
    assert done.returncode == 0 and left_out(done.stderr, jobs), done
    assert [row[0] for row in json.loads(done.stdout)["rows"]] == [0, 1]


@pytest.mark.parametrize("words", [["status"], ["attach"], ["status", "--job"], ["attach", "--job"],
                                   ["detach", "--job"]])
def test_the_cluster_is_that_of_the_user_who_asks(jobs, words):
    ranks = [jobs.rank(i, job=jobs.job + "-new") for i in range(2)]
    stranger = jobs.rank(1, job=jobs.job + "-new", before=AS_NOBODY)
    for target in ranks + [stranger]:
        target.wait_line("ready")
    if words[0] == "detach":
        for target in ranks + [stranger]:
            target.inject()
    named = [jobs.job + "-new"] if words[1:] else []
    done = jobs.probing("cluster", words[0], "--json", *words[1:], *named)
    if named:
        assert sorted(ranks_of(done)) == [t.pid for t in ranks], done
        assert "1 process of nobody (%d)" % stranger.pid in done.stderr
    elif words[0] == "status":
        assert not {t.pid for t in (stranger, jobs.stranger, jobs.theirs)} & set(ranks_of(done))
        assert "processes of nobody" in done.stderr
    else:  # there are several of root's own: nobody's are not among those that are named
        assert done.returncode == 1 and "several jobs run here" in done.stderr
    assert ("probing/main" in threads_of(stranger.pid)) == (words[0] == "detach"), done
    for target in ranks + [stranger]:
        target.kill()


@pytest.mark.parametrize("user", ["nobody", "#%d" % NOBODY])
def test_root_names_the_job_of_another_user(jobs, user):
    his = jobs.job + "-his"
    done = jobs.probing("cluster", "status", "--json", "--job", "%s@%s" % (his, user))
    assert ranks_of(done) == [jobs.theirs.pid], done
    done = jobs.probing("-t", "job:%s@%s" % (jobs.job, user), "eval", "__import__('os').getuid()")
    assert done.returncode == 0 and done.stdout == "rank 1: %d\n" % NOBODY, done
    assert "2 processes of root (%d ...)" % jobs.ranks[0].pid in done.stderr
    for words in (("-t", "job:" + his, "eval", "1"), ("cluster", "status", "--job", his)):
        done = jobs.probing(*words)
        assert done.returncode == 1 and "job:%s@nobody (1 rank)" % his in done.stderr, done


def test_a_program_with_the_rights_of_another_is_no_rank(jobs):
    """The user who starts a setuid program writes its environment, and it runs as root."""
    program = jobs.tmp / "sleep"
    shutil.copy(shutil.which("sleep"), str(program))
    program.chmod(0o4755)
    target = jobs.rank(7, before=AS_NOBODY, program=(str(program), "1000"))
    uids = wait_for(lambda: [line.split()[1:3] for line in
                             Path("/proc/%d/status" % target.pid).read_text().splitlines()
                             if line.startswith("Uid:")
                             and os.readlink("/proc/%d/exe" % target.pid) == str(program)], "it")[0]
    if uids != [str(NOBODY), "0"]:
        pytest.skip("no setuid program runs in %s (nosuid)" % jobs.tmp)
    for words in ((), ("--job", jobs.job), ("--job", jobs.job + "@nobody")):
        done = jobs.probing("cluster", "status", "--json", *words)
        assert target.pid not in ranks_of(done) and str(target.pid) not in done.stderr, done
    done = jobs.probing("-t", str(target.pid), "inject", "--dry-run")
    assert done.returncode == 0 and str(jobs.data) not in done.stdout, done.stdout
    target.kill()


def test_a_rank_that_began_without_an_environment(jobs):
    """Nothing in it is not the same as nothing that is believed."""
    source = "import os\nos.environ.update(RANK='5', WORLD_SIZE='6', SLURM_JOB_ID='%s')\n%s" % (
        jobs.job + "-bare", IDLE)
    target = jobs.start("env", "-i", DEBIAN_PYTHON, "-u", "-c", source)
    target.wait_line("ready")
    done = jobs.probing("cluster", "status", "--json", "--job", jobs.job + "-bare")
    assert ranks_of(done) == [target.pid], done
    target.kill()


def test_no_machine_is_asked_that_another_user_names(jobs):
    asked = jobs.tmp / "asked"
    shell = remote_shell(jobs, "#!/bin/sh\necho \"$1\" >> '%s'\nexit 1\n" % asked)
    done = jobs.probing("cluster", "status", "--job", jobs.job, "--hosts", "auto", env=shell)
    assert sorted(asked.read_text().split()) == ["of-root1", "of-root2"], done
    done = jobs.probing("cluster", "nodes", "--json", "--job", jobs.job, env=shell)
    assert "of-root1" in done.stdout and "of-nobody" not in done.stdout
    asked.unlink()
    done = jobs.probing("cluster", "status", "--job", jobs.job + "-his", "--hosts", "auto",
                        env=shell)
    assert done.returncode == 1 and not asked.exists(), done


def test_a_list_of_nodes_without_end(jobs):
    """Ten thousand of them were taken before it was one too many."""
    target = jobs.rank(0, job=jobs.job + "-wide", SLURM_STEP_NODELIST="n[1-99999999]")
    target.wait_line("ready")
    done = jobs.probing("cluster", "nodes", "--json", "--job", jobs.job + "-wide")
    assert len(done.stdout.splitlines()) == 1 and "this machine" in done.stdout, done.stdout[:1000]
    assert "'n[1-99999999]' names more than 10000 nodes" in done.stderr, done.stderr
    target.kill()


def test_what_is_left_out_on_another_machine_is_said(jobs):
    shell = remote_shell(jobs, "#!/bin/sh\nexec sh -c \"$2\"\n")
    done = jobs.probing("-t", "ssh:there/job:" + jobs.job, "eval", "1 + 1", env=shell)
    assert done.returncode == 0 and done.stdout == "ranks 0-1: 2\n", done
    assert "there: left out" in done.stderr and left_out(done.stderr, jobs), done.stderr
    done = jobs.probing("-t", "ssh:there/job:%s@nobody" % jobs.job, "eval", "1 + 1", env=shell)
    assert done.returncode == 0 and done.stdout == "rank 1: 2\n", done
    done = jobs.probing("cluster", "status", "--json", "--job", jobs.job, "--hosts", "there",
                        env=shell)
    assert ranks_of(done) == [t.pid for t in jobs.ranks], done
    assert "there: left out" in done.stderr, done.stderr


def test_another_user_sees_his_own(jobs):
    place = jobs.tmp / "bin"
    place.mkdir()
    for file in (CLI, CLI.parent / "libprobing.so"):
        shutil.copy(str(file), str(place))
    done = subprocess.run([*AS_NOBODY, str(place / "probing"), "cluster", "status", "--json",
                           "--job", jobs.job], env=jobs.env, cwd="/", capture_output=True,
                          universal_newlines=True)
    assert ranks_of(done) == [jobs.stranger.pid] and "left out" not in done.stderr, done
