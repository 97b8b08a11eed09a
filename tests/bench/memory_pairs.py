# SPDX-License-Identifier: Apache-2.0
"""What the memory plugin costs a program that allocates, and what others cost it.

usage: memory_pairs.py [--rounds N] [--python PYTHON]

A C program makes pairs of malloc(64) and free() and prints what one takes; it is entered, and the
plugin loaded and stopped in turn, so that both are measured in one process.  A Python program
churns lists and bytearrays in the same way.  Then both run under those of heaptrack, memray (of
PYTHON) and tracemalloc that are here.  Printed is the best of each, as this machine is shared: for
pairs in ns and what is added, for Python in ms of CPU a round and as a factor.
"""
import argparse
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
        entered = min(entered, program.best(repeats))
        command("plugin", "stop", "memory")
        without = min(without, program.best(repeats))
    return without, entered


def peers(args, python, folder):
    """(name, command line, what it adds to the environment)"""
    found = shutil.which("heaptrack")
    library = next((p for p in ("/usr/lib/heaptrack/libheaptrack_preload.so",
                                "/usr/lib/x86_64-linux-gnu/heaptrack/libheaptrack_preload.so")
                    if os.path.exists(p)), None)
    if found and library:
        yield "heaptrack", args, {"LD_PRELOAD": library,
                                  "DUMP_HEAPTRACK_OUTPUT": folder + "/heaptrack"}
    if args[0] != python:
        return
    yield "tracemalloc", args + ["trace"], {}
    if not subprocess.run([python, "-c", "import memray"], capture_output=True).returncode:
        for words in ((), ("--native",), ("--trace-python-allocators",)):
            yield " ".join(("memray",) + words), \
                [python, "-m", "memray", "run", "-q", "-f", *words, "-o", folder + "/memray",
                 *args[1:]], {}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probing", default=os.path.join(ROOT, "build/release/probing"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    folder = tempfile.mkdtemp()
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
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
        rows = [(OURS, entered)]
        for name, line, more in peers(args, options.python, folder):
            program = Program(line, env=dict(os.environ, **more))
            try:
                program.best(2)
                rows.append((name, program.best(max(2, repeats // 4))))
            except (EOFError, BrokenPipeError):
                remark("%s: %s did not run" % (what, name))
            program.end()
        for name, took in rows:
            figure("%s, %s" % (what, name), unit, least=took, added=took - without, against=what,
                   ratio=took / without,
                   goal="at most 11 ns added" if (what, name) == ("pair", OURS) else None)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
