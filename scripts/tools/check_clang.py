#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What clang says about our sources, beside gcc that builds them.

usage: check_clang.py [--tidy] [FILE|FOLDER...]      all that compile_commands.json names by default

Reads each source with clang and gcc's own flags, warnings are errors; nothing is written.  With
--tidy, clang-tidy's checks instead (.clang-tidy says which, and why), which takes some minutes.
Exit code 1 when something is wrong, 77 when it could not be tried: no clang, or nothing was built.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COMMANDS = os.path.join(ROOT, "compile_commands.json")  # scons all writes it
SKIP = 77
TIDY = "clang-tidy-14"  # the version that .clang-tidy is for; others know other checks


class Skip(Exception):
    """Why nothing can be said."""


def need(program):
    if not shutil.which(program):
        raise Skip("%s is not installed" % program)
    return program


def commands():
    """{source: how gcc compiles it}, of those that are still there."""
    if not os.path.exists(COMMANDS):
        raise Skip("no compile_commands.json: scons all")
    with open(COMMANDS) as text:
        rows = json.load(text)
    found = {row["file"]: row["command"] for row in rows
             if os.path.exists(os.path.join(ROOT, row["file"]))}
    if not found:
        raise Skip("compile_commands.json names no source that is here: scons all")
    return found


def shell(command):
    """(exit code, output) of a command line at the top of the checkout."""
    done = subprocess.run(command, shell=True, cwd=ROOT, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout.decode(errors="replace")


def read(_, command):
    """Clang's complaints about one source."""
    clang = re.sub(r"^\S+", need("clang"), command, count=1)
    rc, text = shell(re.sub(r" -o \S+", " -fsyntax-only", clang, count=1))
    return text if rc else ""


def tidy(path, _):
    """clang-tidy's; what it counts in other people's headers is of no interest."""
    rc, text = shell("%s --quiet -p %s %s" % (need(TIDY), ROOT, path))
    return re.sub(r"^\d+ warnings?.*\n|^Suppressed .*\n|^Use -header.*\n", "", text, flags=re.M) \
        if rc or "warning:" in text else ""


def complaints(judge, paths=()):
    """Commands of all sources, or those in paths, in the order of their names."""
    chosen = [(f, c) for f, c in sorted(commands().items())
              if not paths or any(f == p or f.startswith(p.rstrip("/") + "/") for p in paths)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(lambda one: judge(*one), chosen))


def main(arguments):
    judge = tidy if "--tidy" in arguments else read
    paths = [os.path.relpath(os.path.abspath(a), ROOT) for a in arguments if a != "--tidy"]
    wrong = False
    try:
        for text in complaints(judge, paths):
            wrong = True
            print(text, end="", flush=True)
    except Skip as why:
        print("check_clang: skipped, %s" % why)
        return SKIP
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
