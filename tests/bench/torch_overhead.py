# SPDX-License-Identifier: Apache-2.0
"""What the torch plugin costs, beside torch's own hooks: interleaved on/off in one process.

usage: torch_overhead.py [--python EXE] [--probing EXE] [--rounds N] [--only TEXT]

A target process runs blocks of one workload; between blocks the plugin is loaded, set and unloaded
by the command, or hooks of torch's own are registered and removed, or its profiler runs (without
what it does at its end).  Each round runs every variant
once, in turn, so that a machine that gets slower does so for all.  Printed are medians over the
rounds of (variant - none of the same round), in CPU time of the training thread (others on the
machine do not count then) and of the whole process (our own threads count too).  `none again` is
the same against itself: below its spread no number means anything.
"""
import argparse
import collections
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SWITCHES = {"probing": {}, "probing, backward": {"backward": "on"}, "probing, nan": {"nan": "on"},
            "probing, 2 exprs": {"exprs": "n@block,missing@nowhere"},
            "probing, not sampled": {"sample_rate": "0"}}
OFF = {"backward": "off", "nan": "off", "exprs": "", "sample_rate": "1"}
VARIANTS = ("none", "none again", *SWITCHES, "torch hooks, no-op", "torch hooks, clock",
            "torch.profiler")
MODULES = 50


def nothing(*_):
    return None


def clock_hooks():
    """The least that a pure Python tracer does."""
    events = collections.deque(maxlen=100000)
    note, now = events.append, time.perf_counter_ns
    return (lambda module, inputs: note((now(), id(module)))), \
        (lambda module, inputs, output: note((now(), id(module))))


def add_hooks(variant):
    from torch.nn.modules import module
    if not variant.startswith("torch hooks"):
        return []
    before, after = clock_hooks() if variant.endswith("clock") else (nothing, nothing)
    return [module.register_module_forward_pre_hook(before),
            module.register_module_forward_hook(after)]


def profiler_of_torch(variant):
    """What ends it, or None."""
    if variant != "torch.profiler":
        return None
    import torch
    from torch.autograd import profiler
    profile = profiler.profile(use_kineto=True)
    profile._prepare_trace()
    profile._start_trace()

    def end():
        torch.autograd._disable_profiler()
        getattr(profiler, "_run_on_profiler_stop", nothing)()
    return end


def alone():
    """One rank of a group of its own."""
    import torch.distributed as dist
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    return dist


def make_workloads():
    """name -> (function of one step, steps in a block, module calls in a step)"""
    import torch
    from torch import nn
    sys.path.insert(0, os.path.join(ROOT, "tests", "train"))
    import tiny_transformer
    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Empty(nn.Module):
        def forward(self, x):
            return x

    empty = nn.Sequential(*[Empty() for _ in range(MODULES - 1)])
    linear = nn.Sequential(*[nn.Linear(16, 16) for _ in range(MODULES - 1)])
    x = torch.randn(1, 16)

    def train_linear():
        optimizer.zero_grad()
        linear(x).sum().backward()
        optimizer.step()

    def forward_linear():
        with torch.no_grad():
            linear(x)

    def reduce():
        for _ in range(10):
            dist.all_reduce(ones)

    dist, ones = alone(), torch.ones(256)
    optimizer = torch.optim.SGD(linear.parameters(), lr=1e-6)
    model = tiny_transformer.TinyTransformer()
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loss_of = nn.CrossEntropyLoss()
    calls = sum(1 for m in model.modules())
    return {
        "50 empty modules, forward": (lambda: empty(x), 3000, MODULES),
        "50 x Linear(16), batch 1, forward": (forward_linear, 600, MODULES),
        "50 x Linear(16), batch 1, train step": (train_linear, 40, MODULES),
        "transformer, train step": (
            lambda: tiny_transformer.train_step(model, loss_of, adam, 1), 6, calls),
        "10 x all_reduce of 1 KiB, one rank": (reduce, 60, 10),
    }


def block(step, n):
    """CPU time of a step, ns: of the training thread, and of the whole process with our threads."""
    thread, process = time.thread_time_ns(), time.process_time_ns()
    for _ in range(n):
        step()
    return (time.thread_time_ns() - thread) / n, (time.process_time_ns() - process) / n


def target():
    """Lines on stdin: variant TAB workload; a line on stdout: CPU times of a step, ns."""
    workloads = make_workloads()
    print("\t".join("%s|%d" % (name, w[2]) for name, w in workloads.items()), flush=True)
    for line in sys.stdin:
        variant, name = line.rstrip("\n").split("\t")
        step, n, _ = workloads[name]
        handles = add_hooks(variant)
        block(step, max(1, n // 10))
        end = profiler_of_torch(variant)
        took = block(step, n)
        if end:
            end()
        print("%f %f" % took, flush=True)
        for handle in handles:
            handle.remove()


class Switch:
    """Loads and unloads the plugin in the target, by the command."""

    def __init__(self, probing, pid):
        self.probing, self.pid, self.on = probing, str(pid), False
        self.run("inject")

    def run(self, *words):
        subprocess.run([self.probing, "-t", self.pid] + list(words), check=True,
                       stdout=subprocess.DEVNULL)

    def turn(self, settings):
        on = settings is not None
        if on != self.on:
            self.run("plugin", "load" if on else "stop", "torch")
            self.on = on
        for name, value in dict(OFF, **settings).items() if on else ():
            self.run("config", "torch.%s=%s" % (name, value))


def measure(process, switch, times, rounds):
    """Fill times[workload][variant]: CPU times of a step, a pair for each round."""
    for _ in range(rounds):
        for variant in VARIANTS:
            switch.turn(SWITCHES.get(variant))
            for name in times:
                process.stdin.write("%s\t%s\n" % (variant, name))
                process.stdin.flush()
                times[name][variant].append(
                    tuple(float(t) for t in process.stdout.readline().split()))


def report(times, calls):
    for name, variants in times.items():
        none = statistics.median(thread for thread, _ in variants["none"])
        print("%s: %.1f us a step, %d calls" % (name, none / 1e3, calls[name]))
        for variant in VARIANTS[1:]:
            pairs = list(zip(variants[variant], variants["none"]))
            extra = sorted(a[0] - b[0] for a, b in pairs)
            all_threads = statistics.median(a[1] - b[1] for a, b in pairs)
            quarter = len(extra) // 4
            print("    %-20s %+8.2f %%  %+8.1f ns a call (middle half %+.1f to %+.1f)"
                  "   process %+7.2f %%" % (
                      variant, 100 * statistics.median(extra) / none,
                      statistics.median(extra) / calls[name], extra[quarter] / calls[name],
                      extra[-1 - quarter] / calls[name], 100 * all_threads / none))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--probing", default=os.path.join(ROOT, "build", "release", "probing"))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="workloads whose name has this text")
    options = parser.parse_args()
    if options.target:
        return target()
    process = subprocess.Popen(
        [options.python, "-W", "ignore", os.path.abspath(__file__), "--target"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
    try:
        calls = dict(w.split("|") for w in process.stdout.readline().rstrip("\n").split("\t"))
        calls = {name: int(n) for name, n in calls.items() if options.only in name}
        switch = Switch(options.probing, process.pid)
        times = {name: {v: [] for v in VARIANTS} for name in calls}
        try:
            measure(process, switch, times, options.rounds)
        except KeyboardInterrupt:
            print("%d rounds of %d" % (len(times[max(times)][VARIANTS[-1]]), options.rounds))
        report(times, calls)
    finally:
        process.kill()
        process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
