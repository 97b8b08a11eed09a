# SPDX-License-Identifier: Apache-2.0
"""gpu.devices, gpu.utilization, gpu.processes: what NVML says, and what happens when it does not.

There is no GPU here: the library is a stand-in, whose answers each test writes."""
import json
import os
import random
import subprocess

import pytest
from gpus import A100, GIB, Machine, devices, looked, named, watched
from pythons import FULL
from world import DEBIAN_PYTHON, FILTERED, has_torch, threads_of, wait_for


def test_a_device_is_told_as_nvml_tells_it(world):
    machine = Machine(world, {"0": dict(A100)})
    target = watched(world, machine)
    looked(target)
    told = named(target, "select * from gpu.devices")
    assert told == [{
        "index": 0, "partition": None, "uuid": A100["uuid"], "name": "NVIDIA A100-SXM4-80GB",
        "state": "ok", "total_bytes": 80 * GIB, "used_bytes": 3 * GIB, "gpu_util_pct": 37,
        "visible": 1, "ordinal": 0, "pci_bus_id": "00000000:65:00.0", "minor": 0,
        "compute_capability": "8.0", "partition_mode": "off", "gpu_instance": None,
        "compute_instance": None, "power_limit_w": 400, "nvlinks": 12,
        "driver_version": "550.54.15", "cuda_version": "12.4", "vendor": "NVIDIA"}]
    first, second = named(target, "select * from gpu.utilization order by ts limit 2")
    assert first["wall_ns"] is None and second["wall_ns"] > 0
    # No rate from one reading, and nothing has been sent between two that are the same.
    assert {first[k] for k in first if k.endswith("_per_sec")} == {None}
    assert {second[k] for k in second if k.endswith("_per_sec")} == {0}
    for key, value in {"device_id": 0, "state": "ok", "gpu_util_pct": 37, "mem_util_pct": 12,
                       "used_bytes": 3 * GIB, "total_bytes": 80 * GIB, "mem_used_pct": 3.75,
                       "process_bytes": None, "processes": 0, "power_w": 250.5, "energy_j": 5,
                       "temperature_c": 61, "sm_clock_mhz": 1410, "mem_clock_mhz": 1593,
                       "throttle_reasons": "power cap", "ecc_corrected": 3,
                       "ecc_uncorrected": 0}.items():
        assert first[key] == second[key] == value, key
    assert target.rows("select gpu, gpu_util, memory_mb from gpu_metrics limit 1") == [
        [0, 37, 3072]]


def test_rates_are_what_the_counters_grew_by(world):
    machine = Machine(world, {"0": dict(A100)})
    target = watched(world, machine)
    looked(target)
    for key, more in (("field_138", 1 << 20), ("field_139", 2 << 20), ("field_197", 3000000),
                      ("field_198", 7000000)):
        machine.devices["0"][key] += more
    machine.write()
    sums = ["select sum(%s * wall_ns / 1e9) from gpu.utilization" % c for c in (
        "nvlink_tx_bytes_per_sec", "nvlink_rx_bytes_per_sec", "pcie_tx_bytes_per_sec",
        "pcie_rx_bytes_per_sec")]
    sent = wait_for(lambda: [r for r in [[target.rows(s)[0][0] for s in sums]] if all(r)],
                    "the growth of all four")[0]
    assert sent == pytest.approx([1 << 30, 2 << 30, 3000000, 7000000])
    machine.devices["0"]["field_197"] = 1  # it begins again: no rate, and none below 0
    machine.write()
    wait_for(lambda: target.rows("select count(*) from gpu.utilization where wall_ns is not null "
                                 "and pcie_tx_bytes_per_sec is null and pcie_rx_bytes_per_sec = 0"
                                 )[0][0], "a row without a rate")
    assert target.rows("select min(pcie_tx_bytes_per_sec) from gpu.utilization")[0][0] == 0


