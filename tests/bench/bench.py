#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks and print what they measured, ratios first; or as JSON, of one schema.

usage: bench.py [NAME...] [--quick] [--json] [--list]

Run from anywhere after `scons all unit`.  NAME: these benchmarks only (--list names them).  --quick
runs each with the least work that still shows every kind of figure: to see that it works, not to
quote.  They run one after the other, since each wants the machine for itself.  What cannot run here
is said, with its reason.  The schema of --json is in docs/benchmarks.md.

Exit code: 0 when all that could run did, 1 when one failed, 2 when it was called wrongly.
"""
import argparse
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time

from figures import SKIPPED

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SCHEMA = 1
LIMIT_S, QUICK_LIMIT_S = 7200, 300
DEBIAN_PYTHON = "/usr/bin/python3"  # the tests' own; it has torch where setup.sh could install it
NEWER_TORCH = os.path.join(ROOT, "build", "torch", "bin", "python")  # of newer_torch.sh
TORCH_PYTHON = os.environ.get("PROBING_TEST_TORCH", "").split(":")[0] or (
    NEWER_TORCH if os.path.exists(NEWER_TORCH) else DEBIAN_PYTHON)


def libpython():
    """The shared library of an interpreter that has one."""
    where = sysconfig.get_config_var
    for folder in (where("LIBDIR"), where("LIBPL")):
        path = os.path.join(folder or "/", where("INSTSONAME") or where("LDLIBRARY") or "?")
        if path.endswith(".so") or ".so." in path:
            if os.path.exists(path):
                return path
    return "libpython%d.%d.so.1.0" % sys.version_info[:2]


# Name -> (program, its words, its words for --quick).  A program without a dot is of
# build/release/tests/bench.
BENCHMARKS = {
    "sizes": ("sizes.py", [], []),
    "append": ("append_bench", [], ["20"]),
    "store": ("store_bench", ["20"], ["1", "1"]),
    "bytes": ("bytes.py", ["20"], ["2"]),
    "sql": ("sql_bench.py", ["10000000"], ["100000", "group"]),
    "lua": ("lua_bench", ["5"], ["1", "1"]),
    "cancel": ("cancel_bench", ["20"], ["1"]),
    "polite": ("polite_bench", ["5"], ["1"]),
    "stream": ("stream_bench", ["100", "10000", "5", "10"], ["4", "1000", "1", "10"]),
    "storm": ("storm_bench", ["200000"], ["1000"]),
    "fairness": ("fairness.py", ["--seconds", "10"], ["--seconds", "1"]),
    "inject": ("inject.py", ["20"], ["2", "sleeping"]),
    "system": ("system_threads.py", [], ["--seconds", "1", "--threads", "10"]),
    "cuda": ("cuda_reading.py", [], ["--seconds", "1", "--rates", "1000"]),
    "cuda-windows": ("cuda_windows.py", [], ["--seconds", "1", "--rates", "1000"]),
    "idle-python": ("idle_python.py", [], ["--rounds", "1", "--loops", "2", DEBIAN_PYTHON]),
    "inside": ("inside.py", [], ["--rounds", "1", DEBIAN_PYTHON]),
    "objects": ("objects.py", [], ["--lists", "20000", DEBIAN_PYTHON]),
    "tracing": ("tracing.py", [], ["--rounds", "1", DEBIAN_PYTHON]),
    "python-stack": ("python_stack_bench", [libpython()], [libpython(), "1"]),
    "sampling": ("sampling.py", [], ["--seconds", "1", "--rounds", "1"]),
    "truth": ("truth_pyspy.py", [], []),
    "memory": ("memory_pairs.py", [], ["--rounds", "1"]),
    "memory-step": ("memory_step.py", ["--python", TORCH_PYTHON],
                    ["--python", TORCH_PYTHON, "--rounds", "1", "--seconds", "0.1", "--warm",
                     "0.1"]),
    "nccl": ("nccl_pairs.py", [], ["--rounds", "2"]),
    "torch-overhead": ("torch_overhead.py", ["--python", TORCH_PYTHON],
                       ["--python", TORCH_PYTHON, "--rounds", "1", "--only", "empty"]),
    "many-ranks": ("many_ranks.py", [], ["--ranks", "300", "--rounds", "1"]),
    "rank-cost": ("rank_cost.py", [], ["--seconds", "2", "--rounds", "1", "--row", "20"]),
    "stragglers": ("stragglers_campaign.py", ["--python", TORCH_PYTHON],
                   ["--python", TORCH_PYTHON, "--jobs", "1", "--phases", "2"]),
    "relays": ("relays.py", [], ["--hosts", "3", "--rounds", "1"]),
    "torch-pairs": ("torch_pairs.py", ["--python", TORCH_PYTHON],
                    ["--python", TORCH_PYTHON, "--seconds", "1", "--only", "4 modules"]),
}


# ---- the machine ----

def first(pattern, path):
    try:
        with open(path, errors="replace") as file:
            found = re.search(pattern, file.read(), flags=re.M)
    except OSError:
        return None
    return found.group(1).strip() if found else None


def git(*words):
    try:
        done = subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, universal_newlines=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def machine():
    """The things a figure depends on; null where one is not known."""
    memory = first(r"^MemTotal:\s+(\d+) kB", "/proc/meminfo")
    return {
        "cpu": first(r"^model name\s*:(.*)", "/proc/cpuinfo"),
        "architecture": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_bytes": int(memory) * 1024 if memory else None,
        "kernel": platform.release(),
        "system": first(r'^PRETTY_NAME="?([^"\n]*)', "/etc/os-release"),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "python": platform.python_version(),
        "governor": first(r"(.*)", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    }


def product():
    changed = git("status", "--porcelain", "--untracked-files=no")
    return {"version": first(r"(.*)", os.path.join(ROOT, "VERSION")),
            "commit": git("rev-parse", "HEAD"),
            "changed": bool(changed) if changed is not None else None}


# ---- a benchmark's lines ----

def parse_figure(line):
    """One line as figures.py says, as the JSON has it; ValueError: it is none."""
    words = line.split("\t")
    if len(words) < 4 or words[0] != "figure" or not words[1]:
        raise ValueError("no figure: " + line)
    values = dict(word.split("=", 1) for word in words[3:])
    texts = {key: values.pop(key, None) for key in ("against", "goal")}
    ratio = values.pop("ratio", None)
    return {"name": words[1], "unit": words[2],
            "statistics": {key: float(value) for key, value in values.items()},
            "ratio": float(ratio) if ratio is not None else None, **texts}


def parse(output):
    """(figures, remarks) of what a benchmark printed; ValueError: a line is neither."""
    figures, remarks = [], []
    for line in output.splitlines():
        if line.startswith("#"):
            remarks.append(line[1:].strip())
        elif line.strip():
            figures.append(parse_figure(line))
    names = [one["name"] for one in figures]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError("a name stands twice: " + ", ".join(sorted(twice)))
    unknown = {one["against"] for one in figures if one["against"]} - set(names)
    if unknown:
        raise ValueError("compared with what is not there: " + ", ".join(sorted(unknown)))
    return figures, remarks


def command_of(name, quick):
    program, full, least = BENCHMARKS[name]
    path = os.path.join(HERE, program) if program.endswith(".py") else \
        os.path.join(ROOT, "build", "release", "tests", "bench", program)
    python = [DEBIAN_PYTHON] if program.endswith(".py") else []
    return python + [path] + (least if quick else full)


def run(command, limit_s):
    """(exit code, None when it was ended after limit_s; output; what it said of errors)"""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, text=True,
                                 stdout=subprocess.PIPE, stderr=errors, errors="replace",
                                 start_new_session=True)
        try:
            output, code = child.communicate(timeout=limit_s)[0], child.returncode
        except subprocess.TimeoutExpired:
            output, code = "", None
        finally:  # it, and the targets that it may have left when it was interrupted
            try:
                os.killpg(child.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            child.wait()
        errors.seek(0)
        return code, output, errors.read()


def measure(name, quick):
    """A benchmark's part of the JSON."""
    command, limit_s = command_of(name, quick), QUICK_LIMIT_S if quick else LIMIT_S
    one = {"name": name, "command": [os.path.relpath(word, ROOT) if word.startswith(ROOT) else word
                                     for word in command],
           "status": "skipped", "why": None, "seconds": None, "load": None,
           "figures": [], "remarks": []}
    program = command[0] if len(command) == 1 or command[0] != DEBIAN_PYTHON else command[1]
    if not os.path.exists(program):
        return dict(one, why="not built: scons unit")
    one["load"], began = os.getloadavg()[0], time.monotonic()
    code, output, errors = run(command, limit_s)
    one["seconds"] = round(time.monotonic() - began, 1)
    try:
        one["figures"], one["remarks"] = parse(output)
        why = None if one["figures"] else "it printed no figure"
    except ValueError as error:
        why = str(error)
    if code == SKIPPED:
        return dict(one, why=(one["remarks"] or ["it does not say why"])[-1])
    if code != 0:
        why = "exit code %s" % code if code is not None else "still running after %d s" % limit_s
        why = "; ".join([why] + (errors.strip().splitlines() or one["remarks"])[-1:])
    return dict(one, status="failed" if why else "ran", why=why)


