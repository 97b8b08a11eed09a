#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Run what was built, and end with one line: `N passed, N failed` (and `, N skipped`).

usage: run_tests.py [--build build/release] [--only TEXT] [--python FOLDER | --no-python]
                    [--build-failed]

Runs every unit test program of BUILD/tests whose source still exists, each case of it
counted by its `ok name` / `not ok name` line (tests/test.h), then tests/**/test_*.py, or those of
one folder only, with pytest.  Prints the output of what failed, and why something was skipped.
--build-failed counts one failure more: what could not be built could not be tried.  Exit code 1
when anything failed.

Some thousand tests share a few processors with whatever else runs on the machine.  When few of
them fail, and none by a crash, those run once more, alone: what passes then is counted as passed,
and named in a line of its own as unsteady, which is a fault to be mended, of the test or of ours.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from concurrent.futures import ThreadPoolExecutor, as_completed

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LONGEST = ["%s_test" % name for name in (  # of the unit tests: more than two seconds of a processor
    "cli-inject-inject", "cli-inject-kill", "core-sql-exec-parallel", "core-sql-sqlite",
    "core-store-crash", "plugins-memory-hook-hooks_stress", "plugins-python-exec-offsets_proof",
    "plugins-python-inspect-frame_locals", "plugins-python-inspect-interpreter",
    "tests-server-stream", "tests-store-copied", "tests-store-damage")]
SKIP = 77               # exit code of a program that cannot run here
PROGRAM_LIMIT_S = 300   # a unit test that takes longer hangs
SLOWER = {"asan": 4, "tsan": 10}  # in these builds
PYTHON_LIMIT_S = 3600   # all Python tests together
SHOWN_LINES = 200       # of a failing program's output
UNSTEADY_MAX = 4        # when more fail it is no chance, and nothing runs again
CRASH = re.compile(r"SIG(SEGV|BUS|ABRT|ILL|FPE)|Segmentation fault|Sanitizer|"
                   r"(returncode=|exit: |died: )-(4|6|7|8|11)\b")
SANITIZERS = {
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}


class Count:
    """The results of some tests."""

    def __init__(self, passed=0, failed=0, skipped=0):
        self.passed, self.failed, self.skipped = passed, failed, skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def line(self):
        text = "%d passed, %d failed" % (self.passed, self.failed)
        return text + (", %d skipped" % self.skipped if self.skipped else "")


def programs(folder, only):
    """Unit test programs that have a source: others were left by a file that has gone."""
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [os.path.join(folder, n) for n in names
            if n.endswith("_test") and only in n
            and os.path.exists(os.path.join(ROOT, n.replace("-", "/") + ".c"))]


def run_program(path, build):
    """(name, count, output) of one unit test program."""
    # gcc 12's thread sanitizer cannot start where the kernel scatters mappings too widely.
    command = (["setarch", "-R"] if "tsan" in build else []) + [path]
    limit_s = PROGRAM_LIMIT_S * max([n for mode, n in SLOWER.items() if mode in build], default=1)
    env = dict(SANITIZERS, **os.environ)
    env["PROBING_TEST_BUILD"] = build
    try:
        done = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=limit_s)
        rc, output = done.returncode, done.stdout.decode(errors="replace")
    except subprocess.TimeoutExpired as late:
        rc = "still running after %d s" % limit_s
        output = (late.stdout or b"").decode(errors="replace")
    passed = len(re.findall(r"^ok ", output, flags=re.M))
    failed = len(re.findall(r"^not ok ", output, flags=re.M))
    name = os.path.basename(path)
    if rc == SKIP:
        return name, Count(skipped=1), output
    if rc != 0 and not failed:
        output += "\n# exit: %s\n" % rc
        failed = 1
    if not passed and not failed:
        output += "\n# it has no case\n"
        failed = 1
    return name, Count(passed, failed), output


def may_run_again(failed):
    """failed: {name: what it said}."""
    return 0 < len(failed) <= UNSTEADY_MAX and not any(map(CRASH.search, failed.values()))


def say_unsteady(names):
    for name in sorted(names):
        print("# unsteady: %s failed beside others (see above), and passed alone" % name)


