# SPDX-License-Identifier: Apache-2.0
"""The system plugin's other tables against /proc and /sys, read by somebody else; the field's own
queries; and reasons where there is nothing."""
import json
import os
import pathlib
import re
import resource
import time

import pytest
from samples_of import loads
from world import wait_for

FIELD = pathlib.Path(__file__).with_name("field_queries.sql").read_text()


@pytest.fixture
def target(world):
    target = loads(world, "spin=1", "sleep=2")
    target.inject("-D", "system.interval=100ms")
    wait_for(lambda: target.rows("select count(*) from cpu.utilization")[0][0] > 4, "rows")
    return target


def test_a_setting_loads_the_plugin_and_queries_of_the_field_run(world):
    target = world.start(str(loads(world).process.args[0]), "spin=1", "sleep=2",
                         env={"PROBING_SYSTEM_INTERVAL": "100ms"})
    target.wait_line("ready")
    target.inject()
    wait_for(lambda: target.probing("query", "select 1 from cpu.utilization").stdout.count("1"),
             "rows")
    for query in re.sub("^--.*$", "", FIELD, flags=re.M).split(";")[:-1]:
        done = target.probing("query", query)
        assert done.returncode == 0, query + "\n" + done.stderr
    assert target.rows("select count(*) from cpu.utilization where scope = 'process' and "
                       "wall_ns < 900000000")[0][0] > 0


def test_memory_usage_is_that_of_the_process(target):
    rows = target.rows("SELECT * FROM memory_usage WHERE timestamp > now() - interval '5 min'")
    assert rows and all(0.1 < row[1] < 1000 and row[2] is None for row in rows)


def test_tasks_have_what_they_used_since_they_were_read_before(target):
    """The field's column; it is of the last look that was a second ago, whoever took it."""
    sql = "select thread_id, cpu_ns, wall_ns, delta_total_ns, age_ns from cpu.tasks"
    first = {row[0]: row[1:] for row in target.rows(sql)}
    begun = time.monotonic()
    assert all(wall == age and delta == cpu for cpu, wall, delta, age in first.values())
    wait_for(lambda: time.monotonic() > begun + 1, "a second")
    second = {row[0]: row[1:] for row in target.rows(sql)}
    both = set(first) & set(second)
    assert len(both) >= 3 and len({second[tid][1] for tid in both}) == 1
    for tid in both:
        cpu, wall, delta, _ = second[tid]
        assert delta == cpu - first[tid][0] and wall >= 1e9
    assert any(second[tid][2] > 0 for tid in both), "nothing has run"


def test_maps_are_those_of_proc(target):
    def read():
        return open("/proc/%d/maps" % target.pid, errors="replace").read().splitlines()

    before = read()
    ours = {(r[0], r[1]): r[2:] for r in target.rows(
        "select start_address, end_address, perms, path, deleted from process.maps")}
    seen, proc = 0, set(before) & set(read())  # the heaps of workers change meanwhile
    for line in proc:
        found = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)", line)
        key = int(found[1], 16), int(found[2], 16)
        if key in ours:
            seen += 1
            assert ours[key][0] == found[3]
            assert (ours[key][1] or "") == found[4].replace(" (deleted)", "")
            assert ours[key][2] == (1 if found[4].endswith(" (deleted)") else 0)
    assert seen > len(proc) * 0.8


def test_fds_and_limits_are_those_of_proc(target):
    folder = "/proc/%d/fd" % target.pid
    ours = dict(target.rows("select fd, target from process.fds"))
    for fd in os.listdir(folder):
        if os.path.exists(os.path.join(folder, fd)) and int(fd) < 3:
            assert ours[int(fd)] == os.readlink(os.path.join(folder, fd))
    flags = re.search(r"flags:\s*(\d+)", open("/proc/%d/fdinfo/0" % target.pid).read())[1]
    access = ["r", "w", "rw"][int(flags, 8) & os.O_ACCMODE]
    assert target.rows("select access, cloexec from process.fds where fd = 0") == [[access, 0]]
    soft, hard = resource.prlimit(target.pid, resource.RLIMIT_NOFILE)
    row = target.rows("select soft, hard, used from process.limits where name = 'nofile'")[0]
    assert row[:2] == [soft, hard]
    assert abs(row[2] - len(ours)) <= 4
    assert target.rows("select soft from process.limits where name = 'rss'")[0][0] in (
        None, resource.prlimit(target.pid, resource.RLIMIT_RSS)[0])