def test_what_a_device_has_not_is_null(world):
    """One answers two questions only, and must not take anything from the other."""
    little = {"uuid": "GPU-1", "name": "Tesla K80", "total": GIB, "used": 0, "power": "!999",
              "gpu": "!3", "mem": 0, "reasons": "!4"}
    target = watched(world, Machine(world, {"0": dict(A100), "1": little}))
    looked(target)
    row = named(target, "select * from gpu.utilization where device_id = 1 limit 1")[0]
    assert {k: v for k, v in row.items() if v is not None and k not in ("ts", "tid")} == {
        "device_id": 1, "state": "ok", "used_bytes": 0, "total_bytes": GIB, "mem_used_pct": 0}
    row = named(target, "select * from gpu.devices where index = 1")[0]
    assert {k for k, v in row.items() if v is None} == {
        "partition", "gpu_util_pct", "pci_bus_id", "minor", "compute_capability", "partition_mode",
        "gpu_instance", "compute_instance", "power_limit_w", "nvlinks", "ordinal"}
    assert row["visible"] == 1  # but of two kinds the faster one is CUDA's first, whichever it is


def test_an_old_driver_has_fewer_functions(world):
    """Without the newer names: other structs of memory and of processes, no links, no MIG."""
    told = dict(A100, compute="1:4096 2:-", pcie_rx_kib_s=3, pcie_tx_kib_s=5)
    target = watched(world, Machine(world, {"0": told}, age="_old"))
    looked(target, 12)  # the bus is measured at each tenth look
    row = named(target, "select * from gpu.utilization order by ts desc limit 1")[0]
    assert row["used_bytes"] == 3.5 * GIB  # what the driver keeps is in the older function's number
    assert row["throttle_reasons"] == "power cap" and row["processes"] == 2
    assert row["energy_j"] is None and row["nvlink_rx_bytes_per_sec"] is None
    assert target.rows("select max(pcie_rx_bytes_per_sec), max(pcie_tx_bytes_per_sec), "
                       "count(pcie_rx_bytes_per_sec) < count(*) from gpu.utilization") == [
        [3072, 5120, True]]
    assert target.rows("select pid, used_bytes from gpu.processes order by pid") == [
        [1, 4096], [2, None]]
    assert target.rows("select cuda_version, partition_mode, nvlinks from gpu.devices") == [
        ["12.4", None, None]]


def test_processes_on_the_devices(world):
    machine = Machine(world, devices(2))
    target = watched(world, machine)
    other = world.start("sleep", "600")
    machine.devices["0"]["compute"] = "%d:%d %d:%d 4000000000:77" % (target.pid, GIB, other.pid, 5)
    machine.devices["1"]["graphics"] = "%d:%d" % (target.pid, 2 * GIB)
    machine.write()
    wait_for(lambda: len(target.rows("select 1 from gpu.processes")) == 4, "four")
    assert target.rows("select * from gpu.processes order by index, used_bytes") == [
        [0, None, other.pid, "sleep", "compute", 5, 0],
        [0, None, 4000000000, None, "compute", 77, 0],
        [0, None, target.pid, "sleep", "compute", GIB, 1],
        [1, None, target.pid, "sleep", "graphics", 2 * GIB, 1]]
    assert target.rows("select device_id, process_bytes, processes from gpu.utilization order by "
                       "ts desc, device_id limit 2") == [[1, 2 * GIB, 1], [0, GIB, 3]]
    machine.devices["1"]["graphics"] = " ".join("%d:1" % pid for pid in range(1, 301))
    machine.write()
    wait_for(lambda: "300 processes on GPUs are not listed" in
             target.probing("plugin", "list").stdout, "a note")
    assert target.rows("select count(*) from gpu.processes where index = 1") == [[0]]


def test_partitions(world):
    machine = Machine(world, devices(1, mig=1, places=7, gpu="!3"))
    for place, bytes_ in ((0, 10 * GIB), (4, 20 * GIB)):
        machine.devices["0/%d" % place] = {
            "uuid": "MIG-%d0000000" % place, "name": "NVIDIA A100 MIG %d" % place, "total": bytes_,
            "used": GIB, "gpu_instance": place + 7, "compute_instance": 0,
            "compute": "%d:%d" % (os.getpid(), GIB)}
    machine.write()
    target = watched(world, machine, CUDA_VISIBLE_DEVICES="MIG-4")
    looked(target)
    assert target.rows("select index, partition, uuid, total_bytes, partition_mode, gpu_instance, "
                       "visible, ordinal from gpu.devices") == [
        [0, None, "GPU-00000000-0000-0000-0000-000000000000", 80 * GIB, "mig", None, 0, None],
        [0, 0, "MIG-00000000", 10 * GIB, None, 7, 0, None],
        [0, 4, "MIG-40000000", 20 * GIB, None, 11, 1, 0]]
    assert target.rows("select distinct device_id, partition, state, used_bytes, total_bytes, "
                       "mem_used_pct, processes from gpu.partition_utilization order by 2") == [
        [0, 0, "ok", GIB, 10 * GIB, 10, 1], [0, 4, "ok", GIB, 20 * GIB, 5, 1]]
    assert target.rows("select partition, pid from gpu.processes order by 1") == [
        [0, os.getpid()], [4, os.getpid()]]
    assert target.rows("select distinct device_id, gpu_util_pct, processes from gpu.utilization"
                       ) == [[0, None, None]]  # of the whole device neither is known


