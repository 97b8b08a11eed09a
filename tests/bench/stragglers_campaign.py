# SPDX-License-Identifier: Apache-2.0
"""Faults put into real gloo jobs of 8 ranks: how often `cluster stragglers` names the rank first,
with the right reason, and how often it is silent about healthy jobs.

usage: stragglers_campaign.py [--seed N] [--jobs N] [--phases N] [--only NAME[,NAME...]]
                             [--python PYTHON] [--keep FOLDER]

Each job is started by torchrun, or as plain processes with its environment, entered by `cluster
attach` while it trains, and goes through some faults and healthy phases, one after the other, of
kinds, ranks, and sizes that the seed chooses.  The first is there before the job is entered and is
asked about as usual; of the others the steps since they began are asked about (`--last`).  Each
phase is one line on standard error: what was put in, what was said, the load; --keep writes there
what the command said (--json) of each that was not as it should be.  The table of slow and lossy
links is made by tests/cluster/test_bad_links.py.
"""
import argparse
import collections
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

from figures import figure, remark, skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))
PROBING = os.path.join(BUILD, "probing")
TARGET = os.path.join(ROOT, "tests", "train", "faulty_rank.py")
RANKS, LIMIT_S = 8, 300
# The least part of a phase, and where signs matter: those of half a minute are looked at.
STEPS, SECONDS, SIGNS_SECONDS = 60, 8, 36
PARTS = ["data", "forward", "backward", "optimizer", "other", "communication"]
# Fault -> (kinds and parts that are right, steps of a phase).
FAULTS = {
    "loader": (["always"], ["data"], STEPS),
    "disk": (["always"], ["data"], STEPS),
    "sleep": (["always"], ["other"], STEPS),
    "forward": (["always"], ["forward"], STEPS),
    "backward": (["always"], ["backward"], STEPS),
    "optimizer": (["always"], ["optimizer"], STEPS),
    "lock": (["always"], ["other"], STEPS),
    "gil": (["always", "starved"], PARTS, STEPS),
    "gc": (["always", "sometimes"], ["other"], 2 * STEPS),
    "checkpoint": (["sometimes"], ["other"], 2 * STEPS),
    "rare": (["sometimes"], ["other"], 2 * STEPS),
    "nice": (["always", "starved"], PARTS, STEPS),
    "throttled": (["always", "starved"], PARTS, STEPS),
    "neighbour": (["always", "starved"], PARTS, STEPS),
}
# Faults of all ranks, and what is none.
HOST = ["nice", "throttled", "neighbour"]  # of jobs that compute: in others they do no harm
HEALTHY = ["none", "none", "uneven", "jitter", "evaluation", "load", "all loader", "all forward",
           "all checkpoint", "all gc"]
SIGNS = """select _rank, sum(delta_runq_wait_ns) * 1.0 / sum(wall_ns) as waits, max(nice) as nice,
 min(cpus_allowed) as cpus, sum(delta_total_ns) * 1.0 / sum(wall_ns) as used,
 sum(delta_invol_ctxt) * 1e9 / sum(wall_ns) as taken, count(*) as looks from global.cpu.utilization
 where scope = 'process' and ts > now() - interval '35 seconds' group by _rank order by 1"""
ROWS = "select _rank, * from global.python.torch_step_timing order by _rank, local_step"
CGROUP = "/sys/fs/cgroup/cpu"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def threads(pid):
    return [int(tid) for tid in os.listdir("/proc/%d/task" % pid)]


def children(pid):
    with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        return [int(word) for word in file.read().split()]


def able_of(python):
    """What there is for an interpreter: "torch", "torchrun"; that of torch 1.13 does not start in
    Python 3.11."""
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    new = done.returncode == 0 and not done.stdout.startswith("1.")
    return ["torch"] * (done.returncode == 0) + ["torchrun"] * new


def cores_of(pid, seconds=3):
    """That a process uses."""
    def used():
        with open("/proc/%d/stat" % pid) as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    before = used()
    time.sleep(seconds)
    return (used() - before) / os.sysconf("SC_CLK_TCK") / seconds


class Failed(Exception):
    pass


def wait_for(condition, what, limit_s=LIMIT_S):
    until = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > until:
            raise Failed("waited %d s for %s" % (limit_s, what))
        time.sleep(0.1)


# ---- a job ----

