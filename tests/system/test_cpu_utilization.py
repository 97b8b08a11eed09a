# SPDX-License-Identifier: Apache-2.0
"""cpu.utilization: what it says of threads is what /proc says, read by somebody else."""
import json
import os
import re
import sys

import pytest
from samples_of import loads, process, threads
from world import wait_for


def ready(target, least=1):
    """Wait for rows of the process."""
    wait_for(lambda: target.rows("select count(*) from cpu.utilization where scope = 'process'"
                                 )[0][0] >= least, "%d rows of the process" % least)


def load(target):
    assert target.probing("plugin", "load", "system").returncode == 0
    ready(target)


def sums(target, first, last):
    """{tid: (user, system)} in seconds of the rows after `first` up to `last`, times of rows."""
    return {r[0]: (r[1], r[2]) for r in target.rows(
        "select thread_id, sum(delta_user_ns) / 1e9, sum(delta_sys_ns) / 1e9 from cpu.utilization "
        "where scope = 'thread' and ts > '%s' and ts <= '%s' group by 1" % (first, last))}


def newest(target):
    return target.rows("select max(ts)::text from cpu.utilization where scope = 'process'")[0][0]


def test_threads_are_as_proc_says(world):
    """One computes, one does system calls, one sleeps, one works half of the time."""
    target = loads(world, "spin=1", "calls=1", "sleep=1", "half=1")
    target.inject()
    load(target)

    def seen():
        """(time of the newest row, /proc read just after it came)"""
        before = newest(target)
        wait_for(lambda: newest(target) != before, "a new row")
        return newest(target), threads(target.pid), process(target.pid)

    first, proc_first, whole_first = seen()
    ready(target, 12)
    last, proc_last, whole_last = seen()
    ours, names = sums(target, first, last), {}
    for tid, (name, user, system) in proc_last.items():
        if tid in proc_first and not name.startswith("probing"):
            names[name] = tid, user - proc_first[tid][1], system - proc_first[tid][2]
    assert {"spin", "calls", "sleep", "half"} <= set(names)
    spent = sum(whole_last) - sum(whole_first)
    for name in ("spin", "calls", "half"):
        tid, user, system = names[name]
        assert ours[tid][0] + ours[tid][1] == pytest.approx(user + system, rel=0.15, abs=0.3), name
        # The share of the kernel is by its ticks of some milliseconds.
        assert ours[tid][1] == pytest.approx(system, rel=0.2, abs=0.4), name
    assert ours.get(names["sleep"][0], (0, 0)) == (0, 0)
    row = target.rows("select sum(delta_total_ns) / 1e9 from cpu.utilization where scope = "
                      "'process' and ts > '%s' and ts <= '%s'" % (first, last))[0]
    assert row[0] == pytest.approx(spent, rel=0.15, abs=0.3)


def test_what_a_row_says(world):
    target = loads(world, "spin=1", "sleep=1", "odd=1")
    target.inject()
    load(target)
    ready(target, 3)
    rows = {r[0]: r[1:] for r in target.rows(
        "select comm, max(state), max(wchan), count(*), max(thread_id) from cpu.utilization where "
        "scope = 'thread' group by 1")}
    assert "a) b?(c" in rows and "spin" in rows
    assert rows["sleep"][0] == "S" and rows["sleep"][2] == 1  # it has done nothing since
    assert rows["spin"][0] == "R" and rows["spin"][3] in threads(target.pid)
    row = target.rows("select comm, thread_count, rss_kb, wall_ns, cpu_total_pct, delta_total_ns, "
                      "thread_id, state from cpu.utilization where scope = 'process' order by ts "
                      "desc limit 1")[0]
    assert row[0] == "loads" and row[1] >= 4 and row[2] > 500
    assert row[4] == pytest.approx(100 * row[5] / row[3])
    assert row[6] is None and row[7] is None


def test_interval_changes_live(world):
    target = loads(world, "sleep=1")
    target.inject()
    load(target)
    assert target.probing("config", "system.interval=50ms").returncode == 0
    last = newest(target)
    wait_for(lambda: target.rows("select count(*) from cpu.utilization where scope = 'process' and "
                                 "ts > '%s' and wall_ns < 500000000" % last)[0][0] > 5,
             "rows of less than half a second")


def test_threads_that_come_and_go(world):
    """Their time is not lost from the process's rows, and nothing grows with them."""
    target = loads(world, "churn=2", "spin=1")
    target.inject()
    load(target)
    assert target.probing("config", "system.interval=100ms").returncode == 0
    ready(target, 40)
    assert target.alive()
    row = target.rows("select sum(delta_total_ns) / 1e9, sum(wall_ns) / 1e9, count(*) from "
                      "cpu.utilization where scope = 'process'")[0]
    assert 0 < row[0] <= row[1] * 4
    assert target.rows("select count(distinct thread_id) from cpu.utilization where comm = 'spin'"
                       )[0][0] == 1