# ---- for people ----

def number(value):
    if value == int(value):
        return "%d" % value
    return "%.*f" % (0 if abs(value) >= 1000 else 1 if abs(value) >= 100 else 2, value)


def tell(one):
    if one["status"] != "ran":
        print("%s: %s: %s" % (one["name"], one["status"], one["why"]))
    else:
        print("%s (%.1f s, load %.1f)" % (one["name"], one["seconds"], one["load"]))
    for figure in one["figures"]:
        ratio = "%.2f x" % figure["ratio"] if figure["ratio"] is not None else ""
        told = ", ".join("%s %s" % (key, number(value))
                         for key, value in figure["statistics"].items())
        print("  %10s  %-46s %s %s%s%s" % (
            ratio, figure["name"], told, figure["unit"],
            "; against %s" % figure["against"] if figure["against"] else "",
            "; goal %s" % figure["goal"] if figure["goal"] else ""))
    for remark in one["remarks"] if one["status"] != "skipped" else ():
        print("  # " + remark)
    sys.stdout.flush()


def tell_machine(facts, built):
    gb = (facts["memory_bytes"] or 0) / 2 ** 30
    print("%s, %d CPUs, %.1f GB; %s, kernel %s, %s; Python %s; load %.1f" % (
        facts["cpu"] or facts["architecture"], facts["cpus"], gb, facts["system"] or "?",
        facts["kernel"], facts["libc"], facts["python"], os.getloadavg()[0]))
    print("probing %s, commit %s%s" % (built["version"], (built["commit"] or "?")[:12],
                                       " and changes" if built["changed"] else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true", help="names and commands, and run none")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error("no benchmark %s: --list names them" % ", ".join(unknown))
    names = options.names or list(BENCHMARKS)
    if options.list:
        for name in names:
            print("%-15s %s" % (name, " ".join(os.path.relpath(w, ROOT) if w.startswith(ROOT) else w
                                               for w in command_of(name, options.quick))))
        return 0
    began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    facts, built, done = machine(), product(), []
    if not options.json:
        tell_machine(facts, built)
    for name in names:
        done.append(measure(name, options.quick))
        if not options.json:
            tell(done[-1])
    if options.json:
        json.dump({"schema": SCHEMA, "began": began, "quick": options.quick, "machine": facts,
                   "product": built, "benchmarks": done}, sys.stdout, indent=1)
        print()
    else:
        print("%d ran, %d skipped, %d failed" % tuple(
            sum(one["status"] == word for one in done) for word in ("ran", "skipped", "failed")))
    return 1 if any(one["status"] == "failed" for one in done) else 0


if __name__ == "__main__":
    sys.exit(main())
