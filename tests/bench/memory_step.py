# SPDX-License-Identifier: Apache-2.0
"""What the memory plugin costs a training step at its default rate, on the CPU.

usage: memory_step.py [--python EXE] [--probing EXE] [--rounds N] [--seconds S] [--warm S]

One process trains a small transformer (tests/train/tiny_transformer.py: attention, dropout,
cross-entropy, AdamW), block after block.  Plugin python is in it all the time; between blocks
plugin memory is loaded and stopped by the command.  A round has a block without it, one with it,
and one without it again, in turn; the one with it is compared with the mean of the two around it,
so that a machine that gets slower or faster does so for both.  Steps that take --warm seconds of
CPU go before it: a plugin that has just come has to meet the program's stacks, and to find how
often it may sample; `just loaded` is what they cost.  Printed are medians over the rounds, in CPU
time of the training thread and of the whole process (the plugin's own thread counts there).
`without, again` is the second of the two against the first: below its distance from 1 no ratio
means anything.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

from figures import figure, remark, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLOCKS = ("without", "just loaded", "with plugin memory", "without, again")
GOAL = "at most 1 % more"


def target():
    """A line on stdin: steps, or the seconds that they shall take; on stdout: steps, CPU ns."""
    sys.path.insert(0, os.path.join(ROOT, "tests", "train"))
    import tiny_transformer
    import torch
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = tiny_transformer.TinyTransformer()
    loss_of = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    print("ready", flush=True)
    for line in sys.stdin:
        thread, process = time.thread_time_ns(), time.process_time_ns()
        for step in range(int(line)):
            tiny_transformer.train_step(model, loss_of, optimizer, step)
        print(time.thread_time_ns() - thread, time.process_time_ns() - process, flush=True)


class Trained:
    def __init__(self, options):
        self.probing = options.probing
        self.process = subprocess.Popen(
            [options.python, "-W", "ignore", os.path.abspath(__file__), "--target"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.process.stdout.readline()
        self.block(5)
        each = self.block(20)[0] / 1e9
        self.steps = max(1, int(options.seconds / each))
        self.warm = max(1, int(options.warm / each))
        self.command("inject", "--plugin", "python")

    def command(self, *words):
        subprocess.run([self.probing, "-t", str(self.process.pid), *words], check=True,
                       stdout=subprocess.DEVNULL)

    def block(self, steps):
        """CPU ns of a step: of the training thread, of the process."""
        self.process.stdin.write("%d\n" % steps)
        self.process.stdin.flush()
        return [int(word) / steps for word in self.process.stdout.readline().split()]

    def round(self):
        took = [self.block(self.steps)]
        self.command("plugin", "load", "memory")
        took += [self.block(self.warm), self.block(self.steps)]
        self.command("plugin", "stop", "memory")
        self.block(max(1, self.steps // 4))  # the command has taken the caches
        return took + [self.block(self.steps)]

    def samples(self):
        done = subprocess.run([self.probing, "-t", str(self.process.pid), "query", "--format",
                               "csv", "select count(*) from memory.samples"], text=True,
                              stdout=subprocess.PIPE)
        return done.stdout.split()[-1] if done.returncode == 0 else "?"

    def end(self):
        self.process.kill()
        self.process.wait()


def report(rounds):
    for i, which in enumerate(("training thread", "process")):
        base = "%s, %s" % (which, BLOCKS[0])
        figure(base, "us a step", median=statistics.median(r[0][i] for r in rounds) / 1e3)
        for j, name in enumerate(BLOCKS[1:], 1):
            ratios = sorted(r[j][i] / (r[0][i] if j == 3 else (r[0][i] + r[3][i]) / 2)
                            for r in rounds)
            figure("%s, %s" % (which, name), "us a step", against=base,
                   median=statistics.median(r[j][i] for r in rounds) / 1e3,
                   ratio_q1=ratios[len(ratios) // 4], ratio_q3=ratios[-1 - len(ratios) // 4],
                   ratio=statistics.median(ratios), goal=GOAL if j == 2 else None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--probing", default=os.path.join(ROOT, "build", "release", "probing"))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=2.0, help="CPU time of a block")
    parser.add_argument("--warm", type=float, default=10.0, help="CPU time of `just loaded`")
    options = parser.parse_args()
    if options.target:
        return target()
    done = subprocess.run([options.python, "-c", "import torch; print(torch.__version__)"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode:
        skip("%s has no torch" % options.python)
    remark("torch %s" % done.stdout.strip())
    os.environ["PROBING_DATA_DIR"] = tempfile.mkdtemp()
    trained, rounds, loads = Trained(options), [], []
    try:
        for _ in range(options.rounds):
            rounds.append(trained.round())
            loads.append(os.getloadavg()[0])
    except KeyboardInterrupt:
        remark("%d rounds of %d" % (len(rounds), options.rounds))
    finally:
        remark("%s samples in all; load of the machine %.1f to %.1f" % (
            trained.samples(), min(loads or [0]), max(loads or [0])))
        trained.end()
    report(rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
