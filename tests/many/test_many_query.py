# SPDX-License-Identifier: Apache-2.0
"""`-t 12,13`, `-t all`, `-t job:NAME`, `-t 'host[1-3]'`: one table of several processes."""
import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ranks import four, named, rows, start_ranks  # noqa: F401
from world import BUILD, CLI, remote_shell, wait_for

NUMBER = "select value::bigint as n from process.envs where name = 'RANK'"


def ask(world, targets, sql, *more, front=()):
    return world.probing("-t", targets, *front, "query", sql, "--format", "json", *more)


def test_a_list_is_one_table_in_order_of_rank(four):
    done = ask(four, named(*reversed(four.ranks)), NUMBER)
    assert done.returncode == 0, done.stderr
    assert rows(done) == [{"rank": i, "n": i} for i in range(4)]
    assert done.stderr == ""


def test_each_process_once(four):
    done = ask(four, named(four.ranks[1], four.ranks[1], four.ranks[0]), NUMBER)
    assert [r["rank"] for r in rows(done)] == [0, 1]


def test_formats(four):
    targets = named(*four.ranks[:2])
    sql = "select 1.5 as x, null as y, 'a,\"b' as s, timestamp '2024-01-31 10:00:00' as t"
    text = four.probing("-t", targets, "query", sql, "--format", "csv")
    table = list(csv.DictReader(io.StringIO(text.stdout)))
    assert [r["rank"] for r in table] == ["0", "1"] and table[1]["s"] == 'a,"b'
    text = four.probing("-t", targets, "query", sql, "--format", "jsonl")
    lines = [json.loads(line) for line in text.stdout.splitlines()]
    assert [r["rank"] for r in lines] == [0, 1] and lines[0]["t"].startswith("2024-01-31T10:00:00")
    text = four.probing("-t", targets, "query", sql)
    assert "rank" in text.stdout.splitlines()[0] and "(2 rows" in text.stdout
    types = {c["name"]: c["type"] for c in json.loads(ask(four, targets, sql).stdout)["columns"]}
    assert types == {"rank": "bigint", "x": "double", "y": "null", "s": "text", "t": "timestamp"}


