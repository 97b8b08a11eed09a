# SPDX-License-Identifier: Apache-2.0
"""The main job on other machines: aarch64, a kernel with Yama, an old kernel with an old glibc.

Minutes each, in emulation, so only when asked: PROBING_TEST_MACHINES=1, or `scons machines`.
"""
import ast
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from machine import ROOT, Machine, Missing

MAIN_JOB = ["main_job_in_python", "main_job_in_c", "dead_process_is_asked"]
YAMA = ["yama_0_lets_the_same_user", "yama_1_names_itself_and_root_may",
        "yama_1_is_not_asked_about_others", "yama_2_wants_a_capability",
        "yama_2_root_without_the_capability", "yama_3_refuses_even_root"]
NEWEST = ["python_3_14_by_ptrace", "python_3_14_by_remote_exec", "remote_exec_beside_a_debugger",
          "remote_exec_gives_up_and_leaves_nothing"]
UNITS = ["core-base-base_test", "core-catalog-dictionary_test", "core-ring-ring_test",
         "core-catalog-catalog_test", "core-stack-stack_test", "core-stack-capture_test",
         "cli-inject-inject_test"]
LIBRARY_TEST = ROOT / "cli" / "inject" / "entered_test.h"
BROKEN = "int no_such_function(void); const char probing_version[] = \"1.0-test\"; " \
         "int probing_start(const char *s) { (void)s; return no_such_function(); }"
# The guest has no compiler; what inject_test would make with one was made here.
CC = """#!/bin/busybox sh
for made in 1.0-test 2.0-test bad; do case "$*" in *$made*) break;; esac; done
while [ $# -gt 0 ]; do [ "$1" = -o ] && exec busybox cp /probing/lib$made.so $2; shift; done
"""

pytestmark = pytest.mark.skipif(not os.environ.get("PROBING_TEST_MACHINES"),
                                reason="minutes of emulation: PROBING_TEST_MACHINES=1 runs it")


def built(arch):
    """The build for that machine, made if it is not the one that is there."""
    if arch == os.uname().machine:
        return ROOT / "build" / "release"
    if not shutil.which(arch + "-linux-gnu-gcc"):
        pytest.skip("no cross compiler (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)")
    subprocess.run(["/usr/bin/scons", "-Q", "-j2", "arch=" + arch, "all", "unit", "wheel"],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return ROOT / "build" / arch


def test_libraries(tmp, cc):
    """The programs of inject_test, whose C source stands as text in its header."""
    text = re.search(r"static const char source\[\] =\n(.*?);\n\n", LIBRARY_TEST.read_text(), re.S)
    source = "".join(ast.literal_eval(line.strip()) for line in text[1].splitlines())
    for name, code in (("1.0-test", source), ("2.0-test", source), ("bad", BROKEN)):
        (tmp / "library.c").write_text(code)
        made = tmp / ("lib%s.so" % name)
        subprocess.run([cc, "-shared", "-fPIC", "-O1", "-DVERSION=\"%s\"" % name, "-Wl,-z,now",
                        "-o", made, tmp / "library.c", "-pthread"], check=True)
        yield made


test_libraries.__test__ = False


def files_for(machine, tmp, units):
    """{path in the guest: file here}."""
    build = built(machine.arch)
    tools = "" if machine.arch == os.uname().machine else machine.arch + "-linux-gnu-"
    files = {"probing/guest.py": Path(__file__).parent / "guest.py",
             "probing/heartbeat.so": build / "sdk" / "template.so", "usr/bin/cc": tmp / "cc"}
    files.update(("probing/probing.whl", w) for w in (build / "packages").glob("*.whl"))
    products = ["probing", "libprobing.so"]
    products += ["plugins/" + p.name for p in sorted((build / "plugins").glob("*.so"))]
    for name in products:
        made = tmp / name.replace("/", "-")
        subprocess.run([tools + "strip", "-o", made, build / name], check=True)
        files["probing/" + name] = made
    for name in units:
        files["probing/tests/" + name] = build / "tests" / name
    if units:
        files.update(("probing/" + p.name, p) for p in test_libraries(tmp, tools + "gcc"))
    (tmp / "cc").write_text(CC)
    (tmp / "cc").chmod(0o755)
    return files


def run_there(machine, tmp, cases, units=()):
    try:
        machine.make()
    except Missing as why:
        pytest.skip(str(why))
    files = files_for(machine, tmp, units)
    words = ["/probing/tests/" + u for u in units] + list(cases)
    (tmp / "cases").write_text("\n".join(words))
    files["probing/cases"] = tmp / "cases"
    text = machine.boot(files, tmp / "serial")
    print(text)
    passed = re.findall(r"^ok (\S+)", text, flags=re.M)
    assert len(passed) == len(words) and "\nend of %d cases" % len(words) in text, text[-6000:]


def test_aarch64(tmp_path):
    """With SVE and pointer authentication; memory order is the emulator's host's: not tested."""
    machine = Machine("bookworm", "aarch64", cpu="max,pauth-impdef=on")
    run_there(machine, tmp_path, MAIN_JOB + ["wheel"], UNITS)


def test_aarch64_with_signed_return_addresses(tmp_path):
    """Debian compiles for branch protection (PAC and BTI) since this release.

    It does not fail yet when core/stack leaves the signs on: who is lost outside libc is safe.
    """
    machine = Machine("trixie", "aarch64", cpu="max,pauth-impdef=on")
    run_there(machine, tmp_path, MAIN_JOB)


def test_yama(tmp_path):
    """Debian's kernel has it; the last case cannot be undone but by a reboot."""
    run_there(Machine("bookworm", "x86_64"), tmp_path, MAIN_JOB + YAMA)


def test_old_kernel_and_glibc(tmp_path):
    """Linux 5.10 and glibc 2.31."""
    run_there(Machine("bullseye", "x86_64"), tmp_path, MAIN_JOB)


def test_newest_python_and_kernel(tmp_path):
    """CPython 3.14, by both ways in; whatever kernel and glibc Debian has today."""
    run_there(Machine("sid", "x86_64"), tmp_path, NEWEST)