def run_unit_tests(build, only):
    """The longest first: else one of them runs alone in the end."""
    total, failed = Count(), {}
    paths = sorted(programs(os.path.join(ROOT, build, "tests"), only),
                   key=lambda p: os.path.basename(p) not in LONGEST)
    with ThreadPoolExecutor(workers()) as pool:
        for done in as_completed([pool.submit(run_program, p, build) for p in paths]):
            name, count, output = done.result()
            total.add(count)
            show(name, count, output)
            if count.failed:
                failed[name] = output
    if may_run_again(failed):
        folder = os.path.join(ROOT, build, "tests")
        again = [run_program(os.path.join(folder, name), build) for name in failed]
        for name, count, output in again:
            show(name, count, output)
        steady = [name for name, count, _ in again if count.passed and not count.failed]
        say_unsteady(steady)
        moved = sum(len(re.findall(r"^not ok ", failed[name], flags=re.M)) or 1 for name in steady)
        total.add(Count(passed=moved, failed=-moved))
    return total


def show(name, count, output):
    print("%-40s %s" % (name, count.line()), flush=True)
    if count.failed:
        print("".join("    %s\n" % t for t in output.splitlines()[-SHOWN_LINES:]))


def count_report(path):
    """pytest's own report, as a Count."""
    total = Count()
    for suite in xml.etree.ElementTree.parse(path).getroot().iter("testsuite"):
        tests, skipped = int(suite.get("tests")), int(suite.get("skipped"))
        failed = int(suite.get("failures")) + int(suite.get("errors"))
        total.add(Count(tests - failed - skipped, failed, skipped))
    return total


def workers():
    """Tests wait more often than they compute: three for two cores.  But some hold several
    processes with torch, so not more than one for 2 GB."""
    cores = len(os.sched_getaffinity(0))
    gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return max(cores, min(cores * 3 // 2, gb // 2))


def run_pytest(build, arguments, name="pytest.xml"):
    """(count, {name: what it said} of those that failed), or None: it gave no report."""
    report = os.path.join(ROOT, build, name)
    failures = os.path.join(ROOT, build, "failures.jsonl")  # tests/conftest.py writes it
    for path in (report, failures):
        if os.path.exists(path):
            os.remove(path)
    command = [sys.executable, "-m", "pytest", "-q", "-rfEs", "-p", "no:cacheprovider",
               "--durations", "20", "--durations-min", "5", "--junitxml", report] + arguments
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}  # tests of this, too
    env.update(PYTHONDONTWRITEBYTECODE="1", PROBING_TEST_BUILD=build,
               PROBING_TEST_FAILURES=failures)
    try:
        rc = subprocess.run(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                            timeout=PYTHON_LIMIT_S).returncode
    except subprocess.TimeoutExpired:
        print("# the Python tests were still running after %d s" % PYTHON_LIMIT_S)
        return None
    if rc == 5:  # pytest: nothing matched
        return Count(), {}
    if not os.path.exists(report):
        print("# pytest gave no report (exit %d)" % rc)
        return None
    failed = {}
    if os.path.exists(failures):
        with open(failures, encoding="utf-8") as lines:
            failed = {one["test"]: one["said"] for one in map(json.loads, lines)}
    return count_report(report), failed


def read_tests(folder):
    """pytest makes other code of each file before it runs: once (tests/conftest.py keeps it), while
    unit tests run, and not in each worker at the same time."""
    return subprocess.Popen([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                             "--collect-only", folder], cwd=ROOT, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_python_tests(build, only, folder):
    arguments = ["-n", str(workers()), "--dist", "loadgroup", folder]
    done = run_pytest(build, arguments + (["-k", only] if only else []))
    if done is None:
        return Count(failed=1)
    total, failed = done
    if len(failed) == total.failed and may_run_again(failed):
        again = run_pytest(build, sorted(failed), "pytest-again.xml")
        steady = set(failed) - set(again[1]) if again and again[0].passed else set()
        say_unsteady(steady)
        total.add(Count(passed=len(steady), failed=-len(steady)))
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release", metavar="FOLDER")
    parser.add_argument("--only", default="")
    parser.add_argument("--python", default="tests", metavar="FOLDER")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("--build-failed", action="store_true")
    options = parser.parse_args()
    total = Count(failed=1 if options.build_failed else 0)
    if options.build_failed:
        print("the build: 0 passed, 1 failed (its messages are above)")
    reading = None if options.no_python else read_tests(options.python)
    total.add(run_unit_tests(options.build, options.only))
    if reading:
        reading.wait()
        total.add(run_python_tests(options.build, options.only, options.python))
    print(total.line())
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
