# SPDX-License-Identifier: Apache-2.0
"""torch.distributed in a real job of two ranks: each operation is a row, and nothing changes."""
import json
import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
import world as shared
from cases import HERE

LATE_MS = 300.0
TARGET = str(HERE / "targets" / "collectives.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def start(world, python, target=TARGET, by_torchrun=True, size=2):
    """The ranks, by torchrun where it works (torch 1.13's does not in Python 3.11)."""
    words = [target, str(world.tmp / "go"), str(world.tmp / "answer")]
    torchrun = Path(python).with_name("torchrun")
    if by_torchrun and torchrun.exists() and python != shared.DEBIAN_PYTHON:
        job = world.start(str(torchrun), "--nproc_per_node", str(size), "--master_port",
                          free_port(), *words)
        jobs = [job] * size
    else:
        common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        jobs = [world.start(python, "-W", "ignore", *words, env=dict(common, RANK=str(rank)))
                for rank in range(size)]
    for rank, job in enumerate(jobs):
        job.wait_line("ready %d" % rank)
    return jobs


def pid_of(job, rank):
    """The process of a rank: it, or a child of torchrun with that RANK."""
    pids = [job.pid]
    children = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True)
    for pid in pids + [int(word) for word in children.stdout.split()]:
        environ = Path("/proc/%d/environ" % pid).read_bytes().split(b"\0")
        if b"RANK=%d" % rank in environ:
            return pid
    pytest.fail("no process of rank %d" % rank)