def test_other_processes_and_this_one(target):
    rows = {r[0]: r[1:] for r in target.rows(
        "select pid, comm, cpu_pct, rss_bytes, uid, self from process.cpu_stats")}
    assert rows[target.pid][0] == "loads" and rows[target.pid][1] > 1
    assert rows[target.pid][3] == os.getuid() and rows[target.pid][4] == 1
    assert rows[os.getpid()][4] == 0 and rows[os.getpid()][2] > 1 << 20


def test_io_and_network_count(world):
    target = world.python('''
import os, socket, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
with open("written", "wb") as f:
    for _ in range(64):
        f.write(b"x" * (1 << 20))
a, b = socket.socket(), socket.socket()
a.bind(("127.0.0.1", 0)); a.listen(1)
b.connect(a.getsockname()); c, _ = a.accept()
for _ in range(1000):
    b.sendall(b"y" * 10000)
    left = 10000
    while left:
        left -= len(c.recv(left))
print("done", flush=True)
time.sleep(600)
''')
    target.wait_line("ready")
    target.inject("-D", "system.interval=100ms")
    wait_for(lambda: target.rows("select count(*) from io.utilization")[0][0] and
             target.rows("select count(*) from net.utilization where interface = 'lo'")[0][0],
             "first rows")
    (world.tmp / "go").write_text("")
    target.wait_line("done")
    wait_for(lambda: (target.rows("select sum(delta_wchar) from io.utilization")[0][0] or 0)
             >= 64 << 20, "what was written")
    wait_for(lambda: (target.rows("select sum(delta_rx_bytes) from net.utilization where "
                                  "interface = 'lo'")[0][0] or 0) >= 10000000, "what was sent")
    said = dict(re.findall(r"(\w+): (\d+)", open("/proc/%d/io" % target.pid).read()))
    written = target.rows("select max(write_bytes) from io.utilization")[0][0]
    assert 64 << 20 <= written <= int(said["write_bytes"])


def test_connections_are_those_of_the_program(world):
    """Both ends of two connections of its own; what reaches us over TCP is none of them."""
    target = world.python('''
import os, socket, time
a = socket.create_server(("127.0.0.1", 0))
b, quiet = [socket.create_connection(a.getsockname()) for _ in range(2)]
c, other = [a.accept()[0] for _ in range(2)]
unix, udp = socket.socketpair(), socket.socket(type=socket.SOCK_DGRAM)
with socket.create_server(("127.0.0.1", 0)) as free:
    print("ports", *[s.getsockname()[1] for s in (a, b, quiet, free)], flush=True)
while True:
    b.sendall(b"y" * 10000)
    left = 10000
    while left:
        left -= len(c.recv(left))
    time.sleep(0.01)
    if os.path.exists("close"):
        other.close()
''')
    server, busy, quiet, free = map(int, target.wait_line(r"ports (.+)\n")[1].split())
    at = "127.0.0.1:%d" % free
    target.inject("-D", "system.interval=100ms", "-l", at)

    def connections():
        done = world.probing("-t", at, "query", "-f", "json", "select state, local_port, "
                             "peer_port, local_address, rx_bytes, tx_bytes, rtt_ns, left_out from "
                             "net.connections")
        return json.loads(done.stdout)["rows"]
    rows = connections()
    assert sorted(tuple(r[1:3]) for r in rows if r[0] == "estab") == sorted(
        ends for port in (busy, quiet) for ends in ((port, server), (server, port))), rows
    assert [r[:4] for r in rows if r[0] == "listen"] == [["listen", server, None, "127.0.0.1"]]
    by = {tuple(r[1:3]): r for r in rows}
    assert by[busy, server][5] > 0 and by[server, busy][4] > 0 and by[busy, server][6] > 0, rows
    assert by[quiet, server][4] == 0 and all(r[7] is None for r in rows), rows
    peers = "select local_address, peer_address, connections, delta_rx_bytes, delta_tx_bytes, " \
        "rtt_ns, min_rtt_ns, wall_ns, ts from net.peers order by ts"
    seen = wait_for(lambda: [r for r in target.rows(peers) if r[4]], "bytes between two looks")
    assert all(r[:3] == ["127.0.0.1", "127.0.0.1", 4] for r in seen), seen
    assert all(abs(r[3] - r[4]) <= 50000 and 0 < r[6] <= r[5] and r[7] > 0 for r in seen), seen
    (world.tmp / "close").touch()
    wait_for(lambda: target.rows(peers)[-1][2] == 3, "a connection to be gone")
    assert {r[0] for r in connections()} == {"estab", "listen", "close-wait"}