def test_a_device_that_is_lost_and_one_that_comes_back(world):
    machine = Machine(world, devices(8))
    target = watched(world, machine)
    looked(target)
    machine.devices["3"]["all"] = 15
    machine.devices["5"]["all"] = 16
    machine.devices["6"]["all"] = 999
    machine.write()
    words = {3: "lost", 5: "reset required", 6: "Unknown Error (999)"}

    def states():
        return dict(target.rows("select device_id, arg_max(state, ts) from gpu.utilization group "
                                "by 1"))

    wait_for(lambda: states() == {i: words.get(i, "ok") for i in range(8)}, states)
    row = named(target, "select * from gpu.utilization where device_id = 3 order by ts desc limit "
                        "1")[0]
    assert {k for k, v in row.items() if v is not None} == {"ts", "tid", "device_id", "state",
                                                            "wall_ns"}
    # It does not say any more who it is; it did.
    assert target.rows("select uuid, pci_bus_id from gpu.devices where index = 3") == [
        ["GPU-00003333-0000-0000-0000-000000000000", "00000000:13:00.0"]]
    for i in words:
        del machine.devices[str(i)]["all"]
    machine.write()
    wait_for(lambda: set(states().values()) == {"ok"}, states)


def test_that_it_is_lost_outweighs_what_else_it_says(world):
    """One question is told so, the others are not supported; one was never there to be asked."""
    gone = {"uuid": "GPU-1", "name": "a", "used": "!15", "total": GIB}
    target = watched(world, Machine(world, {"0": dict(A100), "1": gone, "2": {"handle": "!15"},
                                            "3": {"handle": "!2"}}))
    looked(target)
    assert target.rows("select device_id, min(state), max(state) from gpu.utilization group by 1 "
                       "order by 1") == [
        [0, "ok", "ok"], [1, "lost", "lost"], [2, "lost", "lost"],
        [3, "Unknown Error code (2)", "Unknown Error code (2)"]]


CHANGING = r"""
import os, time
print("ready", flush=True)
while True:
    if os.path.exists("list"):
        os.rename("list", "list.taken")  # the next may come while this one is read
        text = open("list.taken").read()
        if text == "none":
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = text
        print("set", repr(text), flush=True)
    time.sleep(0.01)
"""

# torch's own reading of the same lists, over uuids that it would get from NVML.
TORCH = r"""
import json, os, sys
import torch
given, uuids, answers = json.load(sys.stdin), None, []
lists, uuids = given
for text in lists:
    os.environ["CUDA_VISIBLE_DEVICES"] = text
    seen = torch.cuda._parse_visible_devices()
    if seen and isinstance(seen[0], str):
        seen = torch.cuda._transform_uuid_to_ordinals(seen, uuids)
    cut = []
    for i in seen:
        if i >= len(uuids):
            break
        cut.append(i)
    answers.append(cut)
print(json.dumps(answers))
"""


def random_lists(n, uuids):
    """Of numbers, and of uuids cut short; some of them wrong.  Numbers of devices that are not
    there are left out: torch does not know them when it looks for those that come twice."""
    random.seed(22)
    for _ in range(n):
        if random.random() < 0.5:
            words = [random.choice(["0", "1", "2", "3", " 2", "3 ", "-1", "1x", ""])
                     for _ in range(random.randint(1, 4))]
        else:
            words = [random.choice(uuids)[:random.choice([9, 12, 30, 40])]
                     for _ in range(random.randint(1, 4))]
        yield ",".join(words)


