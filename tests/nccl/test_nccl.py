# SPDX-License-Identifier: Apache-2.0
"""The nccl plugin in a program that calls it as NCCL does: each version of the interface, with and
without a core, early and late, and what is left when the program is killed."""
import json
import os
import re
import shutil
import subprocess

import pytest
from nccl_program import COMM, ONE, PLUGIN, Program
from world import DEBIAN_PYTHON, has_torch, wait_for

ENDED = "select coll_func, seq, msg_size_bytes, timing_source, exec_time_ns, n_channels, " \
        "comm_hash from nccl.coll_perf order by id"


@pytest.mark.parametrize("version", [7, 6, 5, 4, 3, 2, 1])
def test_each_version_of_the_interface(world, version):
    program = Program(world, launch=True)
    assert program.tell("load %d" % version) == ["v%d" % version]
    assert program.tell(COMM)[0] == "init 0 context"
    program.tell(*ONE)
    rows = program.wait_rows(ENDED, 1)
    # 1 and 2 have no kernels; the GPU's clock and the number of channels came with 4.
    source = {1: "proxy", 2: "proxy", 3: "kernel_ch"}.get(version, "kernel_gpu")
    assert rows[0][:4] == ["AllReduce", 7, 4194304, source]
    assert rows[0][6] == "0xabc123"
    if version >= 4:
        assert rows[0][4:6] == [2100500, 2]
    else:
        assert rows[0][4] > 30e6 and rows[0][5] is None
    proxies = program.rows("select is_send, peer, trans_bytes, culprit_rank, send_gpu_wait_ns, "
                           "recv_wait_ns, coll_func, seq from nccl.proxy_ops order by is_send")
    assert [p[:2] + p[6:] for p in proxies] == [[0, 0, "AllReduce", 7], [1, 2, "AllReduce", 7]]
    # 30 ms the receiver waited for rank 0; the sender for its own GPU, rank 1.
    assert proxies[0][3] == 0 and proxies[0][5] >= 30e6 and proxies[0][4] == 0
    assert proxies[1][3] == 1 and proxies[1][4] >= 30e6 and proxies[1][5] == 0
    if version >= 4:
        assert [p[2] for p in proxies] == [65536, 65536]


def test_without_a_core_it_does_nothing_until_one_comes(world):
    """NCCL has one copy of the library, the core another: both have the same events."""
    program = Program(world, env={"NCCL_PROFILER_PLUGIN": str(PLUGIN)})
    assert program.tell(COMM, "mask", ONE[0], "stop 1") == ["init 0 context", "0", "null"]
    program.target.inject()
    assert program.tell("mask") == ["0"]
    assert program.target.probing("plugin", "load", "nccl").returncode == 0
    assert program.tell("mask") != ["0"]
    program.tell(*ONE)
    assert program.wait_rows(ENDED, 1)[0][4] == 2100500
    assert program.rows("select state, communicators from nccl.profiler_state") == [["active", 1]]
    assert program.target.probing("plugin", "stop", "nccl").returncode == 0
    assert program.tell("mask", ONE[0]) == ["0", "null"]
    assert program.target.probing("plugin", "load", "nccl").returncode == 0
    program.tell(*ONE)
    program.wait_rows(ENDED, 2)


def test_the_core_first_and_nccl_with_a_copy_of_the_file(world):
    copied = world.tmp / "libnccl-profiler-ours.so"
    shutil.copy(PLUGIN, copied)
    program = Program(world, launch=True, env={"NCCL_PROFILER_PLUGIN": str(copied)})
    program.tell(COMM, *ONE)
    assert program.wait_rows(ENDED, 1)[0][4] == 2100500


