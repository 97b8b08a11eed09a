# SPDX-License-Identifier: Apache-2.0
"""Checks of real_gpu.py that need a GPU and its driver, no torch: CUPTI, NVML, NVIDIA's tools."""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

from gpu_job import KEPT, RAW, Job, cuptis, driver_job, wait_for


def ask_raw(*words):
    """(exit code, or that it hung; what it said; its last words)"""
    try:
        done = subprocess.run([sys.executable, RAW, *words], capture_output=True, text=True,
                              check=False, timeout=40)
    except subprocess.TimeoutExpired as late:
        return "40 s passed", (late.stdout or b"").decode(errors="replace"), ""
    return done.returncode, done.stdout, done.stderr.strip()[-300:]


def check_codes(python):
    """The answers of each CUPTI here, also to several subscribers."""
    said, ended = {}, []
    for path in cuptis(python):
        said[path] = []
        for what in "early_codes", "codes", "shared_codes":
            code, out, error = ask_raw(what, path)
            lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
            said[path] += lines + [{"question": what, "exit": code, "error": error}]
            for line in lines:
                print("  ", json.dumps(line))
            if code:
                ended.append("%s of %s ended with %s: %s" % (what, path, code, error))
                print("   " + ended[-1])
            for out in KEPT:
                (out / "codes.json").write_text(json.dumps(said, indent=1))
    assert said, "no libcupti was found"
    assert not ended, "; ".join(ended)


def check_buffers(python):
    """Buffers of each CUPTI here, kept as test data."""
    with tempfile.TemporaryDirectory() as room:
        for path in cuptis(python):
            name = re.sub(r"[^0-9A-Za-z.]+", "-", path)[-60:].lstrip("-")
            code, out, error = ask_raw("record", path, room + "/" + name)
            print("   %s: %s %s" % (path, out.strip(), error if code else ""))
            for out in KEPT:  # after each: it may be given up
                with tarfile.open(out / "recorded.tar.gz", "w:gz") as kept:
                    for file in sorted(os.listdir(room)):
                        kept.add(os.path.join(room, file), file)
        assert os.listdir(room), "nothing was recorded"


def check_driver_program(python):
    """A program of the driver's alone that is entered late: each kernel is seen, a hundred times on
    and off, through a reset of the device, and when it ends while it is traced."""
    job = driver_job(python, "cuda")
    try:
        job.tell("kernels(100)")
        job.wait_state("tracing")
        before = job.seen()
        job.tell("kernels(5000)")
        n = job.seen() - before
        print("   5000 kernels launched, %d seen" % n, job.rows("select * from cuda.tracing")[0])
        assert n == 5000, "kernels are missing, or too many"
        job.tell("all_kinds()")
        job.seen()
        for table in "kernel_stats", "memcpy", "memory", "sync", "runtime", "device_time":
            n = job.rows("select count(*) from cuda." + table)[0][0]
            print("   cuda.%s: %d rows" % (table, n))
        for _ in range(100):
            job.probing("config", "cuda.kernels=off")
            job.probing("config", "cuda.kernels=on")
        job.wait_state("tracing")
        before = job.seen()
        job.tell("reset()")
        job.tell("kernels(1000)")
        print("   after 100 times on and off and a reset: %d of 1000 seen" % (job.seen() - before))
        assert job.seen() - before == 1000, "kernels are missing after a reset"
        job.process.stdin.write("(kernels(1000), sys.exit(3))\n")
        job.process.stdin.close()
        assert job.process.wait(60) == 3, "it ended with %d" % job.process.returncode
    finally:
        job.close()


def check_every_cupti(python):
    """The same program with each CUPTI here: kernels of a graph and others, twenty times on and
    off meanwhile."""
    wrong = []
    for path in cuptis(python):
        job = driver_job(python, "cuda", path)
        try:
            job.tell("all_kinds()")
            job.wait_state("tracing")
            before = job.seen()
            job.tell("all_kinds()")
            n = job.seen() - before
            about = job.rows("select library, version, unlaunched, torn, unknown from "
                             "cuda.tracing")[0]
            job.process.stdin.write("[all_kinds() for _ in range(100)][0]\n")
            job.process.stdin.flush()
            for _ in range(20):
                job.probing("config", "cuda.kernels=off")
                job.probing("config", "cuda.kernels=on")
            ended = json.loads(job.process.stdout.readline())
            print("   %s: %d of 26 kernels; %s; on and off: %s" % (path, n, about, ended))
            if n != 26:
                wrong.append("%s: %d kernels" % (path, n))
        except (AssertionError, ValueError) as why:
            wrong.append("%s: %s" % (path, why))
        finally:
            job.close()
    assert not wrong, "; ".join(wrong)