class Job:
    def __init__(self, python, chance, number, folder, computes):
        self.name, self.folder, self.undo = "campaign-%d-%d" % (os.getpid(), number), folder, []
        self.loop, self.torchrun = chance.choice(["plain", "ddp"]), chance.random() < 0.3
        self.width, self.batch = chance.choice([64, 128, 256, 512]), chance.choice([16, 64, 256])
        if computes:
            self.width, self.batch = 512, 256
        os.mkdir(os.path.join(folder, "data"), mode=0o700)
        with open(os.path.join(folder, "blob"), "wb") as file:
            file.write(bytes(4 << 20))
        self.env = dict({k: v for k, v in os.environ.items() if not k.startswith("PROBING")},
                        PROBING_DATA_DIR=os.path.join(folder, "data"), OMP_NUM_THREADS="1")
        self.log = open(os.path.join(folder, "log"), "w+")
        self.disturbed = False  # by the phase before, from outside
        self.python, self.started, self.pids = python, [], []
        self.torchrun = self.torchrun and "torchrun" in able_of(python)

    def start(self):
        words = ["-W", "ignore", TARGET, self.folder, self.loop, str(self.width),
                 str(self.batch)]
        port, env = free_port(), dict(self.env, MASTER_ADDR="127.0.0.1")
        if self.torchrun:
            self.begin([self.python, "-m", "torch.distributed.run", "--nproc_per_node", str(RANKS),
                        "--rdzv_backend", "c10d", "--rdzv_endpoint", "localhost:0",
                        "--rdzv_id", self.name] + words[2:], env)
        for rank in range(0 if self.torchrun else RANKS):
            self.begin([self.python] + words, dict(
                env, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_PORT=port,
                TORCHELASTIC_RUN_ID=self.name))
        wait_for(lambda: self.ended() or self.steps() > 0, "the job to step")
        if self.ended():
            raise Failed("a rank has ended: " + self.said())
        self.pids = []
        for rank in range(RANKS):
            with open(os.path.join(self.folder, "rank-%d" % rank)) as file:
                self.pids.append(int(file.read()))

    def begin(self, words, env):
        self.started.append(subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL,
                                             stdout=self.log, stderr=self.log,
                                             start_new_session=True))

    def said(self):
        self.log.seek(0)
        return self.log.read()[-2000:]

    def ended(self):
        return any(p.poll() is not None for p in self.started)

    def steps(self):
        try:
            with open(os.path.join(self.folder, "steps-0"), "rb") as file:
                return int.from_bytes(file.read(8), "little")
        except FileNotFoundError:
            return 0

    def probing(self, *words):
        return subprocess.run([PROBING, *words], env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=LIMIT_S)

    def attach(self):
        done = self.probing("cluster", "attach", "--plugin", "torch", "--plugin", "system",
                            "--job", self.name)
        if done.returncode != 0:
            raise Failed(done.stderr)

    def end(self):
        self.restore()
        for process in self.started:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.probing("gc")  # what lies in memory file systems
        for pid in self.pids if self.torchrun else []:
            wait_for(lambda: not os.path.exists("/proc/%d" % pid), "a rank to end with its parent")
        self.log.close()

    # ---- what is put in ----

    def put(self, said):
        """In the job, or around it."""
        path = os.path.join(self.folder, "fault.json")
        with open(path + ".new", "w") as file:
            json.dump(said, file)
        os.replace(file.name, path)

    def outside(self, name, who, chance):
        if name == "load":
            self.burn(4, {*os.sched_getaffinity(0)})
        if name == "nice":
            self.renice(self.pids[who], chance.randint(10, 19))
            self.undo.append(lambda: self.renice(self.pids[who], 0))
        if name == "neighbour":
            all_cpus = os.sched_getaffinity(0)
            cpu = {chance.choice(sorted(all_cpus))}
            for tid in threads(self.pids[who]):
                os.sched_setaffinity(tid, cpu)
            self.burn(8, cpu)
            self.undo.append(lambda: [os.sched_setaffinity(tid, all_cpus)
                                      for tid in threads(self.pids[who])])
        if name == "throttled":
            group = os.path.join(CGROUP, self.name)
            os.mkdir(group)
            quota = 100000 * chance.uniform(0.3, 0.6) * cores_of(self.pids[who])
            self.write(group, "cpu.cfs_quota_us", str(max(1000, round(quota))))
            self.write(group, "cgroup.procs", str(self.pids[who]))
            self.undo.append(lambda: self.leave(group, self.pids[who]))

    def renice(self, pid, nice):
        for tid in threads(pid):
            os.setpriority(os.PRIO_PROCESS, tid, nice)
        # Where a session is a group to the scheduler, nice counts within it only, and this among
        # sessions; each rank has its own.
        if not self.torchrun and os.path.exists("/proc/%d/autogroup" % pid):
            self.write("/proc/%d" % pid, "autogroup", str(nice))

    @staticmethod
    def write(group, name, text):
        with open(os.path.join(group, name), "w") as file:
            file.write(text)

    def leave(self, group, pid):
        self.write(CGROUP, "cgroup.procs", str(pid))
        os.rmdir(group)

    def burn(self, n, cpus):
        for _ in range(n):
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                                    preexec_fn=lambda: os.sched_setaffinity(0, cpus))
            self.undo.append(busy.wait)
            self.undo.append(busy.kill)

    def restore(self):
        while self.undo:
            self.undo.pop()()


# ---- a phase ----

def choose(chance, name, who):
    """Orders to the ranks; share: of a step, every: steps."""
    return {"name": name.split()[-1] if name not in ["load"] + HOST
            else "none", "who": "all" if who is None else [who], "share": chance.uniform(0.2, 0.5),
            "every": chance.randint(12, 25), "objects": chance.choice([300000, 600000, 1000000])}


