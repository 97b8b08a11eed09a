# SPDX-License-Identifier: Apache-2.0
"""`probing ship --to parquet:DIR`: each row once, whatever is killed, and what is lost is told."""
import json
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shipping import COLUMNS, add, folder, ship, start_job, start_ship, state_of, stored
from world import BUILD, CLI, wait_for


def steps(path):
    return sorted(row["step"] for row in folder(path))


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
        return [int(one) for one in f.read().split()]


def test_rows_come_with_whose_they_are_and_once(world):
    ranks = start_job(world, 2)
    out = world.tmp / "out"
    for rank in ranks:
        add(rank, 300)
    job = "job:ship-%d" % os.getpid()
    done = ship(world, job, "parquet:%s" % out)
    assert done.returncode == 0 and "sent 600 rows" in done.stderr, done.stderr
    rows = folder(out)
    assert len(rows) == 600 and list(rows[0])[:len(COLUMNS)] == COLUMNS
    for rank, target in enumerate(ranks):
        own = [r for r in rows if r["_rank"] == rank]
        assert sorted(r["step"] for r in own) == stored(target) == list(range(300))
        assert {r["_pid"] for r in own} == {target.pid}
        assert {r["place"]["rank"] for r in own} == {str(rank)}
        assert {r["_job"] for r in own} == {job[4:]} and len({r["_process"] for r in own}) == 1
    row = next(r for r in rows if r["step"] == 15)
    assert (row["loss"], row["phase"], row["ok"], row["note"]) == (3.75, "train", True, "n15 ü")
    assert next(r for r in rows if r["step"] == 16)["note"] is None
    day = time.strftime("%Y-%m-%d", time.gmtime(row["ts"] / 1e9))
    assert row["place"] == {"schema": "python", "table": "loss", "date": day,
                            "rank": row["place"]["rank"]}
    done = ship(world, job, "parquet:%s" % out)
    assert done.returncode == 0 and "sent 0 rows" in done.stderr
    add(ranks[0], 5)
    assert "sent 5 rows" in ship(world, job, "parquet:%s" % out).stderr
    assert len(folder(out)) == 605


def test_a_clock_that_goes_wrong_is_told_beside_the_times(world):
    """Times are as the process has them, so that they are the same when they are sent again."""
    second, own = 10**9, world.env
    other = str(BUILD / "tests" / "many" / "other_clock.so")
    world.env = dict(own, OTHER_CLOCK_NS=str(5 * second),
                     LD_PRELOAD=(own.get("LD_PRELOAD", "") + " " + other).strip())
    wrong, = start_job(world)
    world.env = own
    right, = start_job(world)
    for target in (wrong, right):
        add(target, 3)
    done = ship(world, "%d,%d" % (wrong.pid, right.pid), "parquet:%s" % (world.tmp / "out"))
    assert done.returncode == 0, done.stderr
    rows = {pid: [r for r in folder(world.tmp / "out") if r["_pid"] == pid]
            for pid in (wrong.pid, right.pid)}
    assert len(rows[wrong.pid]) == len(rows[right.pid]) == 3
    for row in rows[wrong.pid]:
        assert abs(row["_clock_offset_ns"] - 5 * second) <= row["_clock_error_ns"] < second
    assert {(r["_clock_offset_ns"], r["_clock_error_ns"]) for r in rows[right.pid]} == {(0, 0)}
    last = max(r["ts"] - r["_clock_offset_ns"] for r in rows[wrong.pid])
    assert last < min(r["ts"] for r in rows[right.pid]) < time.time_ns()


def test_rows_that_have_just_come_are_there(world):
    """Rows that are in the rings when it looks are no rows of the next time."""
    rank, = start_job(world)
    for _ in range(8):
        add(rank, 5)
        done = ship(world, str(rank.pid), "parquet:%s" % (world.tmp / "out"))
        assert done.returncode == 0 and "sent 5 rows" in done.stderr, done.stderr