class Rank:
    def __init__(self, world, pid):
        self.world, self.pid = world, str(pid)

    def run(self, *words):
        done = self.world.probing("-t", self.pid, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def rows(self, sql):
        return json.loads(self.run("query", "--format", "json", sql))["rows"]


def test_two_ranks(world, python):
    jobs = start(world, python)
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    answers = [Path("%s.%d" % (world.tmp / "answer", n)).read_text() for n in range(2)]
    assert answers[0] == answers[1]
    rows = ranks[0].rows(
        "select op, group_rank, group_size, tensor_shape, tensor_dtype, bytes, async_op, "
        "duration_ms, wait_ms from python.comm_collective order by ts")
    ops = [row[0] for row in rows]
    assert ops[:6] == ["barrier", "allreduce", "allreduce", "allgather", "broadcast", "send"]
    assert rows[1][1:7] == [0, 2, "[256]", "float32", 1024, 0]
    assert rows[1][7] >= LATE_MS * 0.9 and rows[1][8] >= LATE_MS * 0.9  # it waited for the other
    assert rows[2][3:7] == ["[2, 3]", "float64", 48, 1]
    assert rows[3][3:6] == ["[4]", "float32", 16] and rows[5][5] == 20
    assert rows[5][6] == 0  # torch waited for it
    alone = ranks[0].rows("select async_op, duration_ms is null, count(*) from "
                          "python.comm_collective where bytes = 12 group by 1, 2 order by 3")
    assert alone == [[1, False, 1], [1, True, 299]]
    assert all(0 < row[8] <= row[7] * 1.000001 for row in rows if row[7] is not None)
    ends = [rank.rows("select op, src_rank, dst_rank from comm_metrics where op in ('send', "
                      "'recv', 'broadcast', 'reduce', 'gather', 'scatter') and bytes in "
                      "(1024, 20, 28, 56) order by timestamp") for rank in ranks]
    assert ends[0] == [["broadcast", 0, None], ["send", 0, 1], ["reduce", 0, 1], ["gather", 0, 1],
                       ["scatter", 0, None]]
    assert ends[1] == [["broadcast", 0, 1], ["recv", 0, 1], ["reduce", 1, 1], ["gather", 1, 1],
                       ["scatter", 0, 1]]
    every = ranks[0].rows("select distinct src_rank, dst_rank from comm_metrics where "
                          "op = 'allreduce'")
    assert every == [[0, None]]
    late = ranks[1].rows("select duration_ms from python.comm_collective where op = 'allreduce' "
                         "and bytes = 1024 order by ts limit 1")
    assert late[0][0] < rows[1][7]  # the one that is waited for waits less than who waits for it
    timing = ranks[0].rows("select count(comm_sec), min(comm_sec) from python.torch_step_timing")
    assert timing[0][0] == 43 and timing[0][1] > 0  # DDP waits in each backward
    ddp = ranks[0].rows("select iteration, coalesce(buckets, 1), bucket_bytes, comm_sec > 0, "
                        "overlap_sec <= comm_sec from python.ddp_timing")
    assert ddp == [[10, 1, str(4 * (8 * 8 + 8)), True, True]]
    recorder = ranks[0].rows("select count(*) from python.torch_nccl_flight_record "
                             "where profiling_name like '%allreduce%' or "
                             "profiling_name like '%all_reduce%'")
    version = ranks[0].run("eval", "import torch; print(torch.__version__)")
    if int(re.match(r"(\d+)", version)[1]) >= 2:
        assert recorder[0][0] > len([op for op in ops if op == "allreduce"])  # DDP's are there too
        zero = ranks[0].rows("select count(*) from python.torch_nccl_flight_record "
                             "where time_started_ns = 0 or time_completed_ns = 0")
        assert zero == [[0]]  # what torch has not seen is NULL
    for rank in ranks:
        rank.run("plugin", "stop", "torch")
    left = ranks[0].run("eval", "from torch._C import _distributed_c10d as c; "
                        "print(c.ProcessGroup.allreduce.__doc__[:9], c.Work.wait.__doc__[:4])")
    assert left.split()[0].startswith("allreduce") and all(os.path.exists("/proc/" + r.pid)
                                                           for r in ranks)


def test_a_backward_that_waits_for_nobody(world, python):
    """Its wait is short and not unknown, as that of the rank that comes last."""
    jobs = start(world, python, str(HERE / "targets" / "waits_for_nobody.py"))
    rank = Rank(world, pid_of(jobs[0], 0))
    rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    timing = rank.rows("select count(*), count(comm_sec), min(comm_sec) < 0.001, "
                       "min(backward_sec) > 0 from python.torch_step_timing")
    assert timing == [[49, 49, True, True]]


def test_the_slowest_rank_is_named_by_each(world, python):
    jobs = start(world, python, str(HERE / "targets" / "slow_rank.py"))
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    for rank in ranks:
        screen = rank.run("torch")
        assert re.search(r"rank 1 is the slowest: rank 0 waits [\d.]+ ms a step for others, it "
                         r"[\d.]+ ms \(pid %s\)" % ranks[1].pid, screen), screen
        assert "probing -t %s flamegraph --mode wall" % ranks[1].pid in screen
    ranks[1].run("plugin", "stop", "torch")
    assert "is the slowest" not in ranks[0].run("torch")  # nobody is there to compare with


def test_functional_collectives(world, python):
    """torch.ops._c10d_functional: eager, in a compiled graph, by DTensor; nothing changes."""
    jobs = start(world, python, str(HERE / "targets" / "functional.py"))
    if "none" in jobs[0].output():
        pytest.skip("this torch has no functional collectives")
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for verb, name in (("load", "with"), ("stop", "after")):
        for rank in ranks:
            rank.run(*(["inject", "--plugin", "torch"] if verb == "load" else
                       ["plugin", "stop", "torch"]))
        (world.tmp / ("go." + name)).touch()
        for number, job in enumerate(jobs):
            job.wait_line("%s %d" % (name, number))
    for n in range(2):
        before, loaded, after = json.loads(Path("%s.%d" % (world.tmp / "answer", n)).read_text())
        assert before == loaded == after
    rows = ranks[0].rows(
        "select op, tensor_shape, tensor_dtype, bytes, group_rank, group_size, group_name, "
        "count(*), count(duration_ms), min(async_op) from python.comm_collective "
        "where async_op = 1 group by 1, 2, 3, 4, 5, 6, 7 order by op, bytes desc")
    group = [0, 2, "0"]
    assert rows == [
        ["all_gather_into_tensor", "[3]", "float32", 12] + group + [2, 2, 1],  # a compiled graph's
        ["all_reduce", "[5, 8]", "float32", 160] + group + [3, 3, 1],          # tensor parallel's
        ["all_reduce", "[6]", "float32", 24] + group + [3, 3, 1],
        ["all_reduce", "[3]", "float32", 12] + group + [2, 2, 1],
        ["all_reduce_coalesced", "[6]", "float32", 32] + group + [1, 1, 1],
        ["broadcast", "[6]", "float32", 24] + group + [1, 1, 1]]
    assert ranks[0].rows("select count(*) from python.comm_collective "
                         "where wait_ms > duration_ms * 1.000001") == [[0]]


def who_has_not_come(ranks):
    """Rank 1: whichever is asked, and rank 0 has kept that it waited for too long."""
    ranks[0].run("config", "torch.comm_timeout=1")
    stuck = shared.wait_for(lambda: ranks[0].rows(
        "select op, group_name, group_size, wait_sec, snapshot, records from python.comm_stuck "
        "order by ts desc limit 1"), "rank 0 to tell")[0]
    assert re.search("reduce|broadcast", stuck[0]) and stuck[1] == "0" and stuck[3] >= 1
    kept = ranks[0].rows("select count(*) from python.torch_flight_snapshot "
                         "where snapshot = %d" % stuck[4])
    assert kept == [[stuck[5]]]
    assert ranks[1].rows("select count(*) from python.comm_stuck") == [[0]]
    for rank in ranks:
        said = shared.wait_for(lambda: re.search(  # a wait is told from its second second on
            r"rank 0 has waited for [\d.]+ s in \S+ of group 0\n"
            r"  rank 1 has not come: it is \d+ operations? behind \(pid %s\)\n" % ranks[1].pid,
            rank.world.probing("-t", rank.pid, "torch").stdout), "the words of `torch`")
        assert said
    told = ranks[0].rows("select count(*) from probing.log where text like '%has waited for%'")
    assert told == [[1]]


def test_a_wait_that_cplusplus_began(world, python):
    """DDP's own all_reduce in a backward: seen where torch keeps a flight recorder."""
    jobs = start(world, python, str(HERE / "targets" / "stuck_ddp.py"))
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("begun %d" % number)
    if not ranks[0].rows("select count(*) from python.torch_nccl_flight_record")[0][0]:
        pytest.skip("this torch keeps no flight recorder")
    who_has_not_come(ranks)
    (world.tmp / "go.too").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    assert ranks[0].rows("select count(*) from torch.waiting") == [[0]]


def test_who_waits_for_whom(world, python):
    """One of two ranks does not come: the other says in what it waits, and since when."""
    jobs = start(world, python, str(HERE / "targets" / "stuck.py"))
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()

    def waits():
        return ranks[0].rows("select op, rank, tid, wait_sec from torch.waiting "
                             "where wait_sec > 0.2")
    row = shared.wait_for(waits, "rank 0 to wait")[0]
    assert row[:2] == ["allreduce", 0] and str(row[2]) == ranks[0].pid
    assert ranks[1].rows("select count(*) from torch.waiting") == [[0]]
    who_has_not_come(ranks)
    (world.tmp / "go.too").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    assert waits() == []


def test_ranks_of_a_group_are_shown_as_those_of_the_job(world, python):
    """0 and 1 of the group [2, 3] were named where 2 and 3 were meant."""
    jobs = start(world, python, str(HERE / "targets" / "subgroup.py"), size=4)
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks[2:]:
        rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    waits = shared.wait_for(lambda: ranks[2].rows(
        "select op, rank, src_rank, dst_rank, tag from torch.waiting where wait_sec > 0.1 and "
        "op = 'allreduce'"), "rank 2 to wait")
    assert waits == [["allreduce", 2, None, None, None]]
    ends = [[["broadcast", 3, 2], ["reduce", 2, 2], ["send", 2, 3]],
            [["broadcast", 3, None], ["reduce", 3, 2], ["recv", 2, 3]]]
    for rank, expected in zip(ranks[2:], ends):
        assert rank.rows("select op, src_rank, dst_rank from python.comm_collective where src_rank "
                         "is not null order by ts") == expected
        number = ranks.index(rank)
        for table in ("python.comm_collective", "torch.groups"):
            assert rank.rows("select distinct rank, group_rank, participate_ranks from %s where "
                             "group_size = 2" % table) == [[number, number - 2, "[2, 3]"]]
    ranks[2].run("config", "torch.comm_timeout=1")
    for rank in ranks[2:]:
        said = shared.wait_for(lambda: re.search(
            r"rank 2 has waited for [\d.]+ s in allreduce of group \S+\n"
            r"  rank 3 has not come: it is 1 operation behind \(pid %s\)\n" % ranks[3].pid,
            rank.world.probing("-t", rank.pid, "torch").stdout), "the words of `torch`")
        assert said
    stuck = shared.wait_for(lambda: ranks[2].rows("select rank, participate_ranks from "
                                                  "python.comm_stuck"), "rank 2 to tell")
    assert stuck == [[2, "[2, 3]"]]
    (world.tmp / "go.too").touch()
    for rank in ranks[2:]:  # torch counts no send and no recv: all were said to have come
        assert shared.wait_for(lambda: re.search(
            r"rank 2 has waited for [\d.]+ s in recv from rank 3, of group \S+\n"
            r"  rank 3 is in no send with it \(pid %s\)\n" % ranks[3].pid,
            rank.world.probing("-t", rank.pid, "torch").stdout), "the words of `torch`")
    for name in ("go.send", "go.end"):
        (world.tmp / name).touch()
    for number in (2, 3):
        jobs[number].wait_line("done %d" % number)
    assert ranks[2].rows("select distinct src_rank from comm_metrics where op = 'allreduce'") == [
        [2]]


def test_a_rank_that_does_not_join(world, python):
    """Rank 0 stands in init_process_group from before us on: `torch` names who has not come."""
    if python == shared.DEBIAN_PYTHON:
        pytest.skip("torch 1.13 holds the GIL while it waits there")
    jobs = start(world, python, str(HERE / "targets" / "joining.py"))
    ranks = [Rank(world, pid_of(job, rank)) for rank, job in enumerate(jobs)]
    for rank in ranks:
        rank.run("inject", "--plugin", "torch")
    for rank in ranks:
        shared.wait_for(lambda: re.search(
            r"rank 0 of 2 stands in init_process_group, for [\d.]+ s at least\n"
            r"  rank 1 has not come to it \(pid %s\)\n" % ranks[1].pid,
            rank.world.probing("-t", rank.pid, "torch").stdout), "the words of `torch`")
    assert ranks[0].rows("select op, tid, wait_sec > 0 from torch.waiting") == [
        ["init_process_group", int(ranks[0].pid), True]]
    assert ranks[1].rows("select count(*) from torch.waiting") == [[0]]
    (world.tmp / "go").touch()
    for number, job in enumerate(jobs):
        job.wait_line("done %d" % number)
    assert ranks[0].rows("select count(*) from torch.waiting") == [[0]]
    assert "stands in" not in ranks[0].world.probing("-t", ranks[0].pid, "torch").stdout


def test_a_rank_is_killed(world, python):
    """A failed call has its row at once, with its error; the exception stays as it was."""
    jobs = start(world, python, str(HERE / "targets" / "killed.py"), by_torchrun=False)
    rank = Rank(world, jobs[0].pid)
    rank.run("inject", "--plugin", "torch")
    (world.tmp / "go").touch()
    shared.wait_for(lambda: rank.rows("select op from torch.waiting where op = 'allreduce'"),
                    "rank 0 to wait")
    jobs[1].kill()
    jobs[0].wait_line("done")
    said = re.findall(r"^(waited|called) (.*)$", jobs[0].output(), flags=re.M)
    assert [word for word, _ in said] == ["waited", "called"]
    rows = rank.rows("select op, error, duration_ms > 0, wait_ms / duration_ms > 0.9 "
                     "from python.comm_collective where error is not null order by ts")
    assert [row[0] for row in rows] == ["allreduce", "monitored_barrier"]
    for (_, text), row in zip(said, rows):
        assert row[1] == text[:len(row[1])] and len(row[1]) > 40 and row[2:] == [True, True]
    assert "step 0: monitored_barrier of group 0 failed: RuntimeError: " in rank.run("torch")
    assert rank.rows("select count(*) from torch.waiting") == [[0]]