def test_over_symmetric_memory(world):
    """NCCL 2.32 tells of it.  In a CUDA graph no kernel is told of: such a launch has ended when it
    is queued, and its number, which does not grow, says that it is one."""
    program = Program(world, launch=True)
    program.tell(COMM, "coll 1 0 4 AllReduce 1024 ncclFloat32 1 RSxTmaLD_AGxTmaST 77", "stop 1",
                 "kernel 2 0 1 0 100", "timer 2 700", "stop 2")
    query = "select seq, algo, proto, symmetric, user_tag, timing_source from nccl.coll_perf " \
            "order by id"
    assert program.wait_rows(query, 1) == [
        [4, "RSxTmaLD_AGxTmaST", None, 1, 77, "kernel_gpu"]]
    launch = ["coll 3 0 5 AllReduce 1024 ncclFloat32 1 LL_R", "stop 3"]
    program.tell(*launch)
    assert program.rows("select seq, state from nccl.inflight_ops") == [[5, "enqueued"]]
    program.tell("coll 4 0 5 AllGather 1024 ncclFloat32 1 LL_R", "stop 4", *launch)
    program.wait_rows(query, 3)
    assert program.rows(query)[1:] == 2 * [[5, "LL_R", None, 1, None, "enqueue"]]
    assert program.rows("select coll_func from nccl.inflight_ops") == [["AllGather"]]


@pytest.mark.parametrize("version", [7, 6, 4])
def test_what_a_rank_sends_to_itself_has_ended_when_it_is_queued(world, version):
    """NCCL gives it a channel, and tells of no kernel there: it is not in flight for ever."""
    program = Program(world, launch=True)
    program.tell("load %d" % version, COMM, "p2p 1 0 Send 4096 ncclInt8 1 1",
                 "p2p 2 0 Send 4096 ncclInt8 2 1", "stop 1", "stop 2")
    assert program.wait_rows(ENDED, 1)[0][:5] == ["Send", None, 4096, "enqueue", None]
    assert program.rows("select state from nccl.inflight_ops") == [["enqueued"]]


def test_nccl_finds_no_profiler_when_it_is_told_so(world):
    program = Program(world, launch=True, env={"NCCL_PROFILER_PLUGIN": "none"})
    assert program.tell("load", COMM) == ["none"]
    state, reason = program.rows("select state, reason from nccl.profiler_state")[0]
    assert state == "refused" and "NCCL_PROFILER_PLUGIN=none" in reason
    done = program.target.probing("query", "select * from nccl.coll_perf")
    assert "NCCL_PROFILER_PLUGIN=none" in done.stdout + done.stderr


def test_a_communicator_of_before_has_no_events_and_that_is_said(world):
    program = Program(world)
    assert program.tell("load", COMM) == ["none"]
    program.target.inject()
    assert program.target.probing("plugin", "load", "nccl").returncode == 0
    assert program.tell("load", "comm 1 2 x 1 2 0") == ["none"]  # NCCL remembers
    assert program.rows("select state from nccl.profiler_state") == [["waiting"]]
    done = program.target.probing("query", "select * from collectives")
    assert done.returncode == 0 and "NCCL is not loaded" in done.stdout + done.stderr


NEWER = [p for p in os.environ.get("PROBING_TEST_TORCH", "").split(":") if p]
GLOO = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="file://%s", rank=0, world_size=1)
print("ready", flush=True)
while True:
    dist.all_reduce(torch.ones(1000))
    time.sleep(0.01)