def test_of_another_machine_what_a_dead_one_has_left_comes_once(world):
    """By a relay: the life is known while it answers, and then its files are read there."""
    rank, = start_job(world)
    out, shell = world.tmp / "out", world.tmp / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    shell.chmod(0o755)
    env = {"PROBING_RSH": str(shell), "PROBING_REMOTE": str(CLI)}
    who, to = "ssh:node/%d" % rank.pid, "parquet:%s" % out
    add(rank, 30)
    done = ship(world, who, to, "--tables", "python.loss", env=env)
    assert done.returncode == 0 and "sent 30 rows" in done.stderr, done.stderr
    add(rank, 12)
    rank.kill()
    for expected in ("sent 12 rows", "sent 0 rows"):
        done = ship(world, who, to, "--tables", "python.loss", env=env)
        assert done.returncode == 0 and expected in done.stderr, done.stderr
    assert steps(out) == list(range(42))
    assert len({row["_process"] for row in folder(out)}) == 1
    other, = start_job(world)
    other.kill()
    done = ship(world, "ssh:node/%d" % other.pid, to, env=env)
    assert done.returncode == 1 and "`probing ship` on its machine" in done.stderr, done.stderr


def test_a_relay_that_is_lost_is_started_again(world):
    """`ship` goes on for days: a connection that ends in between is no end, nor is the end of the
    process that holds them, as where memory is short."""
    rank, = start_job(world)
    out, shell, log = world.tmp / "out", world.tmp / "shell", world.tmp / "log"
    shell.write_text('#!/bin/sh\nshift\necho $$ >> %s\nexec sh -c "exec $*"\n' % log)
    shell.chmod(0o755)
    (world.tmp / "state").mkdir(mode=0o700)
    add(rank, 30)
    asker = world.start(str(CLI), "-t", "ssh:node/%d" % rank.pid, "ship", "--to",
                        "parquet:%s" % out, "--interval", "100ms", "--tables", "python.loss",
                        "--state", str(world.tmp / "state" / "ship.json"),
                        env={"PROBING_RSH": str(shell), "PROBING_REMOTE": str(CLI)})
    wait_for(lambda: steps(out) == list(range(30)), lambda: steps(out))
    os.kill(int(log.read_text().split()[0]), signal.SIGKILL)
    add(rank, 10)
    wait_for(lambda: steps(out) == list(range(40)), lambda: steps(out), timeout=60)
    assert len(log.read_text().split()) >= 2
    wait_for(lambda: children(asker.pid), "the process that holds the connections")
    for pid in children(asker.pid):
        os.kill(pid, signal.SIGKILL)
    add(rank, 10)
    wait_for(lambda: steps(out) == list(range(50)), lambda: steps(out), timeout=60)
    asker.process.send_signal(signal.SIGTERM)
    assert asker.process.wait() == 0


def test_duckdb_reads_the_folder(world):
    duckdb = pytest.importorskip("duckdb")
    rank, = start_job(world)
    add(rank, 50)
    out = world.tmp / "out"
    assert ship(world, str(rank.pid), "parquet:%s" % out).returncode == 0
    found = duckdb.sql("select schema, \"table\", rank, _rank, count(*), sum(loss), min(ok), "
                       "count(note), max(note), max(epoch_ns(ts)) "
                       "from read_parquet('%s/**/*.parquet', hive_partitioning = true) "
                       "group by all" % out).fetchall()
    newest = max(row["ts"] for row in folder(out))
    assert found == [("python", "loss", 0, 0, 50, sum(range(50)) / 4, False, 10, "n5 ü", newest)]


READERS = {
    "polars": """
t = polars.scan_parquet(table, hive_partitioning=True).filter(polars.col("rank") == 1)
t = t.select("step", "loss", "note", "ok", "rank", polars.col("ts").dt.epoch("ns")).collect()
rows = [t[c].to_list() for c in t.columns]
""", "pandas": """
t = pandas.read_parquet(table, filters=[("rank", "==", 1)]).astype({"rank": int})
t["ts"] = [x.value for x in t["ts"]]
t = t.astype(object).where(t.notna(), None)
rows = [t[c].to_list() for c in ("step", "loss", "note", "ok", "rank", "ts")]
""", "pyarrow": """
import pyarrow.dataset
t = pyarrow.dataset.dataset(table, partitioning="hive")
t = t.to_table(filter=pyarrow.dataset.field("rank") == 1)
t = t.set_column(t.column_names.index("ts"), "ts", t["ts"].cast("int64"))
rows = [t[c].to_pylist() for c in ("step", "loss", "note", "ok", "rank", "ts")]
"""}