def check_rates(python):
    """10,000 and 100,000 kernels a second, on and off in turn: printed, not judged."""
    job = driver_job(python, "cuda")
    try:
        for rate in 10000, 100000:
            seconds = {"on": [], "off": []}
            for _ in range(5):
                for state in "on", "off":
                    job.probing("config", "cuda.kernels=" + state)
                    job.wait_state("tracing" if state == "on" else "off")
                    seconds[state].append(job.tell("kernels(%d, %d)" % (rate, rate)))
            on, off = (statistics.median(seconds[s]) for s in ("on", "off"))
            print("   %d a second asked: %.0f off, %.0f on: %+.1f %%"
                  % (rate, rate / off, rate / on, 100 * (on / off - 1)))
        print("   about:", job.rows("select kernels, kernel_rows, lost, refused from "
                                    "cuda.tracing")[0])
    finally:
        job.close()


def check_nvml(python):
    """gpu.devices and gpu.utilization against nvidia-smi."""
    names = ["uuid", "name", "memory.total", "memory.used", "temperature.gpu", "power.draw",
             "clocks.sm", "utilization.gpu"]
    job = driver_job(python, "gpu")
    try:
        wait_for(lambda: job.rows("select 1 from gpu.utilization"), "rows")
        if not shutil.which("nvidia-smi"):
            print(job.probing("gpu"))
            raise AssertionError("there is no nvidia-smi to compare with")
        smi = subprocess.run(["nvidia-smi", "--query-gpu=" + ",".join(names),
                              "--format=csv,noheader,nounits"], capture_output=True, text=True,
                             check=True).stdout.strip().splitlines()
        devices = job.rows("select d.uuid, d.name, d.total_bytes / 1048576.0, u.used_bytes / "
                           "1048576.0, u.temperature_c, u.power_w, u.sm_clock_mhz, u.gpu_util_pct "
                           "from gpu.devices d join (select * from gpu.utilization where ts = "
                           "(select max(ts) from gpu.utilization)) u on u.device_id = d.index "
                           "order by d.index")
        for theirs, ours in zip(smi, devices):
            print("   nvidia-smi:", theirs, "\n   ours:      ", ours)
            uuid, name, total = [w.strip() for w in theirs.split(",")][:3]
            assert [uuid, name] == ours[:2] and abs(float(total) - ours[2]) < 2, "another one"
        assert len(smi) == len(devices), "another number of devices"
        print("   this process's own bytes:", job.rows(
            "select process_bytes from gpu.utilization order by ts desc limit 1"))
        print(job.probing("gpu"))
    finally:
        job.close()


def check_from_the_beginning(python):
    """Launched with the plugin: it waits for CUDA, and sees the first kernels."""
    job = Job(None, words=[sys.executable, RAW, "loop"], launch="cuda", LD_LIBRARY_PATH=":".join(
        [os.path.dirname(f) for f in sorted(cuptis(python), key=lambda f: "-packages" not in f)]))
    try:
        job.tell("kernels(100)")
        job.wait_state("tracing")
        print("   ", job.rows("select * from cuda.tracing")[0])
    finally:
        job.close()


def check_tools_of_nvidia(python):
    """Under compute-sanitizer and ncu the plugin steps aside, and the program runs."""
    for tool in ["compute-sanitizer"], ["ncu", "--clock-control", "none", "-k", "nothing"]:
        if not shutil.which(tool[0]):
            print("   %s is not here" % tool[0])
            continue
        job = Job(None, words=[*tool, sys.executable, RAW, "loop"], bare=True)
        try:
            print("   %s: %s" % (tool[0], job.about))
            pid = job.about.split()[1]
            job.probing("inject", "--plugin", "cuda", pid=pid)
            job.tell("kernels(100)")
            time.sleep(2)
            print("   ", job.probing("query", "select state, reason from cuda.tracing", pid=pid))
            job.tell("kernels(100)")
        finally:
            job.close()
