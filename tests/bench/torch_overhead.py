# SPDX-License-Identifier: Apache-2.0
"""What the torch plugin costs, beside what others cost: interleaved on/off, all in one run.

usage: torch_overhead.py [--python EXE] [--probing EXE] [--rust DIR] [--rounds N] [--only TEXT]

A target process runs blocks of one workload; between blocks the plugin is loaded, set and unloaded
by the command, or hooks of torch's own are registered and removed, or its profiler runs (without
what it does at its end).  A second process does the same with the Rust probing, which has our
package's name: DIR is made by `pip install --target DIR probing==0.2.4`; it needs torch 2.  Each
round runs every variant once, in turn, so that a machine that gets slower does so for all; and each
is compared with `none` of its own process and round.  Printed are medians over the rounds, in CPU
time of the training thread (others on the machine do not count then) and of the whole process (our
own threads count too).  `none again` is the same against itself: below its spread no number means
anything.
"""
import argparse
import collections
import os
import statistics
import subprocess
import sys
import time

from figures import figure, remark, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SWITCHES = {"probing": {}, "probing, backward": {"backward": "on"},
            "probing, nan": {"detect_nan": "on"}, "probing, GPU memory": {"memory": "on"},
            "probing, 2 exprs": {"variables": "n@block,missing@nowhere"},
            "probing, loss": {"variables": "loss,lr,grad_norm"},
            "probing, not sampled": {"sample_rate": "0"}}
OFF = {"backward": "off", "detect_nan": "off", "memory": "off", "variables": "", "sample_rate": "1"}
OTHERS = ("torch hooks, no-op", "torch hooks, clock", "torch.profiler")
RUST = {"Rust probing, 100 %": "random:1.0", "Rust probing, 5 %": "random:0.05"}
MODULES = 50
GOALS = {("50 empty modules", "probing"): "100 ns a call more"}


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
    """The reason why it ends, or None."""
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


class Rust:
    """The Rust probing in this process: its own hooks, put in by its own way, and taken out."""

    def __init__(self):
        import probing
        from probing.ext import torch as part
        from probing.profiling import torch as hooks
        self.config, self.part, self.hooks = probing.config, part, hooks
        part.init()

    def turn(self, spec, optimizers):
        """It puts its hooks in at a step's end, for all models there are; None: off."""
        self.hooks.uninstall_hooks()
        self.part.hooks.clear()
        self.config.set("probing.torch.profiling", spec or "off")
        if not spec:
            self.part.hooks.update({optimizer: None for optimizer in optimizers})


def alone():
    """One rank of a group of its own."""
    import torch.distributed as dist
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    return dist


class Workload:
    """One kind of step; every one ends with an optimizer's, for that is where settings change."""

    def __init__(self, optimizer, work, steps, calls):
        self.optimizer, self.work, self.steps, self.calls = optimizer, work, steps, calls

    def step(self):
        loss = self.work()  # noqa: F841 torch.variables finds it here while the optimizer steps
        self.optimizer.step()


def make_workloads():
    import torch
    from torch import nn
    sys.path.insert(0, os.path.join(ROOT, "tests", "train"))
    import tiny_transformer
    torch.manual_seed(0)
    torch.set_num_threads(1)

    class Empty(nn.Module):
        def forward(self, x):
            return x

    def idle():
        return torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)

    empty = nn.Sequential(*[Empty() for _ in range(MODULES - 1)])
    linear = nn.Sequential(*[nn.Linear(16, 16) for _ in range(MODULES - 1)])
    model = tiny_transformer.TinyTransformer()
    loss_of = nn.CrossEntropyLoss()
    x, ones, dist = torch.randn(1, 16), torch.ones(256), alone()
    sgd = torch.optim.SGD(linear.parameters(), lr=1e-6)
    tiny = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    pairs = torch.randn(8, 2)
    sums = pairs.sum(1, keepdim=True)
    sgd_tiny = torch.optim.SGD(tiny.parameters(), lr=1e-3)
    adam = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def forward_empty():
        for _ in range(10):
            empty(x)

    def forward_linear():
        with torch.no_grad():
            linear(x)

    def train_linear():
        sgd.zero_grad()
        linear(x).sum().backward()

    def train_tiny():
        sgd_tiny.zero_grad()
        loss = ((tiny(pairs) - sums) ** 2).mean()
        loss.backward()
        return loss

    def train_transformer():
        tokens, wanted = tiny_transformer.batch(1)
        adam.zero_grad()
        hidden = model(tokens).reshape(-1, tiny_transformer.VOCABULARY)
        loss_of(hidden, wanted.reshape(-1)).backward()

    def reduce():
        for _ in range(10):
            dist.all_reduce(ones)

    calls = sum(1 for m in model.modules())
    return {
        "50 empty modules": Workload(idle(), forward_empty, 100, 10 * MODULES),
        "50 x Linear(16), forward": Workload(idle(), forward_linear, 400, MODULES),
        "50 x Linear(16), training": Workload(sgd, train_linear, 40, MODULES),
        "4 modules, training": Workload(sgd_tiny, train_tiny, 200, 4),
        "transformer, training": Workload(adam, train_transformer, 6, calls),
        "10 x all_reduce of 1 KiB": Workload(idle(), reduce, 60, 10),
    }


