# SPDX-License-Identifier: Apache-2.0
"""The checks for a machine with a GPU tell at any time how they stand: here without a GPU."""
import json
import os
import subprocess
import sys
from pathlib import Path

from standin import LIBRARIES
from world import BUILD, ROOT

SCRIPT = str(Path(ROOT) / "tests" / "cuda" / "real_gpu.py")


def run(tmp, *words, **env):
    return subprocess.run(
        [sys.executable, SCRIPT, *words], stdout=subprocess.PIPE, text=True, cwd=str(tmp),
        env={**os.environ, "PROBING_BUILD": str(BUILD), "PROBING_GPU_DEVICE": "/dev/null",
             "PROBING_GPU_PYTHON": "/no/python", "LD_LIBRARY_PATH": str(LIBRARIES), **env})


def test_each_check_has_an_end_and_the_first_line_says_which(tmp_path):
    """The driver is a stand-in that has no kernels, there is no torch and no nvidia-smi."""
    done = run(tmp_path, "--out", str(tmp_path / "out"), "codes", "driver", "buffers", "nccl",
               PATH="/no/folder")
    assert done.returncode == 1, done.stdout
    report = (tmp_path / "out" / "report.txt").read_text()
    assert report.splitlines()[0] == done.stdout.splitlines()[-1]
    assert report.splitlines()[0] == "not right: driver_program, codes, buffers | " \
        "skipped, no torch with a GPU: nccl"
    assert "no torch of /no/python" in report and "NOT RIGHT" in report
    assert sorted(os.listdir(tmp_path / "out"))[-1] == "report.txt"
    codes = tmp_path / "out" / "codes.json"
    assert not codes.exists() or isinstance(json.loads(codes.read_text()), dict)


def test_what_does_not_fit_is_not_reached(tmp_path):
    done = run(tmp_path, "--limit", "5", "driver", "nvml")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "not reached: driver_program, nvml"


def test_without_a_gpu_it_says_so(tmp_path):
    done = run(tmp_path, "--out", str(tmp_path / "out"), PROBING_GPU_DEVICE=str(tmp_path / "none"))
    assert done.returncode == 0 and done.stdout.startswith("SKIPPED: no GPU")


def test_it_packs_what_another_machine_needs(tmp_path):
    done = run(tmp_path, "--pack", str(tmp_path / "gpu"))
    if not (Path(ROOT) / "build" / "release" / "stripped").is_dir():
        assert done.returncode != 0
        return
    assert done.returncode == 0, done.stdout
    for name in "probing", "libprobing.so", "plugins/cuda.so":
        assert (tmp_path / "gpu" / name).is_file()
    assert sum(f.stat().st_size for f in (tmp_path / "gpu").rglob("*") if f.is_file()) < 60e6