def test_the_devices_that_the_process_sees_as_torch_reads_the_list(world):
    """The variable is changed while the program runs, as scripts do before they use CUDA."""
    python = os.environ.get("PROBING_TEST_TORCH", DEBIAN_PYTHON)
    helpers = "import torch.cuda as c; c._parse_visible_devices, c._transform_uuid_to_ordinals"
    if not has_torch(python) or subprocess.run([python, "-c", helpers],
                                               capture_output=True).returncode:
        pytest.skip("no torch here that reads lists of uuids (PROBING_TEST_TORCH)")
    machine = Machine(world, devices(4))
    uuids = [machine.devices[str(i)]["uuid"] for i in range(4)]
    lists = list(random_lists(20 if FULL else 6, uuids))
    done = subprocess.run([python, "-c", TORCH], input=json.dumps([lists, uuids]),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    target = watched(world, machine, program=CHANGING)
    looked(target)
    for text, expected in zip(lists, json.loads(done.stdout)):
        (world.tmp / "list.new").write_text(text)
        os.replace(world.tmp / "list.new", world.tmp / "list")

        def seen():
            rows = target.rows("select index, ordinal from gpu.devices where visible = 1 order by "
                               "ordinal")
            return [r[0] for r in rows if r[1] is not None]

        wait_for(lambda: seen() == expected, lambda: "%r: %r, not %r" % (text, seen(), expected))


def test_no_driver_is_told_and_looked_for_again(world):
    target = world.start("sleep", "600")
    target.inject("--plugin", "gpu")

    def note():
        return dict(target.rows("select name, reason from probing.plugins")).get("gpu") or ""

    wait_for(lambda: note().startswith("waiting: libnvidia-ml.so.1 is not here"), note)
    said = target.probing("query", "select * from gpu.devices").stdout
    assert "gpu.devices has no rows: waiting: libnvidia-ml.so.1 is not here: no NVIDIA" in said
    assert target.rows("select state from probing.plugins where name = 'gpu'") == [["running"]]


def test_nvml_is_not_taken_from_where_everybody_may_put_one(world):
    """The program has loaded nothing from there, and would never have."""
    machine = Machine(world, {"0": dict(A100)})
    machine.folder.chmod(0o777)
    target = watched(world, machine)

    def note():
        return dict(target.rows("select name, reason from probing.plugins")).get("gpu") or ""

    wait_for(lambda: note().startswith("waiting: libnvidia-ml.so.1 would be loaded from"), note)
    assert "everybody may write" in note()
    assert str(machine.folder) not in open("/proc/%d/maps" % target.pid).read()


@pytest.mark.parametrize("code, words", [(9, "Driver Not Loaded (9)"),
                                         (18, "Driver/library version mismatch (18)")])
def test_a_driver_that_does_not_begin(world, code, words):
    machine = Machine(world, {})
    machine.library["init"] = code
    machine.write()
    target = watched(world, machine)
    wait_for(lambda: words in target.probing("plugin", "list").stdout, words)
    assert "waiting" in target.probing("query", "select * from gpu.utilization").stdout


def test_no_device_and_one_that_may_not_be_asked(world):
    machine = Machine(world, {})
    target = watched(world, machine)
    wait_for(lambda: "shows no GPU" in target.probing("plugin", "list").stdout, "a note")
    assert target.rows("select * from gpu.devices") == []
    machine.devices = devices(2)
    machine.devices["0"]["handle"] = "!4"  # another user's, or container's
    machine.write()
    assert target.probing("plugin", "stop", "gpu").returncode == 0
    assert target.probing("plugin", "load", "gpu").returncode == 0
    wait_for(lambda: target.rows("select index from gpu.devices") == [[1]], "the one that may")


def test_a_file_that_is_not_nvml(world):
    machine = Machine(world, {})
    library = machine.folder / "libnvidia-ml.so.1"
    library.write_bytes(b"no library at all")
    target = watched(world, machine)
    wait_for(lambda: "waiting: " in target.probing("plugin", "list").stdout, "a note")
    assert target.alive()


def test_a_driver_that_hangs_holds_nobody_but_its_thread(world):
    machine = Machine(world, devices(2))
    hang = world.tmp / "hang"
    machine.devices["1"]["slow"] = hang
    machine.write()
    target = watched(world, machine)
    looked(target)
    hang.write_text("")
    before = target.rows("select count(*) from gpu.utilization where device_id = 1")
    wait_for(lambda: target.rows("select state from gpu.devices order by index") == [
        ["ok"], ["not answering"]], "what is told of it")
    wait_for(lambda: "has not answered about GPU 1" in target.probing("plugin", "list").stdout,
             "a note")
    stopped = target.probing("plugin", "stop", "gpu")
    assert stopped.returncode != 0 and "the GPU driver does not answer" in stopped.stderr
    assert before[0][0] <= target.rows("select count(*) from gpu.utilization where device_id = 1"
                                       )[0][0] <= before[0][0] + 1
    hang.unlink()
    wait_for(lambda: target.probing("plugin", "stop", "gpu").returncode == 0, "its end")
    assert "probing/gpu" not in threads_of(target.pid)
    assert target.probing("plugin", "load", "gpu").returncode == 0
    wait_for(lambda: target.rows("select state from gpu.devices order by index") == [
        ["ok"], ["ok"]], "new looks")


def test_leaving_while_the_driver_hangs(world):
    """It is refused, nothing is half gone, and it works when the driver has come back."""
    machine = Machine(world, devices(1))
    hang = world.tmp / "hang"
    machine.devices["0"]["slow"] = hang
    machine.write()
    target = watched(world, machine)
    looked(target)
    hang.write_text("")
    wait_for(lambda: target.rows("select state from gpu.devices") == [["not answering"]], "it")
    left = target.probing("eject")
    assert left.returncode != 0 and "the GPU driver does not answer" in left.stderr
    before = target.rows("select count(*) from gpu.utilization")[0][0]
    hang.unlink()
    looked(target, before + 3)
    assert target.probing("eject").returncode == 0
    assert target.alive() and not [n for n in threads_of(target.pid) if "probing" in n]


def test_an_environment_that_cannot_be_read_is_not_guessed(world):
    """If process_vm_readv() is forbidden, no device is visible for sure, and none is hidden."""
    machine = Machine(world, devices(2))
    number = {"x86_64": 310, "aarch64": 270}[os.uname().machine]
    target = world.start(DEBIAN_PYTHON, "-c", FILTERED % number, "/usr/bin/sleep", "600",
                         env=machine.env(CUDA_VISIBLE_DEVICES="1"))
    wait_for(lambda: open("/proc/%d/comm" % target.pid).read() == "sleep\n", "the program")
    target.inject("--plugin", "gpu", "-D", "gpu.interval=50ms")
    looked(target)
    assert target.rows("select visible, ordinal from gpu.devices") == 2 * [[None, None]]


def test_stopped_and_loaded_again_and_in_a_child(world):
    target = watched(world, Machine(world, devices(2)), program=r"""
import os, sys, time
print("ready", flush=True)
while not os.path.exists("fork"):
    time.sleep(0.01)
if os.fork() == 0:
    time.sleep(600)
time.sleep(600)
""")
    looked(target)
    for _ in range(20):
        assert target.probing("plugin", "stop", "gpu").returncode == 0
        assert "probing/gpu" not in threads_of(target.pid)
        assert target.probing("plugin", "load", "gpu").returncode == 0
    looked(target, 3)
    (world.tmp / "fork").write_text("")
    child = int(wait_for(lambda: open("/proc/%d/task/%d/children" % (target.pid, target.pid)
                                      ).read().split(), "a child")[0])
    assert not [n for n in threads_of(child) if n.startswith("probing")]
    assert target.probing("eject").returncode == 0
    assert target.alive() and "probing/gpu" not in threads_of(target.pid)


def test_its_thread_is_nice_and_nobody_else_was_started(world):
    target = watched(world, Machine(world, devices(8)))
    looked(target)
    for tid in os.listdir("/proc/%d/task" % target.pid):
        folder = "/proc/%d/task/%s/" % (target.pid, tid)
        if open(folder + "comm").read().strip() == "probing/gpu":
            nice = int(open(folder + "stat").read().rpartition(")")[2].split()[16])
            assert nice == 10
            break
    else:
        pytest.fail("no thread")
    assert open("/proc/%d/task/%d/children" % (target.pid, target.pid)).read() == ""
    maps = open("/proc/%d/maps" % target.pid).read()
    assert "libnvidia-ml.so.1" in maps and "libcuda" not in maps