def run_phase(job, chance, name, who, is_first, keep):
    """(what it came to, what was said)"""
    said = choose(chance, name, who)
    job.put(said)
    if is_first:
        job.start()
    job.outside(name, who, chance)
    if is_first:
        job.attach()
        if name == "rare":
            job.put(said)  # it may have been before, and nobody looked
    switched = job.steps()  # not all ranks in the same step, and a heap takes a while
    wait_for(lambda: job.ended() or job.steps() > switched + 5, "steps")
    began, begin = job.steps(), time.monotonic()
    wanted = FAULTS[name][2] if name in FAULTS else STEPS
    seconds = SIGNS_SECONDS if name in HOST or job.disturbed else SECONDS
    job.disturbed = name in HOST
    wait_for(lambda: job.ended() or (job.steps() - began > wanted + 10 and
                                     time.monotonic() - begin > seconds), "steps")
    load = os.getloadavg()[0]
    last = ["--last", str(job.steps() - began)]
    done = job.probing("cluster", "stragglers", "--json", "--job", job.name,
                       *([] if is_first else last))
    answer = json.loads(done.stdout) if done.returncode == 0 else {"outcome": done.stderr}
    result = judge(name, who, answer)
    first = (answer.get("stragglers") or [{}])[0]
    print("%-14s %-5s %d/%d rank %-4s share %.2f %s: %s: %s rank %s %s late %.3f of %.3f, %d "
          "steps, load %.1f" % (
              name, job.loop, job.width, job.batch, who, said["share"],
              "first" if is_first else "later", result, first.get("kind", answer["outcome"]),
              first.get("rank"), first.get("part"), first.get("late_sec", 0),
              answer.get("step_sec", 0), answer.get("steps", 0), load),
          file=sys.stderr, flush=True)
    if keep and result not in ("first", "silent"):
        stamp = "%s-%s-%s-%d" % (result.replace(" ", "_"), name.replace(" ", "_"), who, began)
        path = os.path.join(keep, job.name + "-" + stamp)
        with open(path + ".json", "w") as file:
            json.dump({"put": said, "who": who, "loop": job.loop, "answer": answer,
                       "signs": job.probing("-t", "job:" + job.name, "query", SIGNS).stdout},
                      file, indent=1)
        with open(path + ".csv", "w") as file:
            file.write(job.probing("-t", "job:" + job.name, "query", "-f", "csv", ROWS).stdout)
    job.restore()
    return result


def judge(name, who, answer):
    found = answer.get("stragglers", [])
    if answer["outcome"] not in ("named", "silent"):
        return "no answer"
    if who is None:
        return "accused" if found else "silent"
    ranks = [one["rank"] for one in found]
    if who not in ranks:
        return "others only" if found else "not named"
    if ranks[0] != who:
        return "second"
    kinds, parts, _ = FAULTS[name]
    right = found[0]["kind"] in kinds and found[0]["part"] in parts
    return "first" if right else "wrong reason"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=13)
    parser.add_argument("--phases", type=int, default=8, help="of a job")
    parser.add_argument("--only", type=lambda text: text.split(","))
    parser.add_argument("--python", default="/usr/bin/python3")
    parser.add_argument("--keep")
    options = parser.parse_args()
    if not able_of(options.python):
        skip("no torch for " + options.python)
    if os.geteuid() != 0 or not os.path.exists(os.path.join(CGROUP, "cpu.cfs_quota_us")):
        FAULTS.pop("throttled")
        remark("no throttled ranks: that takes root and a cgroup of version 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started ends with us
    chance = random.Random(options.seed)
    bags = [[], []]
    results = collections.defaultdict(collections.Counter)

    def draw(healthy):  # each kind as often as any other
        if not bags[healthy]:
            bags[healthy] = [n for n in (HEALTHY if healthy else FAULTS)
                             if not options.only or n in options.only]
            chance.shuffle(bags[healthy])
        return bags[healthy].pop() if bags[healthy] else None
    for number in range(options.jobs):
        with tempfile.TemporaryDirectory(
                prefix="campaign-", ignore_cleanup_errors=True) as folder:
            turns = [(phase + number) % 2 == 1 for phase in range(options.phases)]
            names = [draw(healthy) or draw(not healthy) for healthy in turns]
            job = Job(options.python, chance, number, folder, bool({*HOST} & {*names}))
            try:
                for phase, name in enumerate(names):
                    who = None if name in HEALTHY else chance.randrange(RANKS)
                    results[name][run_phase(job, chance, name, who, phase == 0, options.keep)] += 1
            except (Failed, OSError, subprocess.TimeoutExpired) as failed:
                remark("job %d: %s" % (number, failed))
            finally:
                job.end()
    report(results)


def report(results):
    for group, names in (("fault", FAULTS), ("healthy", dict.fromkeys(HEALTHY))):
        whole = sum((results[name] for name in names), collections.Counter())
        for name, counts in [(n, results[n]) for n in names] + [("all of these", whole)]:
            if sum(counts.values()):
                figure("%s: %s" % (group, name), "phases",
                       **{key.replace(" ", "_"): n for key, n in [
                           ("of", sum(counts.values())), *sorted(counts.items())]})


if __name__ == "__main__":
    main()
