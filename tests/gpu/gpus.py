# SPDX-License-Identifier: Apache-2.0
"""GPUs that are not there: a target whose libnvidia-ml.so.1 is our stand-in (stand_in/nvml.c),
which answers what a file says."""
import os
import shutil

from world import BUILD, wait_for

GIB = 1 << 30
A100 = {"uuid": "GPU-8f6d1a2c-0000-0000-0000-000000000001", "name": "NVIDIA A100-SXM4-80GB",
        "total": 80 * GIB, "used": 3 * GIB, "reserved": GIB // 2, "gpu": 37, "mem": 12,
        "power": 250500, "limit": 400000, "temperature": 61, "sm_clock": 1410, "mem_clock": 1593,
        "reasons": 0x4, "corrected": 3, "uncorrected": 0, "energy": 5000, "minor": 0,
        "bus_id": "00000000:65:00.0", "capability": "8.0", "mig": 0, "compute": "",
        "field_91": 12, "field_138": 1000, "field_139": 2000, "field_197": 5000, "field_198": 7000}


def devices(n, **changes):
    """Devices of one kind, each with a name of its own."""
    return {str(i): dict(A100, minor=i, uuid="GPU-%08x-0000-0000-0000-000000000000" % (i * 0x1111),
                         bus_id="00000000:%02x:00.0" % (0x10 + i), **changes) for i in range(n)}


class Machine:
    """The stand-in's answers; changes count from the next question on."""

    def __init__(self, world, told, age=""):
        self.folder = world.tmp / "driver"
        self.folder.mkdir()
        shutil.copy(BUILD / "tests" / "gpu" / ("nvml%s.so" % age),
                    self.folder / "libnvidia-ml.so.1")
        self.path = self.folder / "answers"
        self.library = {"driver": "550.54.15", "cuda": 12040}
        self.devices = told
        self.write()

    def write(self):
        lines = ["%s=%s" % pair for pair in self.library.items()]
        lines.append("devices=%d" % len([d for d in self.devices if "/" not in d]))
        for name, told in self.devices.items():
            lines += ["%s.%s=%s" % (name, key, value) for key, value in told.items()]
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        os.replace(fresh, self.path)

    def env(self, **more):
        return dict({"LD_LIBRARY_PATH": str(self.folder), "NVML_STAND_IN": str(self.path)}, **more)


def watched(world, machine, *options, program=None, **env):
    """A target in which plugin gpu looks each 50 ms."""
    target = (world.python(program, env=machine.env(**env)) if program
              else world.start("sleep", "600", env=machine.env(**env)))
    if program:
        target.wait_line("ready")
    target.inject("--plugin", "gpu", "-D", "gpu.interval=50ms", *options)
    return target


def looked(target, least=2):
    """Wait for so many rows of device 0."""
    wait_for(lambda: target.rows("select count(*) from gpu.utilization where device_id = 0"
                                 )[0][0] >= least, "%d rows of device 0" % least)


def named(target, sql):
    """Rows of a query as dictionaries."""
    import json
    done = target.probing("query", "--format", "json", sql)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    names = [c["name"] for c in said["columns"]]
    return [dict(zip(names, row)) for row in said["rows"]]