@pytest.mark.parametrize("name", sorted(READERS))
def test_others_read_the_folder(world, name):
    """By its partitions.  PROBING_TEST_READERS: a Python that has polars, pandas and pyarrow."""
    python = os.environ.get("PROBING_TEST_READERS", sys.executable)
    if subprocess.run([python, "-c", "import pyarrow, %s" % name], capture_output=True).returncode:
        pytest.skip("no %s for %s: PROBING_TEST_READERS=PYTHON names one" % (name, python))
    ranks = start_job(world, 2)
    for rank in ranks:
        add(rank, 300)
    out = world.tmp / "out"
    assert ship(world, "job:ship-%d" % os.getpid(), "parquet:%s" % out).returncode == 0
    code = "import json, sys, %s\ntable = sys.argv[1]\n%s\nprint(json.dumps(rows))" % (
        name, READERS[name])
    done = subprocess.run([python, "-c", code, str(out / "schema=python" / "table=loss")],
                          capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found = sorted(zip(*json.loads(done.stdout)))
    ours = sorted((r["step"], r["loss"], r["note"], r["ok"], 1, r["ts"])
                  for r in folder(out) if r["_rank"] == 1)
    assert len(ours) == 300 and [list(map(str, r)) for r in found] == [
        list(map(str, r)) for r in ours]


def test_killed_at_any_moment_nothing_is_lost_or_twice(world):
    rank, = start_job(world)
    out = world.tmp / "out"
    chance = random.Random(22)
    for turn in range(6):
        add(rank, 400)
        process = start_ship(world, str(rank.pid), "parquet:%s" % out)
        if turn % 3 == 0:
            wait_for(lambda: list(out.glob("**/*.parquet")), "a file")
        else:
            process.process.poll()
            time.sleep(chance.random() / 20)  # any moment will do: none is expected
        process.kill()
    assert ship(world, str(rank.pid), "parquet:%s" % out).returncode == 0
    assert steps(out) == stored(rank) == list(range(2400))


def test_the_rest_of_a_rank_that_was_killed(world):
    ranks = start_job(world, 2)
    out = world.tmp / "out"
    job = "job:ship-%d" % os.getpid()
    process = start_ship(world, job, "parquet:%s" % out, "--tables", "python.loss")
    for rank in ranks:
        add(rank, 10)
    wait_for(lambda: len(folder(out)) == 20, lambda: steps(out))
    signals_stop(process)
    add(ranks[1], 90)
    ranks[1].kill()
    process.process.send_signal(signal.SIGCONT)
    wait_for(lambda: len(folder(out)) == 110, lambda: steps(out))
    assert sorted(r["step"] for r in folder(out) if r["_rank"] == 1) == list(range(100))
    wait_for(lambda: [s["ended"] for s in state_of(world)[1]].count(True) == 1, "it has ended")
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait() == 0


def signals_stop(target):
    target.process.send_signal(signal.SIGSTOP)


def test_new_members_are_followed(world):
    job = "late-%d" % os.getpid()
    first, = start_job(world, 1, job)
    out = world.tmp / "out"
    start_ship(world, "job:" + job, "parquet:%s" % out)
    add(first, 3)
    wait_for(lambda: len(folder(out)) == 3, lambda: steps(out))
    second, = start_job(world, 1, job)
    add(second, 4)
    wait_for(lambda: len(folder(out)) == 7, lambda: steps(out))


def test_who_is_not_named_any_more_is_left_alone_until_it_ends(world):
    ranks = start_job(world, 2)
    out = world.tmp / "out"
    for rank in ranks:
        add(rank, 5)
    to, one = "parquet:%s" % out, str(ranks[0].pid)
    assert ship(world, "%d,%d" % (ranks[0].pid, ranks[1].pid), to).returncode == 0
    for rank in ranks:
        add(rank, 5)
    assert "sent 5 rows" in ship(world, one, to).stderr
    ranks[1].kill()
    done = ship(world, one, to)
    rows = sorted((r["_rank"], r["step"]) for r in folder(out))
    assert "sent 5 rows" in done.stderr, (done.stderr, rows)  # the rest of the dead
    assert rows == [(rank, step) for rank in range(2) for step in range(10)]


def test_what_retention_took_is_told(world):
    rank, = start_job(world)
    out = world.tmp / "out"
    add(rank, 10)
    assert ship(world, str(rank.pid), "parquet:%s" % out).returncode == 0
    assert rank.probing("config", "set", "table.python.loss.keep", "64KB").returncode == 0

    def some_are_gone():
        add(rank, 20000)
        return rank.rows("select first_row from probing.tables where name = 'loss'")[0][0] > 16384
    wait_for(some_are_gone, "retention")
    done = ship(world, str(rank.pid), "parquet:%s" % out)
    head, (source,) = state_of(world)
    table = next(t for t in source["tables"] if t[2] == "loss")
    _, _, _, following, pending, sent, lost = table
    assert pending == 0 and sent + lost == following and lost > 10000, table
    assert "%d rows were gone" % lost in done.stderr, done.stderr
    assert head["lost"] == lost and len(folder(out)) == sent
    assert len(set(steps(out))) == sent  # and none twice


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_FULL"), reason="slow: PROBING_TEST_FULL=1")
def test_rows_that_are_too_long_to_be_held_at_once(world):
    """They were asked for again and again in the same way, and --once ended as if all were sent."""
    rank, = start_job(world)
    assert rank.probing("eval", "--timeout", "5m", "add_long(400)").returncode == 0
    there = stored(rank)
    assert len(there) * 200000 > 64 << 20, "more than is held"
    out = world.tmp / "out"
    done = ship(world, str(rank.pid), "parquet:%s" % out)
    assert done.returncode == 0, done.stderr
    assert steps(out) == there
    assert all(r["note"] == "%d " % r["step"] + "x" * 200000 for r in folder(out))


def test_a_range_that_may_be_there_is_not_sent_in_other_pieces(world):
    """Beside others less is held of each; what was sent alone before a kill must fit, too."""
    ranks = start_job(world, 2)
    assert ranks[0].probing("eval", "--timeout", "5m", "add_long(120)").returncode == 0
    out = world.tmp / "out"
    assert ship(world, str(ranks[0].pid), "parquet:%s" % out).returncode == 0
    path = world.tmp / "state" / "ship.json"
    lines = path.read_text().split("\n")
    source = json.loads(lines[1])
    table = next(t for t in source["tables"] if t[2] == "loss")
    table[3:6] = [0, table[3], 0]  # as it stands there while the rows are on their way
    path.write_text("\n".join([lines[0], json.dumps(source), *lines[2:]]))
    add(ranks[1], 5)
    done = ship(world, "%d,%d" % (ranks[0].pid, ranks[1].pid), "parquet:%s" % out)
    assert done.returncode == 0, done.stderr
    assert steps(out) == sorted(list(range(5)) + list(range(120)))


def test_once_ends_while_rows_come(world):
    rank, = start_job(world)
    out = world.tmp / "out"
    done = rank.probing("eval", "import threading\nthreading.Thread(target=lambda: "
                                "add(10**9, 0.0002), daemon=True).start()")
    assert done.returncode == 0, done.stderr
    wait_for(lambda: len(stored(rank)) > 100, "rows")
    done = ship(world, str(rank.pid), "parquet:%s" % out)
    assert done.returncode == 0, done.stderr
    sent = steps(out)
    assert sent == list(range(len(sent))) and len(sent) > 100


def test_a_word_that_names_no_table_is_said(world):
    """It sent nothing, and that was all."""
    rank, = start_job(world)
    add(rank, 5)
    to = "parquet:%s" % (world.tmp / "out")
    done = ship(world, str(rank.pid), to, "--tables", "loss,python.l*")
    assert done.returncode == 0 and "sent 5 rows" in done.stderr, done.stderr
    assert "no stored table is called 'loss' so far: --tables takes SCHEMA.NAME" in done.stderr
    assert "'python.l*'" not in done.stderr


def test_two_with_one_state_file(world):
    rank, = start_job(world)
    out = world.tmp / "out"
    process = start_ship(world, str(rank.pid), "parquet:%s" % out)
    wait_for((world.tmp / "state" / "ship.json").exists, "the state file")
    done = ship(world, str(rank.pid), "parquet:%s" % out)
    assert done.returncode == 1 and "another `probing ship` runs" in done.stderr
    process.kill()
    assert ship(world, str(rank.pid), "parquet:%s" % out).returncode == 0


def test_rows_that_are_there_in_other_pieces_are_not_sent_again(world):
    """With a state file that was lost, or another one, each of them would have been there twice."""
    rank, = start_job(world)
    to, out = "parquet:%s" % (world.tmp / "out"), world.tmp / "out"
    add(rank, 5)
    assert ship(world, str(rank.pid), to).returncode == 0
    add(rank, 5)
    (world.tmp / "state" / "ship.json").unlink()
    done = ship(world, str(rank.pid), to)
    assert done.returncode == 1 and "sent 0 rows" in done.stderr, done.stderr
    assert "was the state file lost?" in done.stderr and steps(out) == list(range(5))
    file = next(out.glob("**/*.parquet"))
    file.unlink()
    file.with_name(file.name.replace("-0-5.", "-0-10.")).symlink_to("/etc/passwd")  # no rows in it
    (world.tmp / "state" / "ship.json").unlink()
    done = ship(world, str(rank.pid), to)
    assert "sent 10 rows" in done.stderr and steps(out) == list(range(10)), done.stderr


def test_two_to_one_folder_do_not_send_the_rows_of_one_process_both(world):
    """Each with a state file of its own they wrote the same rows in pieces of their own."""
    rank, = start_job(world)
    out, other = world.tmp / "out", str(world.tmp / "other.json")
    to = "parquet:%s" % out
    world.tmp.chmod(0o700)
    add(rank, 5)
    first = start_ship(world, str(rank.pid), to, "--tables", "python.loss")
    wait_for(lambda: steps(out) == list(range(5)), lambda: steps(out))
    signals_stop(first)
    words = (world, str(rank.pid), to, "--tables", "python.loss", "--state", other)
    done = ship(*words)
    add(rank, 3)
    ship(*words)
    add(rank, 2)
    first.process.send_signal(signal.SIGCONT)
    wait_for(lambda: 9 in steps(out), lambda: steps(out))
    assert steps(out) == list(range(10))
    said = "another `probing ship` (process %d on %s) sends its rows" % (
        first.pid, socket.gethostname())
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "sent 0 rows" in done.stderr
    second, = start_job(world)  # another process is another matter
    add(second, 4)
    done = ship(world, "%d,%d" % (rank.pid, second.pid), *words[2:])
    assert done.returncode == 1 and said in done.stderr, done.stderr
    assert "sent 4 rows" in done.stderr and len(steps(out)) == 14
    first.kill()
    done = ship(*words)  # nobody holds it any more; but what is there is there
    assert done.returncode == 1 and "was the state file lost?" in done.stderr, done.stderr
    assert len(steps(out)) == 14


def test_a_folder_that_goes_and_comes_back(world):
    """Its rows went on into what had been removed, or failed for ever."""
    rank, = start_job(world)
    out = world.tmp / "out"
    add(rank, 5)
    process = start_ship(world, str(rank.pid), "parquet:%s" % out, "--tables", "python.loss")
    wait_for(lambda: steps(out) == list(range(5)), lambda: steps(out))
    as_root = os.geteuid() == 0  # one of another user in its place is not what was there
    his = world.tmp / "his"
    his.mkdir()
    process.process.send_signal(signal.SIGSTOP)
    out.rename(world.tmp / "away")
    if as_root:
        os.chown(his, 65534, -1)
        his.rename(out)
    add(rank, 3)
    process.process.send_signal(signal.SIGCONT)
    process.wait_line("%sit was there before: make it again" %
                      ("is another one, of user 65534; " if as_root else ""))
    if as_root:
        out.rmdir()  # it is empty
    out.mkdir()
    wait_for(lambda: steps(out) == [5, 6, 7], lambda: steps(out))
    assert steps(world.tmp / "away") == list(range(5))
    other = str(world.tmp / "state" / "other.json")
    add(rank, 1)
    done = ship(world, str(rank.pid), "parquet:%s" % out, "--state", other)
    assert "another `probing ship` (process %d on" % process.pid in done.stderr, done.stderr


def test_a_lost_state_file_whose_first_range_lies_there_whole(world):
    """Nobody looked at the second range any more, and its rows came in other pieces."""
    rank, = start_job(world)
    to, out = "parquet:%s" % (world.tmp / "out"), world.tmp / "out"
    add(rank, 20000)
    assert ship(world, str(rank.pid), to).returncode == 0
    add(rank, 500)
    (world.tmp / "state" / "ship.json").unlink()
    done = ship(world, str(rank.pid), to)
    assert done.returncode == 1 and "was the state file lost?" in done.stderr, done.stderr
    assert steps(out) == list(range(20000))


def test_a_state_file_that_cannot_be_trusted(world):
    rank, = start_job(world)
    out = "parquet:%s" % (world.tmp / "out")
    state = world.tmp / "state" / "ship.json"
    assert ship(world, str(rank.pid), out).returncode == 0
    good = state.read_text()
    done = ship(world, str(rank.pid), "parquet:%s" % (world.tmp / "other"))
    assert done.returncode == 1 and "each destination needs one of its own" in done.stderr
    for bad in (good[:-5], "x\n", good.replace('"tables":[[', '"tables":[[-1,'), "{}\n",
                re.sub(r'("loss",\d+),\d+', r"\1,123456789", good),
                good.replace('"loss"', '"../loss"'), good.replace('"loss"', '"l\\"oss"'),
                good.replace("\n", "\n[]\n", 1)):
        state.write_text(bad)
        done = ship(world, str(rank.pid), out)
        assert done.returncode == 1 and "is damaged" in done.stderr, (bad, done.stderr)
    state.write_text(re.sub(r'("loss"),\d+,\d+', r"\1,5000,0", good))
    done = ship(world, str(rank.pid), out)  # whether of these rows any went is not known
    assert done.returncode == 1 and "it never had more than 0" in done.stderr, done.stderr
    state.unlink()
    state.symlink_to(world.tmp / "elsewhere")
    done = ship(world, str(rank.pid), out)
    assert done.returncode == 1 and "cannot be read" in done.stderr, done.stderr
    state.unlink()
    os.mkfifo(state)
    done = ship(world, str(rank.pid), out)
    assert done.returncode == 1 and "not a file of ours" in done.stderr, done.stderr
    state.unlink()
    (world.tmp / "state").chmod(0o777)
    done = ship(world, str(rank.pid), out)
    assert done.returncode == 1 and "others may write to the folder" in done.stderr, done.stderr


def test_a_full_disk_is_waited_for(world):
    if os.geteuid() != 0:
        pytest.skip("not root: no disk can be made full")
    small = world.tmp / "small"
    small.mkdir()
    if os.system("mount -t tmpfs -o size=16k none %s 2>/dev/null" % small) != 0:
        pytest.skip("no file system can be mounted here")
    try:
        rank, = start_job(world)
        add(rank, 3000)
        for leaf in ("fill", "more"):
            os.system("dd if=/dev/zero of=%s bs=1k status=none 2>/dev/null" % (small / leaf))
        done = ship(world, str(rank.pid), "parquet:%s" % (world.tmp / "none"), "--state",
                    str(small / "ship.json"))
        assert done.returncode == 1, done
        assert "the state file ship.json cannot be written: No space" in done.stderr, done.stderr
        for leaf in small.iterdir():
            leaf.unlink()
        process = start_ship(world, str(rank.pid), "parquet:%s" % (small / "out"))
        process.wait_line("No space left")
        assert not list(small.glob("**/*.parquet"))
        assert os.system("mount -o remount,size=16m %s" % small) == 0
        wait_for(lambda: len(folder(small / "out")) == 3000, "all of it")
        process.wait_line("it takes rows again")
        assert steps(small / "out") == list(range(3000))
        process.kill()
        assert not list(small.glob("**/*.part"))
    finally:
        os.system("umount -l %s" % small)


def test_a_limit_on_the_size_of_files_makes_shorter_ones(world):
    """`ulimit -f` ended it by SIGXFSZ; what may be no longer than this comes in more files."""
    rank, = start_job(world)
    add(rank, 3000)
    out, state = world.tmp / "out", world.tmp / "state"
    state.mkdir(mode=0o700)

    def limited(size):
        return subprocess.run(
            [str(CLI), "-t", str(rank.pid), "ship", "--to", "parquet:%s" % out, "--once",
             "--tables", "python.loss", "--state", str(state / "ship.json")], env=world.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            encoding="utf-8",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    done = limited(64)
    assert done.returncode == 1 and "the state file ship.json" in done.stderr, done.stderr
    assert "file size limit (`ulimit -f`)" in done.stderr
    done = limited(16384)
    assert done.returncode == 0 and "sent 3000 rows" in done.stderr, done.stderr
    assert steps(out) == list(range(3000))
    assert max(f.stat().st_size for f in out.glob("**/*.parquet")) <= 16384


def test_links_lead_nowhere(world):
    rank, = start_job(world)
    add(rank, 3)
    out, other = world.tmp / "out", world.tmp / "other"
    out.mkdir(), other.mkdir()
    (out / "schema=python").symlink_to(other)
    done = ship(world, str(rank.pid), "parquet:%s" % out, "--tables", "python.loss")
    assert done.returncode == 1 and "cannot be written" in done.stderr
    assert not list(other.iterdir())
    mine = world.tmp / "mine"
    mine.write_text("mine")
    (out / ".probing-ship.lock").unlink()
    os.link(mine, out / ".probing-ship.lock")
    done = ship(world, str(rank.pid), "parquet:%s" % out)
    assert done.returncode == 1 and "no file of its own" in done.stderr, done.stderr
    assert mine.read_text() == "mine"


def test_a_folder_that_another_user_has_made_first(world):
    """Where all may write he made the partition before us: the rows were his to read and remove,
    and a file of his with the name of a range would have been taken for that range."""
    if os.geteuid() != 0:
        pytest.skip("not root: no folder can be another user's")
    rank, = start_job(world)
    add(rank, 3)
    out = Path(os.fsdecode(bytes(world.tmp) + b"/out\xff\n"))  # and no letters in its name
    (out / "schema=python").mkdir(parents=True)
    out.chmod(0o1777)
    os.chown(out / "schema=python", 65534, -1)
    words = (world, str(rank.pid), "parquet:%s" % out, "--tables", "python.loss")
    done = ship(*words)
    assert done.returncode == 1 and "belongs to user 65534" in done.stderr, done.stderr
    assert not list((out / "schema=python").iterdir())
    (out / "schema=python").rmdir()
    done = ship(*words)
    assert done.returncode == 0 and steps(out) == [0, 1, 2], done.stderr
    add(rank, 2)
    done = ship(*words)  # the state file knows it again
    assert done.returncode == 0 and steps(out) == list(range(5)), done.stderr


def test_words(world):
    rank, = start_job(world)
    pid = str(rank.pid)
    for words, said in ((("--to", "ftp://x"), "there are prometheus+http://"),
                        (("--to", "clickhouse+https:/x"), "(and https)"),
                        (("--to", "parquet+https://x"), "(and https)"),
                        (("--to", "clickhouse+http://me:secret@x"), "can be read by everybody"),
                        (("--to", "prometheus+http://x"), "/api/v1/write"),
                        (("--to", "otlp+http://"), "names no host"),
                        (("--to", "otlp+http://h:70000"), "port that is none"),
                        (("--to", "otlp+http://h/a b"), "blank"),
                        (("--to", "parquet:"), "needs a folder"),
                        (("--to", "parquet:x", "--interval", "1ms"), "100ms or more"),
                        ((), "needs a destination")):
        done = world.probing("-t", pid, "ship", *words)
        assert done.returncode == 2 and said in done.stderr, (words, done.stderr)