def test_why_there_is_nothing(target):
    if os.path.exists("/sys/class/infiniband"):
        pytest.skip("this machine has InfiniBand")
    done = target.probing("query", "select * from rdma.counters")
    assert "no InfiniBand or RoCE device" in done.stdout + done.stderr
    done = target.probing("query", "select * from process.gpu_users")
    if "0 rows" in done.stdout:
        assert "no process that may be looked at has a GPU open" in done.stdout + done.stderr


def test_pressure_is_that_of_the_machine(target):
    try:
        text = open("/proc/pressure/cpu").read()
    except OSError as error:
        done = target.probing("query", "select * from system.pressure")
        assert "pressure" in done.stdout + done.stderr, error
        return
    total = int(re.search(r"some .*total=(\d+)", text)[1])
    row = wait_for(lambda: target.rows(
        "select total_ns, wait_pct from system.pressure where resource = 'cpu' and kind = 'some' "
        "and scope = 'machine' and total_ns >= %d" % (total * 1000)), "a later look")[-1]
    assert row[1] is None or 0 <= row[1] <= 101


def test_metrics_and_numa(target):
    text = target.probing("metrics").stdout
    for name in ("cpu_seconds_total", "cpu_percent", "resident_memory_bytes", "threads",
                 "io_bytes_total"):
        assert re.search(r"^probing_system_%s(\{.*\})? [0-9.]+" % name, text, flags=re.M), text
    nodes = [p.name for p in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")]
    rows = target.rows("select node, total_bytes, process_bytes from system.numa")
    assert sorted("node%d" % r[0] for r in rows) == sorted(nodes)
    assert all(r[1] > 0 for r in rows) and (not rows or sum(r[2] for r in rows) > 0)


@pytest.fixture
def groups():
    """Folders of new cgroups, which go away with the test."""
    made = []

    def make(*candidates):
        for parent in candidates:
            folder = pathlib.Path(parent) / ("probing-test-%d" % os.getpid())
            try:
                folder.mkdir()
            except OSError:
                continue
            made.append(folder)
            return folder
        pytest.skip("no cgroup can be made here")
    yield make
    for folder in reversed(made):
        for pid in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


def test_a_group_that_is_throttled(world, groups):
    """Version 1, as of a container's; where that is not mounted the test is a skip."""
    cpu = groups("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")
    memory = groups("/sys/fs/cgroup/memory")
    inner = groups(memory)
    (cpu / "cpu.cfs_quota_us").write_text("5000")  # less than it gets on a busy machine, too
    (cpu / "cpu.cfs_period_us").write_text("100000")
    (memory / "memory.limit_in_bytes").write_text(str(512 << 20))
    target = loads(world, "spin=4")
    try:
        for folder in (cpu, inner):
            (folder / "cgroup.procs").write_text(str(target.pid))
        target.inject("-D", "system.interval=100ms")
        row = wait_for(lambda: target.rows(
            "select version, cpu_limit_cores, delta_throttled, delta_throttled_ns, "
            "memory_limit_bytes, memory_bytes, path from cgroup.utilization where "
            "delta_throttled_ns > 0"), "a look at a throttled group")[-1]
        assert row[0] == 1 and row[1] == pytest.approx(0.05)
        assert row[2] > 0 and row[3] > 0
        assert row[4] == 512 << 20  # the parent's
        assert 0 < row[5] < 512 << 20 and row[6] == str(inner)
    finally:
        target.kill()
        wait_for(lambda: not (inner / "cgroup.procs").read_text(), "the target to leave")
        wait_for(lambda: not (cpu / "cgroup.procs").read_text(), "the target to leave")


def test_a_group_that_it_is_moved_to(world, groups):
    """The first look after the move is of the new group, whose past is not the process's."""
    cpu = groups("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")
    (cpu / "cpu.cfs_quota_us").write_text("5000")
    (cpu / "cpu.cfs_period_us").write_text("100000")

    def throttled():
        return int(re.search(r"throttled_time (\d+)", (cpu / "cpu.stat").read_text()).group(1))
    before, target = loads(world, "spin=4"), loads(world, "spin=1")
    (cpu / "cgroup.procs").write_text(str(before.pid))
    wait_for(lambda: throttled() > 10e9, "10 s in which the group was stopped")
    before.kill()
    wait_for(lambda: not (cpu / "cgroup.procs").read_text(), "the other one to leave")
    target.inject("-D", "system.interval=100ms")
    select = ("select ts, cpu_limit_cores, delta_throttled_ns, wall_ns from cgroup.utilization "
              "order by ts")
    wait_for(lambda: len(target.rows(select)) >= 2, "looks at the group before")
    try:
        (cpu / "cgroup.procs").write_text(str(target.pid))
        moved = target.rows("select now()")[0][0]
        rows = wait_for(lambda: [r for r in target.rows(select) if r[2]], "a throttled look")
        assert rows[0][2] <= rows[0][3] * os.cpu_count(), rows
        assert all(r[1] for r in target.rows(select) if r[0] > moved), target.rows(select)
    finally:
        target.kill()
        wait_for(lambda: not (cpu / "cgroup.procs").read_text(), "the target to leave")


def test_who_waits_for_a_processor_and_why(world):
    """Two that spin, both on one processor, one of them nice: the kernel's own counts."""
    cpu = sorted(os.sched_getaffinity(0))[0]
    target = loads(world, "spin=2")
    for tid in os.listdir("/proc/%d/task" % target.pid):
        os.sched_setaffinity(int(tid), {cpu})
        os.setpriority(os.PRIO_PROCESS, int(tid), 5)
    target.inject("-D", "system.interval=100ms")

    def waits(scope):
        return target.rows("select sum(delta_runq_wait_ns) from cpu.utilization "
                           "where scope = '%s'" % scope)[0][0] or 0
    wait_for(lambda: waits("process") > 2e8, "0.2 s of waiting")
    ours = waits("thread")
    waited = sum(int(pathlib.Path("/proc/%d/task/%s/schedstat" % (target.pid, tid)).read_text()
                     .split()[1]) for tid in os.listdir("/proc/%d/task" % target.pid))
    assert 2e8 < ours <= waited, (ours, waited)
    assert target.rows("select distinct nice, cpus_allowed from cpu.utilization where scope = "
                       "'process'") == [[5, 1]]


def test_the_machine_is_that_of_proc(target):
    """Counters go on while they are read, so ours lie between two readings of others."""
    def retransmitted():
        lines = [l.split() for l in open("/proc/net/snmp") if l.startswith("Tcp:")]
        return int(lines[1][lines[0].index("RetransSegs")])
    wait_for(lambda: target.rows("select count(*) from host.utilization")[0][0] >= 3, "rows")
    rows = target.rows("select wall_ns, cpus, cpu_user_pct + cpu_sys_pct, cpu_steal_pct, "
                       "delta_tcp_out_segs, delta_tcp_retrans_segs, load1, procs_running "
                       "from host.utilization order by ts")
    assert rows[0][0] is None and rows[0][2] is None and rows[0][4] is None
    processors = [l for l in open("/proc/stat") if re.match(r"cpu\d", l)]
    for wall, cpus, used, steal, sent, again, load, running in rows[1:]:
        assert wall > 0 and cpus == len(processors) and load >= 0 and running >= 1
        assert 0 <= used <= 100 and 0 <= steal <= 100 and sent >= 0
        assert 0 <= again <= retransmitted()
