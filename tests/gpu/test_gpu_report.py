# SPDX-License-Identifier: Apache-2.0
"""`probing gpu`: what it says of devices that a stand-in for NVML has."""
import json
import os

from gpus import GIB, Machine, devices, looked, watched
from world import wait_for


def test_devices_and_who_uses_them(world):
    machine = Machine(world, devices(3, reasons=0x24))
    target = watched(world, machine, CUDA_VISIBLE_DEVICES="1,0")
    looked(target, 1)  # while device 0 is there, and says what it is
    machine.devices["1"]["compute"] = "%d:%d 4000000000:%d" % (target.pid, 2 * GIB, GIB)
    machine.devices["0"]["all"] = 15
    machine.devices["1"]["uncorrected"] = 2
    machine.write()
    looked(target, 4)
    wait_for(lambda: target.rows("select count(*) from gpu.processes") == [[2]], "processes")
    said = target.probing("gpu")
    assert said.returncode == 0, said.stderr
    lost, busy = said.stdout.split("GPU 1")
    assert "GPU 0  NVIDIA A100-SXM4-80GB  cuda:1 of this process  LOST: off the bus\n" in lost
    assert busy.startswith("  NVIDIA A100-SXM4-80GB  cuda:0 of this process\n")
    for line in ("busy         37 % on average, 37 % last",
                 "memory       3.0 of 80.0 GB, at most 3.0; 2.0 of this process",
                 "power        250 W of 400, 61 C, at most 61; 1410 MHz",
                 "held down    by power cap, thermal in 100 % of the looks",
                 "ECC          2 memory errors NOT corrected, 3 corrected",
                 "used by      %d sleep 2.0 GB (this process); 4000000000 (not seen from here) "
                 "1.0 GB" % target.pid):
        assert "  %s\n" % line in busy, said.stdout
    assert "1 GPU is not visible to this process; --all shows it\n" in busy
    assert "driver 550.54.15, CUDA up to 12.4\n" in busy
    assert "GPU 2" in target.probing("gpu", "--all").stdout
    told = json.loads(target.probing("gpu", "--json").stdout)
    assert [g["state"] for g in told["gpus"]] == ["lost", "ok", "ok"]
    assert told["gpus"][1]["process_bytes"] == 2 * GIB and told["gpus"][2]["visible"] == 0
    target.kill()
    dead = target.probing("gpu")
    assert dead.returncode == 0, dead.stderr
    assert "GPU 0" in dead.stdout and "37 % on average" in dead.stdout


def test_where_there_is_none(world):
    target = watched(world, Machine(world, {}))
    wait_for(lambda: "shows no GPU" in target.probing("plugin", "list").stdout, "a note")
    said = target.probing("gpu")
    assert said.returncode != 0 and "no GPU was seen: the driver" in said.stderr
    bare = world.start("sleep", "600")
    bare.inject("-D", "probing.plugins=")
    said = bare.probing("gpu")
    assert said.returncode != 0 and "plugin load gpu" in said.stderr, said.stderr


def test_lines_of_top(world):
    machine = Machine(world, devices(2))
    target = watched(world, machine)
    machine.devices["1"]["all"] = 15
    machine.write()
    wait_for(lambda: target.rows("select arg_max(state, ts) from gpu.utilization where device_id "
                                 "= 1") == [["lost"]], "the loss")
    said = target.probing("top", "--once")
    assert said.returncode == 0, said.stderr
    assert "gpu 0: 37%, 3.0 GiB of 80.0 GiB, 61 C, 250 W, held down: power cap\n" in said.stdout
    assert "gpu 1: lost\n" in said.stdout


def test_metrics(world):
    target = watched(world, Machine(world, devices(1)))
    looked(target)
    said = target.probing("metrics").stdout
    for line in ('probing_gpu_utilization_percent{device="0"} 37',
                 'probing_gpu_memory_used_bytes{device="0"} %d' % (3 * GIB),
                 'probing_gpu_power_watts{device="0"} 250.5',
                 'probing_gpu_ecc_uncorrected_errors_total{device="0"} 0'):
        assert line + "\n" in said, said


def test_what_ranks_have_not_alike(world):
    """Two ranks of a job, one of which sees a device with another limit."""
    machine = Machine(world, devices(2))
    job = "gpus-%d" % os.getpid()
    for rank in range(2):
        answers = world.tmp / ("answers-%d" % rank)
        answers.write_text(machine.path.read_text().replace(
            "1.limit=400000", "1.limit=%d" % (400000 - 100000 * rank)))
        looked(watched(world, machine, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2",
                       TORCHELASTIC_RUN_ID=job, NVML_STAND_IN=str(answers)), 1)
    done = world.probing("cluster", "diff", "--job", job, "--all", "--json")
    assert done.returncode == 0, done.stderr
    said = {f["name"]: {r: v["value"] for v in f["values"] for r in v["ranks"]}
            for f in json.loads(done.stdout)["facts"] if f["kind"] == "gpu"}
    assert said["device 1, power limit"] == {0: "400 W", 1: "300 W"}
    assert said["device 0, power limit"] == {0: "400 W", 1: "400 W"}
    assert said["driver"] == {0: "550.54.15", 1: "550.54.15"}
    assert said["devices"] == {0: "2", 1: "2"}
    assert said["device 0, memory"] == {0: "80.0 GiB", 1: "80.0 GiB"}