def test_arrow_and_a_file(four, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    out = tmp_path / "tables.arrow"
    done = four.probing("-t", named(*four.ranks), "export", "--format", "arrow", "--table",
                        "probing.tables", "-o", str(out))
    assert done.returncode == 0, done.stderr
    with arrow.ipc.open_stream(out.open("rb")) as stream:
        table = stream.read_all()
    assert set(table.column("rank").to_pylist()) == {0, 1, 2, 3}


def test_files_of_many(four, tmp_path):
    out = tmp_path / "n.csv"
    done = four.probing("-t", named(*four.ranks), "export", "-f", "csv", NUMBER, "-o", str(out))
    assert done.returncode == 0, done.stderr
    assert out.read_text().split() == ["rank,n", "0,0", "1,1", "2,2", "3,3"]
    done = four.probing("-t", named(*four.ranks), "export", "--format", "perfetto", "-o",
                        str(tmp_path / "x"))
    assert done.returncode == 1 and "of one process" in done.stderr, done.stderr


def test_a_job_by_each_of_its_names(four):
    for name in (four.job, "127.0.0.1:%d" % four.port):
        done = ask(four, "job:" + name, NUMBER)
        assert [r["n"] for r in rows(done)] == [0, 1, 2, 3], done.stderr
    done = ask(four, "job:no-such-job-%d" % os.getpid(), "select 1")
    assert done.returncode == 1 and "no rank of a job" in done.stderr


def test_a_job_whose_name_is_a_list(world):
    """SLURM takes any name."""
    name, marked = r"lr=0.1,wd=[2\x", r"job:lr=0.1\,wd=\[2\\x"
    made = start_ranks(world, 2, SLURM_JOB_NAME=name)
    shell = remote_shell(world, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n")
    for target in (marked, marked + "," + str(made[0].pid), "ssh:far/" + marked):
        done = world.probing("-t", target, "query", "--format", "json", NUMBER, env=shell)
        assert [r["n"] for r in rows(done)] == [0, 1], (target, done.stderr)
    said = alone(world, ["RANK=0 'SLURM_JOB_NAME=%s'" % name], "job:other")
    assert marked + " (1 rank)" in said[0], said


def alone(world, ranks, *targets):
    """What is said of these targets where processes with these variables run, and no others: what
    other jobs run on this machine is out of sight."""
    flags = ["--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        flags += ["--user", "--map-root-user"]
    if subprocess.run(["unshare", *flags, "true"], capture_output=True).returncode != 0:
        pytest.skip("no processes of its own here")
    lines = ["env %s sleep 600 &" % r for r in ranks]
    lines.append("until [ $(grep -lx sleep /proc/[0-9]*/comm | wc -l) = %d ]; do :; done"
                 % len(ranks))
    lines += ["'%s' -t %s query 'select 1' 2>&1; echo $?" % (CLI, t) for t in targets]
    done = subprocess.run(["unshare", *flags, "sh", "-c", "\n".join(lines)], env=world.env,
                          stdout=subprocess.PIPE, encoding="utf-8", timeout=120)
    return done.stdout.splitlines()


def test_a_job_that_is_not_there_is_answered_with_those_that_are(world):
    ranks = ["RANK=%d TORCHELASTIC_RUN_ID=named" % i for i in range(4)]
    ranks += ["RANK=0 TORCHELASTIC_RUN_ID=job%d" % i for i in range(8)]
    said = alone(world, ranks, "job:other")
    assert said[-1] == "1" and "no rank of a job 'other' runs here" in said[0], said
    assert "job:named (4 ranks), job:job0 (1 rank), " in said[0], said
    assert " job:job6 (1 rank) and 1 more; " in said[0] and "job7" not in said[0], said


def test_jobs_that_nobody_has_named_are_told_apart_by_where_their_ranks_meet(world):
    """torchrun's static rendezvous calls each of them "none"."""
    places = ["127.0.0.1:4000%d" % i for i in range(2)]
    said = alone(world, ["RANK=%d LOCAL_RANK=%d WORLD_SIZE=2 MASTER_ADDR=%s MASTER_PORT=%s "
                         "TORCHELASTIC_RUN_ID=none" % (rank, rank, *place.split(":"))
                         for place in places for rank in range(2)], "job:none", "job:")
    assert said[1::2] == ["1", "2"] and all("job:" + p in said[0] for p in places), said
    assert all("job:%s (2 ranks)" % p in said[2] for p in places), said
    assert "job:none" not in said[2]


def test_children_and_wrappers_are_no_ranks(world):
    job = "family-%d" % os.getpid()
    source = ("import subprocess, sys\n"
              "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
              "print('child', child.pid, flush=True)\nchild.wait()\n")
    script = world.tmp / "parent.py"
    script.write_text(source)
    env = {"RANK": "0", "WORLD_SIZE": "1", "SLURM_JOB_ID": job}
    wrapper = world.start("/bin/sh", "-c", "%s launch -- %s -u %s; true" % (
        CLI, sys.executable, script), env=env)
    wrapper.wait_line("child")
    done = wait_for(lambda: (lambda d: d if d.returncode == 0 else None)(
        ask(world, "job:" + job, "select 1 as one")), "the rank's core")
    assert rows(done) == [{"rank": 0, "one": 1}], done.stdout


def test_without_ranks_it_is_the_process(world):
    made = start_ranks(world, 2, RANK=None, LOCAL_RANK=None, WORLD_SIZE=None)
    done = ask(world, named(*made), "select 1 as one")
    assert rows(done) == [{"process": str(t.pid), "one": 1} for t in made]


def test_both_where_only_some_have_one(world):
    ranked, plain = start_ranks(world, 1) + start_ranks(world, 1, RANK=None, LOCAL_RANK=None)
    done = ask(world, named(plain, ranked), "select 1 as one")
    assert rows(done) == [{"rank": 0, "process": str(ranked.pid), "one": 1},
                          {"rank": None, "process": str(plain.pid), "one": 1}]


def test_all_has_ours_in_it(four):
    done = ask(four, "all", "select value from process.envs where name = 'TORCHELASTIC_RUN_ID'",
               front=("--timeout", "20s"))  # others' processes may be stuck
    answer = [r for r in rows(done) if r["value"] == four.job]
    assert sorted(r["rank"] for r in answer) == [0, 1, 2, 3]


def test_what_lies_here_under_that_name_is_not_asked(four, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("all", "job:x", "%d,%d" % (four.ranks[0].pid, four.ranks[1].pid)):
        (tmp_path / name).write_text("")
    for text, n in (("all", len(four.ranks)), (",".join(str(r.pid) for r in four.ranks[:2]), 2)):
        done = four.probing("-t", text, "query", "select 1 as one", "--format", "jsonl")
        # Some of all may be other tests' and end meanwhile.
        assert text == "all" or done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) >= n, done.stderr


def test_a_column_of_that_name_is_left_alone(four):
    done = ask(four, named(*four.ranks[:2]), "select 7 as rank")
    assert rows(done) == [{"_rank": 0, "rank": 7}, {"_rank": 1, "rank": 7}]


LUA = "probing.table('many', {%s}):add{%s}\n"


def test_other_columns_types_and_tables(world):
    made = start_ranks(world, 3)
    scripts = ("n = 'i64', only_zero = 'i64'", "n = 1, only_zero = 5"), ("n = 'f64'", "n = 2.5")
    for target, (columns, values) in zip(made, scripts):
        text = world.tmp / "many.lua"
        text.write_text(LUA % (columns, values))
        done = target.probing("script", "run", str(text))
        assert done.returncode == 0, done.stderr
    for target in made[:2]:
        wait_for(lambda t=target: "1" in t.probing("query", "select count(*) from script.many",
                                                  "-f", "csv").stdout.splitlines()[1:], "a row")
    done = ask(world, named(*made), "select * from script.many")
    assert done.returncode == 1
    got = [{k: r[k] for k in ("rank", "n", "only_zero")} for r in rows(done)]
    assert got == [{"rank": 0, "n": 1.0, "only_zero": 5},
                   {"rank": 1, "n": 2.5, "only_zero": None}]
    assert "2 of 3 answered" in done.stderr and "rank 2" in done.stderr
    assert "script.many" in done.stderr
    assert "only_zero" in done.stderr and "n is" in done.stderr  # what differs is said


def test_a_limit_is_of_all(four):
    done = ask(four, named(*four.ranks), "select 1 as one", "--limit", "2")
    answer = json.loads(done.stdout)
    assert answer["row_count"] == 2 and answer["truncated"] is True


def test_many_rows_through_a_small_door(four):
    sql = "select n, repeat('x', 100) as s from generate_series(1, 60000) g(n)"
    done = four.probing("-t", named(*four.ranks), "--at-once", "2", "query",
                        "select rank, count(*) from (%s)" % sql)
    assert done.returncode == 1  # a rank knows no rank of its own
    done = four.probing("-t", named(*four.ranks), "--at-once", "2", "query", sql, "-f", "csv")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1 + 4 * 60000
    assert lines[1].startswith("0,1,x") and lines[-1].startswith("3,60000,x")


def test_one_wrong_statement_is_said_once(four):
    done = four.probing("-t", named(*four.ranks), "query", "selec 1")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("found 'selec'") == 1 and "ranks 0-3" in done.stderr


def test_the_stopped_the_dead_and_the_bare(world):
    made = start_ranks(world, 3)
    bare = world.python("import time\nprint('ready', flush=True)\ntime.sleep(600)\n",
                        env={"RANK": "9"})
    bare.wait_line("ready")
    made[1].process.send_signal(signal.SIGSTOP)
    made[2].kill()
    targets = named(*made, bare, 2 ** 22 + 1)
    done = ask(world, targets, "select count(*) > 0 as there from probing.tables")
    assert done.returncode == 1
    answered = {r["process"] for r in rows(done)}
    assert answered == {str(t.pid) for t in made}, done.stderr
    assert "is stopped; this is read from its files" in done.stderr
    assert "no probing core" in done.stderr and "no process %d" % (2 ** 22 + 1) in done.stderr
    done = ask(world, targets, "select count(*) as n from cpu.tasks")
    assert [r["process"] for r in rows(done)] == [str(made[0].pid)]
    assert "the process is stopped" in done.stderr


@pytest.mark.parametrize("text, words", [
    ("1,,2", "a name is missing"), ("node[3-1]", "not a range"), ("node[1-", "without its ']'"),
    ("node[1-99999999]", "more than"), ("node[a]", "not a range"), ("job:", "needs the job's name"),
    ("node[1-9][1-9999][1-9]", "more than"), ("ssh:n[1-", "without its ']'"),
    ("ssh:", "a host is missing")])
def test_what_can_mean_nothing_is_refused(world, text, words):
    done = world.probing("-t", text, "query", "select 1")
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.skipif(BUILD.name == "asan", reason="a sanitizer takes memory of its own")
@pytest.mark.parametrize("text", ["node[1-99999999]", "n[1-9999][1-9999]:99",
                                  "ssh:x%s" % (40 * "[1-2]"), "ssh:x[1-999999999]/job:x"])
def test_a_list_without_end_takes_no_memory(world, text):
    """Its names were made, 97 MB of them, before the last was one too many."""
    command = subprocess.Popen([str(CLI), "-t", text, "query", "select 1"], env=world.env,
                               stderr=subprocess.PIPE, universal_newlines=True)
    said = command.stderr.read()
    command.stderr.close()
    _, status, used = os.wait4(command.pid, 0)
    command.returncode = status
    text = text.partition(":")[2].partition("/")[0] if text.startswith("ssh:") else text
    assert os.WEXITSTATUS(status) == 2, said
    assert "'%s' names more than 16384 processes" % text in said
    assert used.ru_minflt < 2000, used  # pages; it takes 130 to say no, and took 24,000


def test_a_long_list_of_hosts(world):
    """As SLURM writes one of a job that has what was free; it was cut after 300 letters."""
    hosts = ["%04d" % i for i in range(1, 2400, 4)]
    shell = remote_shell(world, "#!/bin/sh\necho no way to $1 >&2\nexit 1\n")
    done = world.probing("-t", "ssh:far[%s]/job:x" % ",".join(hosts), "query", "select 1",
                         env=dict(shell, PROBING_RELAY_DEGREE="1"))
    assert done.returncode == 1 and "0 of 600 answered" in done.stderr, done.stderr[:2000]
    assert "no way to far0001" in done.stderr, done.stderr[:2000]
    done = world.probing("-t", "x" * 5000 + ",1", "query", "select 1")
    assert done.returncode == 2 and "a name is too long" in done.stderr, done.stderr


def test_ranges_of_hosts(world):
    done = world.probing("-t", "127.0.0.[01-02,4]:1", "query", "select 1")
    assert done.returncode == 1
    for host in ("127.0.0.01:1", "127.0.0.02:1", "127.0.0.4:1"):
        assert host in done.stderr, done.stderr


@pytest.mark.parametrize("words", [("--at-once", "0"), ("--at-once=x",), ("--timeout",)])
def test_wrong_options(world, words):
    done = world.probing("-t", "1,2", *words, *(("query", "select 1") if len(words) > 1 or
                                               "=" in words[0] else ()))
    assert done.returncode == 2 and done.stdout == "", done.stderr


@pytest.mark.parametrize("time", ["0", "-1", "x", "", "1e99", "nan", "21d", "110000d", "300000d"])
def test_a_time_that_is_none_or_too_long_is_said_with_its_option(world, time):
    """A relay heard -8942744073709551616ns for 110000d; a time of no unit did not say whose."""
    for words in (("-t", "1,2", "--timeout", time, "query", "select 1"),
                  ("cluster", "status", "--timeout", time),
                  ("cluster", "hang", "--interval=" + time)):
        done = world.probing(*words)
        option = "--interval" if "hang" in words else "--timeout"
        assert done.returncode == 2 and option in done.stderr, (words, done.stderr)


def test_ranks_that_have_ended_are_of_their_job(world):
    """A killed rank was of no job any more, and a job whose ranks were all killed was none."""
    env = dict(TORCHELASTIC_RUN_ID="ended-%d" % os.getpid(), MASTER_ADDR="127.0.0.1")
    job = "job:" + env["TORCHELASTIC_RUN_ID"]
    shell = dict(remote_shell(world, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n"))
    counts = "select _rank, count(*) as n from global.probing.tables group by 1 order by 1"

    def ranks_of(target, **more):
        done = world.probing("-t", target, "query", "--format", "json", counts, **more)
        return [r["_rank"] for r in rows(done)], done.stderr

    def end(targets):
        for t in targets:
            t.kill()
    end(start_ranks(world, 3, MASTER_PORT="1", **env))  # an earlier start of it
    found, said = ranks_of(job)
    assert found == [0, 1, 2] and "ranks 0-2 have ended, and left their data" in said, said
    ranks = start_ranks(world, 2, MASTER_PORT="2", **env)
    assert ranks_of(job) == ([0, 1], "")
    ranks[1].process.send_signal(signal.SIGKILL)  # its parent does not ask for it: a zombie
    wait_for(lambda: Path("/proc/%d/stat" % ranks[1].pid).read_text().rsplit(") ")[1][0] == "Z",
             "the end of rank 1")
    # Its other threads may end a little later than the one that is a zombie.
    wait_for(lambda: " %d " % ranks[1].pid in world.probing("list", "--dead").stdout,
             "a dead rank in the list")
    for target, more in ((job, {}), ("ssh:far/" + job, {"env": shell})):
        found, said = ranks_of(target, **more)
        assert found == [0, 1] and "rank 1 has ended, and left its data" in said, (target, said)
        done = world.probing("-t", target, "eval", "me", **more)
        assert done.returncode == 1 and "1 of 2 answered" in done.stderr, done.stderr
        assert "has ended; these commands still read its data" in done.stderr
    end(ranks[:1])
    assert ranks_of("ssh:far/" + job, env=shell)[0] == [0, 1]
