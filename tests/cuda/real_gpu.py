#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What needs a GPU: `scons gpu`; or, where nothing but Python is there, this file with what it
packed before: PROBING_BUILD=build/gpu python3 tests/cuda/real_gpu.py --out FOLDER.

usage: real_gpu.py [--out FOLDER] [--seconds N] [--limit N] [NAME ...]
       real_gpu.py --pack FOLDER

NAME: only checks whose names hold one of these texts.  FOLDER gets what was said (report.txt, whose
first line has the end of each check, and is true at any time), what real CUPTIs answered
(codes.json) and the buffers that they wrote (recorded.tar.gz; unpacked in tests/cuda/recorded,
test_cuda_recorded.py plays them).  A check that takes longer than the time that stands beside it
(--seconds: all have that) is given up; what does not fit into --limit (390) is not reached.

--pack: the stripped files of build/release, and a libcupti of each generation in build/cupti.

Checks that train need a torch that can use the GPU: PROBING_GPU_PYTHON, else the first of python3
and /usr/bin/python3 that has one; the others use CUDA's driver alone (raw_cupti.py).  Without a GPU
it says so, and ends with 0: nothing was found wrong, as nothing was looked at.  It prints what was
measured; what must hold is checked, times of other programs on a shared machine are not.
"""
import argparse
import glob
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import gpu_checks_driver as of_driver
import gpu_checks_torch as of_torch
from gpu_job import KEPT, ROOT, has_gpu_torch

DEVICE = os.environ.get("PROBING_GPU_DEVICE", "/dev/nvidiactl")  # test_real_gpu.py has another one
# In the order of what is lost if there is no time for the rest: first what has not been seen on a
# GPU since it was mended.  Whether it needs torch; seconds, of which it needs a half or less.
CHECKS = [(of_torch.check_default_cost, True, 120),
          (of_torch.check_torch_profiler_beside, True, 60),
          (of_torch.check_why_it_is_idle, True, 60),
          (of_torch.check_late_attach_and_modules, True, 60),
          (of_torch.check_totals_against_torch, True, 45),
          (of_torch.check_windows, True, 45),
          (of_torch.check_overhead, True, 60),
          (of_driver.check_every_cupti, False, 75),
          (of_torch.check_nccl, True, 60),
          (of_torch.check_reports, True, 60),
          (of_torch.check_on_and_off, True, 60),
          (of_driver.check_driver_program, False, 60),
          (of_torch.check_graphs, True, 60), (of_driver.check_rates, False, 60),
          (of_torch.check_streams_and_threads, True, 60),
          (of_torch.check_fork_eject_and_memory, True, 60),
          (of_torch.check_end_while_it_traces, True, 60), (of_driver.check_nvml, False, 30),
          (of_driver.check_codes, False, 150), (of_driver.check_buffers, False, 150),
          (of_torch.check_other_frameworks, True, 90),
          (of_driver.check_from_the_beginning, False, 30),
          (of_driver.check_tools_of_nvidia, False, 60)]


def too_long(_signal, _frame):
    raise AssertionError("it took too long, and was given up")


def run(check, python, seconds):
    """Was it right?"""
    print("%s: %s" % (check.__name__[6:], check.__doc__), flush=True)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    begin = time.monotonic()
    try:
        check(python)
    except Exception as why:  # whatever it is, the others are still asked
        print("   NOT RIGHT: %s: %s" % (type(why).__name__, why))
        return False
    finally:
        signal.alarm(0)
        print("   (%.1f s)" % (time.monotonic() - begin), flush=True)
    return True


class Report:
    """The output, also in a file, whose first line says how each check has ended so far."""

    def __init__(self, out, checks):
        self.out, self.text, self.stdout = out, "", sys.stdout
        self.ends = {check.__name__[6:]: "not reached" for check in checks}

    def first_line(self):
        ends = ["not right", "under way", "not reached", "skipped, no torch with a GPU", "right"]
        return " | ".join("%s: %s" % (end, ", ".join(n for n, e in self.ends.items() if e == end))
                          for end in ends if end in self.ends.values())

    def keep(self, name, end):
        self.ends[name] = end
        self.write("")

    def write(self, text):
        self.text += text
        self.stdout.write(text)
        if self.out:
            (self.out / "report.new").write_text(self.first_line() + "\n\n" + self.text)
            os.replace(self.out / "report.new", self.out / "report.txt")

    def flush(self):
        self.stdout.flush()


def pack(folder):
    """The files that a machine with nothing but Python needs."""
    shutil.copytree(ROOT / "build" / "release" / "stripped", folder, dirs_exist_ok=True)
    newest = {}  # of 11, 12, 13.0 and 13.1, 13.2 and later
    for path in glob.glob(str(ROOT / "build" / "cupti" / "*" / "**" / "libcupti.so.*"),
                          recursive=True):
        version = Path(path).relative_to(ROOT / "build" / "cupti").parts[0]
        number = [int(n) for n in version.split(".")]
        newest.setdefault((number[0], number >= [13, 2]), []).append((number, version, path))
    for _, version, path in map(max, newest.values()):
        (folder / "cupti" / version).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / "cupti" / version)
    size = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    print("%s: %.0f MB, CUPTI %s" % (folder, size / 1e6, ", ".join(
        sorted(max(v)[1] for v in newest.values())) or "none: scripts/tools/cupti_layouts.py"))


def main():
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--limit", type=int, default=390)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    if options.pack:
        return pack(options.pack)
    if not os.path.exists(DEVICE):
        print("SKIPPED: no GPU of NVIDIA's here (%s): nothing was looked at" % DEVICE)
        return 0
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        KEPT.append(options.out)
    asked = [c for c in CHECKS
             if not options.names or any(n in c[0].__name__ for n in options.names)]
    report = sys.stdout = Report(options.out, [check for check, _, _ in asked])
    pythons = [os.environ.get("PROBING_GPU_PYTHON") or "python3", "/usr/bin/python3"]
    python = next((p for p in pythons if has_gpu_torch(p)), None)
    if not python:
        print("no torch that can use the GPU (PROBING_GPU_PYTHON): what needs one is SKIPPED")
    for check, trains, seconds in asked:
        name, left = check.__name__[6:], int(options.limit - (time.monotonic() - begin))
        if trains and not python:
            report.keep(name, "skipped, no torch with a GPU")
        elif left >= 10:
            report.keep(name, "under way")
            report.keep(name, "right" if run(check, python,
                                                   min(options.seconds or seconds, left))
                        else "not right")
    print(report.first_line())
    return 1 if {"not right", "not reached"} & set(report.ends.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