"""


def test_where_nccl_tells_nothing_torch_does(world):
    if not has_torch(DEBIAN_PYTHON):
        pytest.skip("no torch for %s" % DEBIAN_PYTHON)
    target = world.python(GLOO % (world.tmp / "store"), python=DEBIAN_PYTHON)
    target.wait_line("^ready")
    target.inject("--plugin", "torch", "--plugin", "nccl")
    wait_for(lambda: target.rows("select 1 from collectives limit 1"), "rows")
    assert target.rows("select distinct source, op, group_size, bytes from collectives") == \
        [["torch", "allreduce", 1, 4000]]
    done = target.probing("nccl")
    assert "NCCL: waiting: " in done.stdout, done.stderr
    assert re.search(r"NCCL told nothing.*\n +allreduce ", done.stdout)
    assert target.rows("select 1 from comm_metrics where op = 'allreduce' limit 1") == [[1]]


@pytest.mark.skipif(not NEWER, reason="no torch 2: set PROBING_TEST_TORCH=/path/to/python")
def test_what_was_before_is_what_torch_remembers(world):
    """Attached late: its flight recorder has what nobody was told of, and nothing comes twice."""
    target = world.python(GLOO % (world.tmp / "store"), python=NEWER[0])
    target.wait_line("^ready")
    target.inject("--plugin", "torch", "--plugin", "nccl")
    wait_for(lambda: target.rows("select 1 from python.comm_collective"), "rows")
    if target.rows("select count(*) from python.torch_nccl_flight_record") == [[0]]:
        pytest.skip("this torch has no flight recorder of gloo")
    before = target.rows("select op, min(group_name), max(duration_ms) from collectives where "
                         "source = 'flight recorder' group by op order by op")
    assert ["allreduce", "0", None] in before  # gloo does not say when they ended
    assert target.rows("select count(*) from collectives where source = 'flight recorder' and "
                       "timestamp >= (select min(ts) from python.comm_collective)") == [[0]]
    assert target.rows("select distinct source from collectives order by 1") == [
        ["flight recorder"], ["torch"]]
    target.process.kill()
    target.process.wait()
    assert target.rows("select distinct source from collectives") == [["torch"]]


def test_what_had_begun_when_it_was_killed(world):
    program = Program(world, launch=True)
    program.tell(COMM, "typical 5", "coll 1 0 5 ReduceScatter 1024 ncclBfloat16 2", "stop 1",
                 "proxy 4 0 1 3 2 8 0", "step 6 0 4 0", "state 6 10")
    query = "select coll_func, seq, kind, channel_id, state, culprit_rank from " \
            "nccl.inflight_ops order by kind"
    expected = [["ReduceScatter", 5, "coll", None, "running", None],
                ["ReduceScatter", 5, "proxy_op", 3, "recv_wait", 2]]
    assert program.rows(query) == expected
    program.wait_rows("select id from nccl.inflight_log", 2)
    program.target.kill()
    assert program.rows(query) == expected
    assert program.value("select count(*) from nccl.coll_perf") == 5
    assert all(row[0] >= 250e6 for row in program.rows("select age_ns from nccl.inflight_ops"))


def test_ages_grow_and_ended_ones_are_gone(world):
    program = Program(world, launch=True)
    program.tell(COMM, "coll 1 0 5 AllGather 1 ncclInt8 1")
    query = "select age_ns, state from nccl.inflight_ops"
    before = program.rows(query)[0]
    assert before[1] == "enqueuing"
    program.tell("stop 1", "rest 50")
    after = program.rows(query)[0]
    assert after[1] == "enqueued" and after[0] >= before[0] + 50e6
    program.tell("kernel 2 0 1 0 5", "timer 2 7", "stop 2")
    assert program.rows(query) == []
    assert program.wait_rows(ENDED, 1)[0][4] == 2


def test_any_calls_of_many_communicators(world):
    program = Program(world, launch=True)
    program.tell(*["comm %d %d c%d 1 8 %d" % (i, i + 1, i, i) for i in range(6)])
    program.tell("random 4711 1000", "typical 50", *["end %d" % i for i in range(6)])
    # The last row of a communicator's counters is written when it has ended.
    rows = program.wait_rows("select comm_name, max(ops), max(proxy_ops), max(live) from "
                             "nccl.profiler_counters group by comm_name order by 1", 6)
    wait_for(lambda: program.value("select count(*) from nccl.communicators") == 0, "no more")
    rows = program.rows("select comm_name, max(ops), max(proxy_ops), max(pool_exhausted) from "
                        "nccl.profiler_counters group by comm_name order by 1")
    written = dict(program.rows("select comm_name, count(*) from nccl.coll_perf group by 1"))
    proxies = dict(program.rows("select comm_name, count(*) from nccl.proxy_ops group by 1"))
    for name, ops, proxy_ops, exhausted in rows:
        assert (written[name], proxies[name], exhausted) == (ops, proxy_ops, 0), name
        assert ops >= 50
    assert program.value("select count(*) from nccl.coll_perf where timing_source = 'kernel_gpu' "
                         "and exec_time_ns = 501000") == 300
    assert program.rows("select * from probing.lost where table_name like 'nccl.%'") == []
    assert program.target.probing("plugin", "stop", "nccl").returncode == 0
    assert program.target.alive()


def test_nccl_closes_the_library_and_opens_it_again(world):
    program = Program(world, env={"NCCL_PROFILER_PLUGIN": str(PLUGIN)})
    program.target.inject()
    assert program.target.probing("plugin", "load", "nccl").returncode == 0
    program.tell(COMM, *ONE)
    program.tell("end 0", "unload", "load", "comm 0 9 again 1 2 0", *ONE)
    program.wait_rows(ENDED, 2)
    assert [r[0] for r in program.rows("select comm_hash from nccl.communicators")] == ["0x9"]


def test_the_core_leaves_and_comes_back(world):
    program = Program(world, launch=True)
    program.tell(COMM, *ONE, "coll 1 0 8 AllGather 1 ncclInt8 1")
    program.wait_rows(ENDED, 1)
    assert program.target.probing("eject").returncode == 0
    assert program.tell("mask", ONE[0], "typical 2") == ["0", "null"]
    program.target.inject("--plugin", "nccl")
    assert program.tell("mask") != ["0"]
    program.tell(*[line.replace(" 7 AllReduce", " 9 AllReduce") for line in ONE])
    wait_for(lambda: [9, 2100500] in program.rows("select seq, exec_time_ns from nccl.coll_perf"),
             "the operation of afterwards")


def test_a_child_takes_nothing(world):
    program = Program(world, launch=True)
    assert program.tell(COMM, "typical 2", "fork")[-1] == "status 0"  # its mask
    program.tell("typical 3")
    assert program.wait_rows("select id from nccl.coll_perf", 5) and program.tell("mask") != ["0"]
    assert program.value("select count(*) from nccl.coll_perf") == 5


def test_both_ranks_of_a_transfer(world):
    program = Program(world, launch=True)
    program.tell(COMM, *ONE)
    program.wait_rows("select 1 from comm_metrics", 2)
    assert program.rows("select src_rank, dst_rank, op, bytes from comm_metrics order by 1") == \
        [[0, 1, "allreduce", 65536], [1, 2, "allreduce", 65536]]
    program.wait_rows("select 1 from collectives", 1)
    assert program.rows("select source, rank, op, seq, group_name, group_size, bytes from "
                        "collectives") == [["nccl", 1, "allreduce", 7, "world", 4, 4194304]]


def test_queue_pairs(world):
    program = Program(world, launch=True)
    program.tell(COMM, *ONE[:1], "proxy 4 0 1 0 2 8 1", "step 6 0 4 0", "qp 8 0 6 77 12345 4096",
                 "rest 20", "stop 8")
    row = program.wait_rows("select qp_num, wr_id, opcode, length, duration_ns from nccl.net_qp",
                            1)[0]
    assert row[:4] == [77, 12345, 1, 4096] and row[4] >= 20e6


def test_it_is_off_where_the_core_is_not_wanted(world):
    """A core without the plugin: NCCL finds no profiler, and the program is as it was."""
    program = Program(world)
    program.target.inject()
    assert program.tell("load", COMM, "typical 3") == ["none"]
    done = program.target.probing("query", "select * from nccl.inflight_ops")
    assert "plugin nccl is not loaded" in done.stdout + done.stderr


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_NCCL_LIBRARY"),
                    reason="PROBING_TEST_NCCL_LIBRARY does not name a libnccl.so.2 (of PyPI's "
                           "nvidia-nccl-cu12): NCCL's own loader is not tried")
@pytest.mark.parametrize("version", [1, 2, 3, 4, 5, 6, 7])
def test_by_the_loader_and_translations_of_a_real_nccl(world, version):
    """It needs no GPU: what NCCL does between its operations and a profiler of each version."""
    library = os.environ["PROBING_TEST_NCCL_LIBRARY"]
    at = {words[2]: words[0] for words in map(str.split, subprocess.run(
        ["nm", library], stdout=subprocess.PIPE, text=True).stdout.splitlines())
        if len(words) == 3 and words[2].startswith(("_Z18getNcclProfiler_v", "_Z25ncclOpenProf"))}
    newest = max(int(name[len("_Z18getNcclProfiler_v")]) for name in at if "get" in name)
    if version > newest:
        pytest.skip("this NCCL knows interfaces to %d" % newest)
    program = Program(world, launch=True, env={"NCCL_PROFILER_PLUGIN": str(PLUGIN)})
    assert program.tell("real %s %s %s %d" % (
        library, at["_Z25ncclOpenProfilerPluginLibPKc"],
        at["_Z18getNcclProfiler_v%dPv" % version], newest)) == ["real v%d" % newest]
    assert program.tell(COMM)[0] == "init 0 context"
    program.tell(*ONE)
    row = program.wait_rows(ENDED, 1)[0]
    assert row[:4] == ["AllReduce", 7, 4194304, {1: "proxy", 2: "proxy", 3: "kernel_ch"}.get(
        version, "kernel_gpu")]
    assert len(program.rows("select * from nccl.proxy_ops where coll_func = 'AllReduce'")) == 2
    assert program.value("select interface from nccl.communicators") == version


@pytest.mark.skipif(not os.environ.get("PROBING_TEST_NCCL_HEADERS"),
                    reason="PROBING_TEST_NCCL_HEADERS does not name NCCL's folder "
                           "plugins/profiler/example/nccl: layouts are not compared")
def test_layouts_are_those_of_nccl(tmp_path):
    import layouts
    layouts.compare(os.environ["PROBING_TEST_NCCL_HEADERS"], tmp_path)


def test_the_report_of_the_living_and_the_dead(world):
    program = Program(world, launch=True)
    program.tell(COMM, *ONE, "coll 1 0 8 AllGather 1024 ncclBfloat16 2", "stop 1",
                 "proxy 4 0 1 3 2 8 0", "step 6 0 4 0", "state 6 10")
    program.wait_rows(ENDED, 1)
    program.wait_rows("select id from nccl.inflight_log", 2)
    for target in "living", "dead":
        done = program.target.probing("nccl")
        assert done.returncode == 0, done.stderr
        assert re.search(r"world +4 +1 +2.1 ms +2.1 ms +2.0 +AllReduce", done.stdout), target
        assert re.search(r"rank 1 .* in 1 proxy operation: this rank's own GPU", done.stdout)
        assert re.search(r"AllGather 8 of world: running for", done.stdout)
        assert re.search(r"recv_wait for .*, waits for rank 2 of it$", done.stdout, flags=re.M)
        told = json.loads(program.target.probing("nccl", "--json").stdout)
        assert told["communicators"][0]["exec_ns"] == 2100500
        assert {c["culprit_rank"] for c in told["culprits"]} == {0, 1}
        assert len(told["inflight"]) == 2
        program.target.kill()


def test_who_has_not_come_of_a_job(world):
    """Rank 1 of the job has not called the collective, alive or dead; rank 3 has ended it, and of
    one rank of five nothing is known."""
    job = "hang-%d" % os.getpid()
    ranks = [Program(world, launch=True, env=dict(
        RANK=str(rank), WORLD_SIZE="4", TORCHELASTIC_RUN_ID=job)) for rank in range(4)]
    for rank, program in enumerate(ranks):
        program.tell("comm 0 0xabc dp 2 5 %d" % (rank + 1), "typical %d" % (9 if rank == 3 else 8))
        if rank in (0, 2):
            program.tell("coll 1 0 8 AllReduce 1024 ncclFloat32 2", "stop 1",
                         "proxy 4 0 1 3 %d 8 0" % rank, "step 6 0 4 0",
                         "state 6 10")
            program.wait_rows("select id from nccl.inflight_log", 2)
        program.wait_rows(ENDED, 8)
    for rank_1 in ranks[1].target.pid, r"\S+/data/\S+":
        done = world.probing("-t", "job:" + job, "nccl_hang")
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(
            r"AllReduce 8 of dp: 2 of 5 ranks are in it, the first for [\d.]+ s\n"
            r"  rank 1 \(2 of the communicator, -t %s\) has not called it: its last AllReduce was "
            r"7\n"
            r"  rank 3 \(4 of the communicator, -t %d\) has ended it\n"
            r"  of 1 rank nothing is known here\n"
            r"(  rank (2 waits for rank 1|0 waits for rank 0 of the communicator) on the network: "
            r"recv_wait for [\d.]+ s\n){2}"
            % (rank_1, ranks[3].target.pid), done.stdout), done.stdout
        assert "rank 2 waits for rank 1 on" in done.stdout
        ranks[1].target.kill()
    told = json.loads(world.probing("-t", "job:" + job, "nccl_hang", "--json").stdout)
    (call,) = told["collectives"]
    assert told["p2p"] == [] and told["seen"] and told["whole"]
    assert [call[k] for k in ("coll_func", "seq", "comm_name", "n_ranks", "unknown")] == [
        "AllReduce", 8, "dp", 5, 1]
    assert {r["job_rank"] for r in call["in"]} == {0, 2}
    assert [(r["rank"], r["state"], r["last_seq"]) for r in call["absent"]] == [
        (2, "not called", 7), (4, "ended", 8)]
    assert {(w["rank"], w["job_rank"], w["waits_for"], w["waits_for_job_rank"])
            for w in call["waits"]} == {(3, 2, 2, 1), (1, 0, 0, None)}
    done = ranks[3].target.probing("nccl_hang")
    assert done.stdout == "no collective, send or receive of NCCL is in flight\n", done
    nobody = Program(world, launch=True).target
    assert nobody.probing("nccl_hang").stdout.startswith("no operation of NCCL was seen on these")
    assert json.loads(nobody.probing("nccl_hang", "--json").stdout) == {
        "collectives": [], "p2p": [], "seen": False, "whole": True}


def test_who_has_not_come_to_a_send(world):
    """Rank 0 sends to 1, which is in its Recv; 2 receives from 0, which does not send; 3 sends to
    4, of which nothing is known."""
    job = "pairs-%d" % os.getpid()
    ranks = [Program(world, launch=True, env=dict(
        RANK=str(rank), WORLD_SIZE="4", TORCHELASTIC_RUN_ID=job)) for rank in range(4)]
    pairs = {0: ("Send", 1), 1: ("Recv", 0), 2: ("Recv", 0), 3: ("Send", 4)}
    for rank, program in enumerate(ranks):
        program.tell("comm 0 0xabc pp 2 5 %d" % rank,
                     "p2p 1 0 %s 1024 ncclFloat32 %d 1" % pairs[rank], "stop 1",
                     "proxy 4 0 1 3 %d 8 %d" % (pairs[rank][1], pairs[rank][0] == "Send"),
                     "step 6 0 4 0", "state 6 %d" % (8 if pairs[rank][0] == "Send" else 10))
        program.wait_rows("select id from nccl.inflight_log", 2)
    done = world.probing("-t", "job:" + job, "nccl_hang")
    assert done.returncode == 0, done.stderr
    head = r"^%s of pp %s rank %s, under way for [\d.]+ s: rank %d \(-t .*\n"
    assert re.search(head % ("Recv", "from", "0", 2) + r"  rank 0 \(.*\) is in no Send with it\n"
                     r"  rank 2 waits for rank 0 on the network: ", done.stdout, re.M), done.stdout
    assert re.search(head % ("Send", "to", "4 of the communicator", 3) +
                     "  of rank 4 of the communicator nothing is known here\n",
                     done.stdout, re.M), done.stdout
    assert len(re.findall(r"^  rank [01] \(.*\) is in its (Send|Recv)$", done.stdout, re.M)) == 1
    told = json.loads(world.probing("-t", "job:" + job, "nccl_hang", "--json").stdout)
    assert sorted((min(p["rank"], p["peer"]), max(p["rank"], p["peer"]), p["peer_state"])
                  for p in told["p2p"]) == [
        (0, 1, "in it"), (0, 2, "not in it"), (3, 4, "unknown")]


def test_the_report_says_why_there_is_nothing(world):
    program = Program(world)
    program.target.inject()
    done = program.target.probing("nccl")
    assert done.returncode == 1 and "plugin load nccl" in done.stderr
    assert program.target.probing("plugin", "load", "nccl").returncode == 0
    done = program.target.probing("nccl")
    assert done.returncode == 0 and "NCCL: waiting: NCCL is not loaded yet" in done.stdout
    assert "no operation of NCCL was seen" in done.stdout