def test_off_in_children_and_gone_after_eject(world):
    target = world.python('''
import os, time
print("ready", flush=True)
while not os.path.exists("fork"):
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    time.sleep(600)
print("child", pid, flush=True)
time.sleep(600)
''')
    target.wait_line("ready")
    target.inject()
    load(target)
    (world.tmp / "fork").write_text("")
    child = int(target.wait_line(r"child (\d+)").group(1))
    assert len(threads(child)) == 1
    assert target.probing("plugin", "stop", "system").returncode == 0
    count = "select count(*) from cpu.utilization"
    assert target.rows(count) == target.rows(count)
    assert target.probing("eject").returncode == 0
    assert target.alive()
    assert not [n for n, _, _ in threads(target.pid).values() if n.startswith("probing")]


def test_stopped_and_loaded_again(world):
    """Nothing is left open, and rows go on in the same table."""
    target = loads(world, "wake=2", "spin=1")
    target.inject("-D", "system.interval=50ms")
    ready(target)

    def files():
        return sorted(os.readlink("/proc/%d/fd/%s" % (target.pid, fd))
                      for fd in os.listdir("/proc/%d/fd" % target.pid))

    assert target.probing("plugin", "stop", "system").returncode == 0
    idle = files()
    count = target.rows("select count(*) from cpu.utilization")[0][0]
    for _ in range(5):
        assert target.probing("plugin", "load", "system").returncode == 0
        assert target.probing("plugin", "stop", "system").returncode == 0
    wait_for(lambda: len(files()) <= len(idle), files)  # the last client's socket goes
    assert target.probing("plugin", "load", "system").returncode == 0
    ready(target, count + 3)
    assert not [f for f in files() if f.startswith(("/proc", "/sys"))]


REUSE = r'''
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
stop = False
def work(name):
    libc.prctl(15, name)
    tids.append(threading.get_native_id())
    while not stop:
        sum(range(1000))
tids = []
one = threading.Thread(target=work, args=(b"first",))
one.start()
try:
    open("/proc/sys/kernel/ns_last_pid", "w").write("1000")
except OSError:
    print("refused", flush=True)
print("ready", flush=True)
while not os.path.exists("next"):
    time.sleep(0.01)
stop = True
one.join()
stop = False
while len(tids) < 2 or tids[-1] != tids[0]:
    open("/proc/sys/kernel/ns_last_pid", "w").write(str(tids[0] - 1))
    two = threading.Thread(target=work, args=(b"second",), daemon=True)
    two.start()
    while not tids[1:]:
        time.sleep(0.001)
    if tids[-1] != tids[0]:
        stop = True
        two.join()
        stop = False
        tids.pop()
print("second", flush=True)
time.sleep(600)
'''


def test_a_number_that_another_thread_gets(world):
    """In a pid namespace of its own, where the next number can be chosen."""
    target = world.start("unshare", "--pid", "--fork", "--mount-proc", "--kill-child",
                         sys.executable, "-uc", REUSE)
    found = wait_for(lambda: re.search(r"(ready|refused)", target.output()) or
                     not target.alive() and "no unshare", "the namespace")
    if found == "no unshare" or found[1] == "refused":
        pytest.skip("no pid namespace can be made here, or no number be chosen")
    pid = int(open("/proc/%d/task/%d/children" % (target.pid, target.pid)).read().split()[0])

    def ask(*words):
        return world.probing("-t", str(pid), *words)

    assert ask("inject", "-D", "system.interval=50ms").returncode == 0, target.output()

    def rows(sql):
        done = ask("query", "--format", "json", sql)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]

    where = "from cpu.utilization where scope = 'thread' and comm = "
    wait_for(lambda: rows("select count(*) %s 'first'" % where)[0][0] > 2, "rows of the first")
    (world.tmp / "next").write_text("")
    target.wait_line("second")
    wait_for(lambda: rows("select count(*) %s 'second'" % where)[0][0] > 2, "rows of the second")
    first, second = (rows("select thread_id, max(cum_user_ns + cum_sys_ns), sum(delta_total_ns) "
                          "%s '%s' group by 1" % (where, name)) for name in ("first", "second"))
    assert first[0][0] == second[0][0]  # the number
    assert second[0][1] >= second[0][2] - 1  # none of the first one's time


LATER = r'''
import ctypes, os, threading, time
def work():
    ctypes.CDLL(None).prctl(15, b"later")
    print("begun %.3f" % time.time(), flush=True)
    while True:
        sum(range(1000))
print("ready", flush=True)
while not os.path.exists("next"):
    time.sleep(0.01)
time.sleep(3)  # the list of threads is that old
threading.Thread(target=work, daemon=True).start()
time.sleep(600)
'''


def test_a_thread_that_begins_later_is_as_old_as_it_is(world):
    """Its first row covers its own life, not the time since the list of threads was read."""
    target = world.python(LATER)
    target.wait_line("ready")
    target.inject("-D", "system.interval=100ms")
    ready(target)
    (world.tmp / "next").write_text("")
    life = float(target.wait_line(r"begun ([0-9.]+)").group(1))  # no client, no thread for it
    first = wait_for(lambda: target.rows(
        "select wall_ns / 1e9, cpu_total_pct, delta_total_ns / 1e9 from cpu.utilization where comm "
        "= 'later' order by ts limit 1"), "a row of it")[0]
    row = target.rows("select extract(epoch from min(ts)) from cpu.utilization where comm = "
                      "'later'")
    assert first[0] <= row[0][0] - life + 0.1  # the kernel counts in hundredths
    assert 0 < first[2] <= first[0] and first[1] <= 101
