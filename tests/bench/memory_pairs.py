# SPDX-License-Identifier: Apache-2.0
"""What the memory plugin costs a program that allocates, and what others cost it.

usage: memory_pairs.py [--rounds N] [--python PYTHON]

A C program makes pairs of malloc(64) and free() and prints what one takes; it is entered, and the
plugin loaded and stopped in turn, so that both are measured in one process.  A Python program
churns lists and bytearrays in the same way.  Then both run under heaptrack, memray (by pip, into
build/bench/python) and tracemalloc, and with jemalloc in the place of libc's allocator: as it is,
with its own profiler, and entered.  What is not here is left out aloud.  Printed is the best of
each, as this machine is shared: for pairs in ns and what is added, for Python in ms of CPU a round
and as a factor.
"""
import argparse
import glob
import os
import shutil
import subprocess
import sys
import tempfile

from figures import figure, remark

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OURS = "plugin memory"
PAIRS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}
int main(void)
{
    char line[64];
    while (fgets(line, sizeof(line), stdin)) {
        double best = 1e18;
        for (int k = 0; k < atoi(line); k++) {
            double begin = now();
            for (int i = 0; i < 1000000; i++) {
                void *p = malloc(64);
                __asm__ volatile("" : : "r"(p) : "memory");
                free(p);
            }
            double took = (now() - begin) / 1e6;
            best = took < best ? took : best;
        }
        printf("%.3f\n", best);
        fflush(stdout);
    }
    return 0;
}
"""
CHURN = r"""
import sys, time
TRACE = len(sys.argv) > 1
if TRACE:
    import tracemalloc
    tracemalloc.start()
def churn():
    for _ in range(3):
        rows = [[i, str(i)] for i in range(4000)]
        for n in range(600, 900):
            bytearray(n)
        [bytearray(100000) for _ in range(40)]
for line in sys.stdin:
    best = 1e9
    for _ in range(int(line)):
        begin = time.process_time()
        churn()
        best = min(best, time.process_time() - begin)
    print("%.3f" % (best * 1e3), flush=True)
"""


class Program:
    def __init__(self, args, **options):
        self.process = subprocess.Popen(args, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        **options)

    def best(self, repeats):
        self.process.stdin.write("%d\n" % repeats)
        self.process.stdin.flush()
        while True:  # some of the peers greet on stdout
            line = self.process.stdout.readline()
            if not line:
                raise EOFError
            try:
                return float(line)
            except ValueError:
                continue

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def ours(program, probing, repeats, rounds):
    """The best without and with the plugin."""
    def command(*words):
        subprocess.run([probing, "-t", str(program.process.pid), *words], check=True,
                       stdout=subprocess.DEVNULL)
    program.best(repeats)  # warms up
    without, entered = program.best(repeats), 1e9
    command("inject", "--wait")
    for _ in range(rounds):
        command("plugin", "load", "memory")
        program.best(10 * repeats)  # samples thin out within the first second of so much
        entered = min(entered, program.best(repeats))
        command("plugin", "stop", "memory")
        without = min(without, program.best(repeats))
    return without, entered


def library(pattern):
    folders = "/usr/lib", "/usr/lib64", "/usr/lib/*-linux-gnu", "/usr/local/lib"
    return next((p for folder in folders
                 for p in sorted(glob.glob(os.path.join(folder, pattern)))), None)


def python_with_memray(python):
    """An interpreter of the same version that has it, None: it cannot be had here."""
    found = os.path.join(ROOT, "build", "bench", "python", "bin", "python")
    if not os.path.exists(found):
        subprocess.run([python, "-m", "venv", os.path.dirname(os.path.dirname(found))],
                       capture_output=True)
        subprocess.run([found, "-m", "pip", "install", "-q", "--retries", "1", "memray"],
                       capture_output=True)
    for one in (found, python):
        if shutil.which(one) and not subprocess.run([one, "-c", "import memray"],
                                                    capture_output=True).returncode:
            return one
    return None


def peers(what, args, python, folder):
    """(name, command line, what it adds to the environment)"""
    heaptrack = library("heaptrack/libheaptrack_preload.so")
    if heaptrack:
        yield "heaptrack", args, {"LD_PRELOAD": heaptrack,
                                  "DUMP_HEAPTRACK_OUTPUT": folder + "/heaptrack"}
    else:
        remark("%s: no heaptrack here" % what)
    if args[0] != python:
        return
    yield "tracemalloc", args + ["trace"], {}
    memray = python_with_memray(python)
    for words in ((), ("--native",), ("--trace-python-allocators",)) if memray else ():
        yield " ".join(("memray",) + words), \
            [memray, "-m", "memray", "run", "-q", "-f", *words, "-o", folder + "/memray",
             *args[1:]], {}
    if not memray:
        remark("%s: no memray here, and pip gave none" % what)


def best_of(args, env, repeats):
    """None: it did not run."""
    program = Program(args, env=dict(os.environ, **env))
    try:
        program.best(2)
        return program.best(repeats)
    except (EOFError, BrokenPipeError):
        return None
    finally:
        program.end()


def show(what, name, unit, took, without, goal=None):
    if took is None:
        remark("%s: %s did not run" % (what, name))
        return
    figure("%s, %s" % (what, name), unit, least=took, added=took - without, against=what,
           ratio=took / without, goal=goal)


def under_jemalloc(what, args, unit, options, repeats, folder):
    """jemalloc's own profiler with one sample in 512 KB, as ours, and ours in its place."""
    jemalloc = library("libjemalloc.so*")
    if not jemalloc:
        return remark("%s: no jemalloc here" % what)
    program = Program(args, env=dict(os.environ, LD_PRELOAD=jemalloc))
    without, entered = ours(program, options.probing, repeats, options.rounds)
    program.end()
    what += " in jemalloc"
    figure(what, unit, least=without)
    show(what, OURS, unit, entered, without)
    profiler = "prof:true,prof_active:true,lg_prof_sample:19,prof_prefix:%s/jeprof" % folder
    if b"Invalid conf" in subprocess.run(
            ["true"], env={"LD_PRELOAD": jemalloc, "MALLOC_CONF": profiler},
            capture_output=True).stderr:
        return remark("%s: it is built without a profiler" % what)
    show(what, "its own profiler", unit,
         best_of(args, {"LD_PRELOAD": jemalloc, "MALLOC_CONF": profiler}, repeats), without)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probing", default=os.path.join(ROOT, "build/release/probing"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
    # glibc gives no pages back, as whoever keeps a block at the heap's end has fewer page faults
    os.environ.update(MALLOC_TRIM_THRESHOLD_="1000000000", MALLOC_MMAP_THRESHOLD_="100000000")
    with open(folder + "/pairs.c", "w") as text:
        text.write(PAIRS)
    with open(folder + "/churn.py", "w") as text:
        text.write(CHURN)
    subprocess.run(["cc", "-O2", "-o", folder + "/pairs", folder + "/pairs.c"], check=True)
    for what, args, unit, repeats in (("pair", [folder + "/pairs"], "ns", 20),
                                      ("churn", [options.python, folder + "/churn.py"], "ms", 20)):
        program = Program(args)
        without, entered = ours(program, options.probing, repeats, options.rounds)
        program.end()
        figure(what, unit, least=without)
        show(what, OURS, unit, entered, without,
             goal="at most 11 ns added" if what == "pair" else None)
        for name, line, more in peers(what, args, options.python, folder):
            show(what, name, unit, best_of(line, more, max(2, repeats // 4)), without)
        under_jemalloc(what, args, unit, options, repeats, folder)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