def block(step, n):
    """CPU time of a step, ns: of the training thread, and of the whole process with our threads."""
    thread, process = time.thread_time_ns(), time.process_time_ns()
    for _ in range(n):
        step()
    return (time.thread_time_ns() - thread) / n, (time.process_time_ns() - process) / n


def target(rust):
    """Lines on stdin: variant TAB workload; a line on stdout: CPU times of a step, ns."""
    if rust:
        sys.path.insert(0, rust)
    workloads = make_workloads()
    import torch
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    rust = Rust() if rust else None
    print("\t".join([kind] + ["%s|%d" % (name, w.calls) for name, w in workloads.items()]),
          flush=True)
    for line in sys.stdin:
        variant, name = line.rstrip("\n").split("\t")
        w = workloads[name]
        handles = add_hooks(variant)
        if rust:
            rust.turn(RUST.get(variant), [other.optimizer for other in workloads.values()])
        block(w.step, max(3, w.steps // 10))
        end = profiler_of_torch(variant)
        took = block(w.step, w.steps)
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


class Process:
    """One target, and what it has taken: times[workload][variant], a pair for each round."""

    def __init__(self, options, variants, rust=None):
        words = [options.python, "-W", "ignore", os.path.abspath(__file__), "--target"]
        self.process = subprocess.Popen(words + (["--rust", rust] if rust else []),
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, universal_newlines=True)
        first = self.process.stdout.readline().rstrip("\n").split("\t")
        self.kind, self.variants = first[0], [v for v in variants if self.can(v, first[0])]
        calls = dict(word.split("|") for word in first[1:])
        self.calls = {name: int(n) for name, n in calls.items() if options.only in name}
        self.switch = None if rust else Switch(options.probing, self.process.pid)
        self.times = {name: {v: [] for v in self.variants} for name in self.calls}

    @staticmethod
    def can(variant, kind):
        if variant.endswith("GPU memory") and kind != "cuda":
            remark("%s is left out: there is no GPU" % variant)
            return False
        return True

    def turn(self, variant):
        """False: the plugin cannot do that with this torch, and has said why."""
        try:
            if self.switch:
                self.switch.turn(SWITCHES.get(variant))
            return True
        except subprocess.CalledProcessError:
            remark("%s is left out: it cannot be set here" % variant)
            self.variants.remove(variant)
            return False

    def measure(self):
        """One round."""
        for variant in list(self.variants):
            if not self.turn(variant):
                continue
            for name in self.times:
                self.process.stdin.write("%s\t%s\n" % (variant, name))
                self.process.stdin.flush()
                took = self.process.stdout.readline().split()
                self.times[name][variant].append(tuple(float(t) for t in took))

    def end(self):
        self.process.kill()
        self.process.wait()

    def report(self, name, who=""):
        """who: put before the names of figures, where two processes have a `none`."""
        times, base = self.times[name], "%s: %snone" % (name, who)
        none = statistics.median(thread for thread, _ in times["none"])
        figure(base, "us a step", median=none / 1e3, calls=self.calls[name])
        for variant in [v for v in self.variants[1:] if times[v]]:
            pairs = list(zip(times[variant], times["none"]))
            extra = sorted(a[0] - b[0] for a, b in pairs)
            all_threads = statistics.median(a[1] - b[1] for a, b in pairs)
            quarter, n = len(extra) // 4, self.calls[name]
            figure("%s: %s%s" % (name, who, variant), "us a step",
                   median=(none + statistics.median(extra)) / 1e3,
                   against=base, ratio=1 + statistics.median(extra) / none,
                   goal=GOALS.get((name, variant)),
                   more_ns_a_call=statistics.median(extra) / n,
                   more_ns_a_call_q1=extra[quarter] / n, more_ns_a_call_q3=extra[-1 - quarter] / n,
                   more_ns_a_call_least=(min(a[0] for a in times[variant])
                                         - min(b[0] for b in times["none"])) / n,
                   more_percent_of_process=100 * all_threads / none)


def need_torch(python):
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if done.returncode:
        skip("%s has no torch" % python)
    remark("torch %s" % done.stdout.strip())


def begin(options):
    processes = [Process(options, ("none", "none again", *SWITCHES, *OTHERS))]
    rust = options.rust and os.path.abspath(options.rust)
    if not rust:
        remark("the Rust probing is left out: no --rust DIR")
        return processes
    try:
        processes.append(Process(options, ("none", *RUST), rust))
    except ValueError:
        remark("the Rust probing is left out: it does not begin with this Python and torch")
    return processes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--probing", default=os.path.join(ROOT, "build", "release", "probing"))
    parser.add_argument("--rust", help="a folder that has the Rust probing of PyPI")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="workloads whose name has this text")
    options = parser.parse_args()
    if options.target:
        return target(options.rust)
    need_torch(options.python)
    processes = begin(options)
    done = 0
    try:
        for done in range(1, options.rounds + 1):
            for process in processes:
                process.measure()
    except KeyboardInterrupt:
        remark("%d rounds of %d" % (done - 1, options.rounds))
    finally:
        for process in processes:
            process.end()
    for name in processes[0].calls:
        for process, who in zip(processes, ("", "Rust, ")):
            process.report(name, who)
    return 0


if __name__ == "__main__":
    sys.exit(main())
