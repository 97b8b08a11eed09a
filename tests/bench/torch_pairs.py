# SPDX-License-Identifier: Apache-2.0
"""What the torch plugin costs a step, with a confidence: step by step with its hooks and without.

usage: torch_pairs.py [--python EXE] [--probing EXE] [--seconds N] [--only TEXT] [--variant TEXT]

torch_overhead.py loads and stops the plugin between blocks, whose times differ by more than the
plugin costs where a step is long.  Here it stays, and what stands in torch's classes changes hands
before each block: the plugin's hooks, or what stood there before it came.  A block is some steps,
after one to warm up; two neighbours are a pair, and which comes first takes turns.  What is
printed is the median of the pairs' differences in CPU time of the training thread, with the 95 %
interval of it by bootstrap; beside it the whole process, in which the plugin's other threads count.
`none` is without against without: its interval has to hold zero.  What stays on both sides is the
look at autograd's engine, two readings of the clock for each backward.
For comparison: calls times what a call of an empty module costs more.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import torch_overhead as bench  # noqa: E402
from figures import figure, remark  # noqa: E402

VARIANTS = {"none": {}, "probing": {}, "probing, loss": {"variables": "loss,lr,grad_norm"},
            "probing, backward": {"backward": "on"}, "probing, nan": {"detect_nan": "on"}}
SHORT_NS = 5e6  # steps below this: a block has more of them


def stands():
    """The contents of the classes that the plugin puts hooks in."""
    import torch
    from torch._C import _distributed_c10d as dist
    classes = {torch.nn.Module: "__call__", torch.optim.Optimizer: "_optimizer_step_code",
               torch.optim.SGD: "step", torch.optim.AdamW: "step", torch.optim.Adam: "step"}
    found = {(c, name): c.__dict__[name] for c, name in classes.items() if name in c.__dict__}
    found[dist.ProcessGroup, "allreduce"] = dist.ProcessGroup.__dict__["allreduce"]
    found[dist.Work, "wait"] = dist.Work.__dict__["wait"]
    return found


def put(hooks):
    for (owner, name), hook in hooks.items():
        setattr(owner, name, hook)


def block(step, n):
    step()  # CPython forgets what it knew of a class's attributes when one changes hands
    return bench.block(step, n)


def pairs(w, sides, seconds):
    """Pairs of (thread, process) times of a step, ns: with the first of `sides`, with the other."""
    put(sides[1])
    w.step()
    n = 4 if bench.block(w.step, 1)[0] < SHORT_NS else 2
    found, until = [], time.monotonic() + seconds
    while time.monotonic() < until or len(found) < 4:
        times = [None, None]
        for side in (0, 1) if len(found) % 2 else (1, 0):
            put(sides[side])
            times[side] = block(w.step, n)
        found.append(times)
    return found


def target():
    """Lines on stdin: workload TAB seconds TAB none or hooks; on stdout the pairs."""
    workloads, before = bench.make_workloads(), stands()
    print(json.dumps({name: w.calls for name, w in workloads.items()}), flush=True)
    for line in sys.stdin:
        name, seconds, which = line.rstrip("\n").split("\t")
        hooks = stands()
        found = pairs(workloads[name], (before if which == "none" else hooks, before),
                      float(seconds))
        put(hooks)
        print(json.dumps(found), flush=True)


def median_of(differences):
    """The median, and where it lies in 95 of 100 draws of as many."""
    draws = sorted(statistics.median(random.choices(differences, k=len(differences)))
                   for _ in range(1000))
    return statistics.median(differences), draws[25], draws[974]


def tell(name, variant, found, calls, a_call):
    """a_call: what a call of an empty module costs more, ns; None: not known yet.  Gives it."""
    thread = statistics.median(b[0] for _, b in found)
    middle, low, high = median_of([a[0] - b[0] for a, b in found])
    base = "%s: without, beside %s" % (name, variant)
    figure(base, "us a step", median=thread / 1e3, pairs=len(found))
    figure("%s: %s" % (name, variant), "us a step", median=(thread + middle) / 1e3,
           against=base, ratio=1 + middle / thread,
           more_percent=100 * middle / thread, more_percent_low=100 * low / thread,
           more_percent_high=100 * high / thread, more_ns_a_call=middle / calls,
           more_ns_a_call_low=low / calls, more_ns_a_call_high=high / calls,
           more_percent_of_process=100 * statistics.median(a[1] - b[1] for a, b in found) / thread,
           calls_of_empty_percent=100 * calls * a_call / thread if a_call else None)
    return middle / calls


class Target:
    def __init__(self, options):
        self.options = options
        words = [options.python, "-W", "ignore", os.path.abspath(__file__), "--target"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, universal_newlines=True)
        self.calls = json.loads(self.process.stdout.readline())
        self.switch = bench.Switch(options.probing, self.process.pid)
        self.switch.turn({})

    def ask(self, name, variant):
        self.switch.turn(VARIANTS[variant])
        self.process.stdin.write("%s\t%g\t%s\n" % (name, self.options.seconds, variant))
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--probing",
                        default=os.path.join(bench.ROOT, "build", "release", "probing"))
    parser.add_argument("--seconds", type=float, default=20, help="of each line")
    parser.add_argument("--only", default="", help="workloads whose name has this text")
    parser.add_argument("--variant", choices=list(VARIANTS), help="with `none`, this alone")
    options = parser.parse_args()
    if options.target:
        return target()
    bench.need_torch(options.python)
    t, a_call = Target(options), None
    try:
        for name, calls in t.calls.items():
            if options.only not in name:
                continue
            for variant in VARIANTS:
                if options.variant and variant not in ("none", options.variant):
                    continue
                try:
                    found = t.ask(name, variant)
                except subprocess.CalledProcessError:  # it has said why
                    remark("%s is left out: it cannot be set here" % variant)
                    continue
                extra = tell(name, variant, found, calls, a_call if variant == "probing" else None)
                if variant == "probing" and a_call is None:
                    a_call = extra
    except KeyboardInterrupt:
        pass
    finally:
        t.process.kill()
        t.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
