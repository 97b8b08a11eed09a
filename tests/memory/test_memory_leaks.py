# SPDX-License-Identifier: Apache-2.0
"""`memory --leaks`, --mark, --diff, --peak: what grows is named, alone or spread over many stacks;
what is full or goes is not."""
import json
import re

import world as shared

SERVICE = ("import time\n"
           "kept, cache = [], {}\n"
           "def leaking(n): kept.append(bytearray(%d))\n"
           "def caching(n): cache[n %% 50] = bytearray(100000)\n"
           "def working(n): return len(bytearray(300000))\n"
           "def handle(n):\n"
           "    leaking(n)\n"
           "    caching(n)\n"
           "    working(n)\n"
           "for n in range(300): handle(n)\n"  # the cache is full
           "print('ready', flush=True)\n"
           "while True:\n"
           "    n += 1\n"
           "    handle(n)\n"
           "    time.sleep(0.01)\n")
FAST = ("-D", "memory.snapshot_interval=1s", "-D", "memory.sample_bytes=32KB",
        "-D", "memory.max_overhead_pct=0")


def entered(world, leak):
    target = world.python(SERVICE % leak)
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    return target


def snapshots(target):
    return target.rows("select count(distinct snapshot_id) from memory.snapshots where kind = "
                       "'periodic'")[0][0]


def test_a_leak_is_named_with_its_callers(world):
    target = entered(world, 40000)
    done = target.probing("memory", "--leaks", "--since", "1ms")
    assert done.returncode != 0 and "snapshot" in done.stderr, done.stderr

    def found():
        return target.probing("memory", "--leaks", "--since", "30s").stdout
    grows = ("select sum(bytes) > 12e6 from memory.live where function_name = 'leaking'")
    shared.wait_for(lambda: target.rows(grows) == [[True]] and snapshots(target) >= 2,
                    "a leak well above the error of its estimate")
    said = found()
    assert re.search(r"leaking +target-\d+\.py:3 +[\d.]+ MB \+- [\d.]+ MB", said), said
    assert "< handle target-" in said, said
    leaks = said.partition("has grown, but not as a leak does")[0]
    assert "working" not in said and "caching" not in leaks, said
    report = json.loads(target.probing("memory", "--json").stdout)
    assert "leaking" in [one["function_name"] for one in report["alive"]], report
    target.kill()
    assert "leaking" in target.probing("memory", "--leaks", "--since", "30s").stdout


# 300 ways to one function, 300 functions below one caller, and a recursion of any depth: what each
# keeps is on so many stacks that none of them has more than a few samples.  What comes and goes,
# and a cache that replaces its entries, is allocated in as many.
SPREAD = """
import random, time
random.seed(1)
kept, cache = [], {}
def make(n): return bytearray(n)
made = {"make": make}
exec("\\n".join("def way%d(n): return make(n)" % i for i in range(300)), made)
exec("\\n".join("def line%d(n): return bytearray(n)" % i for i in range(300)), made)
exec("\\n".join("def work%d(n): return bytearray(n)" % i for i in range(300)), made)
def pick(kind): return made[kind + str(random.randrange(300))]
def leak_ways(): kept.append(pick("way")(20000))
def leak_lines(): kept.append(pick("line")(20000))
def descend(depth):
    if depth: return descend(depth - 1)
    kept.append(bytearray(20000))
def caching(): cache[random.randrange(100)] = pick("work")(50000)
def working(): return [pick("work")(30000) for i in range(5)]
def step(leak):
    if leak:
        leak_ways()
        leak_lines()
        descend(random.randrange(300))
    caching()
    working()
for n in range(500): step(False)
print("ready", flush=True)
while True:
    step(LEAK)
    n += 1
    if n % 200 == 0: print("steps", n, flush=True)
    time.sleep(0.005)
"""


def spread(world, leak):
    target = world.python(SPREAD.replace("LEAK", leak))
    target.wait_line("ready")
    target.inject("--plugin", "python", "--plugin", "memory", *FAST)
    return target


def test_a_leak_that_is_spread_over_stacks_is_named(world):
    target = spread(world, "True")
    whole = "select sum(bytes) > 60e6 from memory.live"
    shared.wait_for(lambda: target.rows(whole) == [[True]] and snapshots(target) >= 4,
                    "three leaks well above the error of their estimate")
    (most,), = target.rows("select max(b) from (select sum(bytes) as b from memory.live where "
                           "function_name = 'make' group by stack_id) s")

    names = ("make", "below leak_lines", "(below )?descend")

    def found():
        said = target.probing("memory", "--leaks").stdout
        return said if all(re.search("^  %s " % n, said, flags=re.M) for n in names) else None
    said = shared.wait_for(found, "the three leaks, each under its name")
    assert most < 5e6, "no stack is to have much of it"
    # the function that allocates is told, whoever calls it, with the ways to it
    make, = re.findall(r"^  make +.*\n((?:      .*\n)+)", said, flags=re.M)
    assert "leak_ways" in make and re.search(r"by stack: +\d+ % way\d+", make), said
    assert re.search(r"on\s+\d{2,} stacks", make), said
    leaks = said.partition("has grown, but not as a leak does")[0]
    assert "caching" not in leaks and "working" not in said, said
    target.kill()
    assert "below leak_lines" in target.probing("memory", "--leaks").stdout


def test_what_comes_and_goes_on_many_stacks_is_no_leak(world):
    target = spread(world, "False")
    shared.wait_for(lambda: snapshots(target) >= 2, "snapshots")
    steps = int(re.findall(r"^steps (\d+)", target.output(), flags=re.M)[-1])
    # until then all of the cache has been replaced a dozen times
    target.wait_line("^steps %d$" % (steps + 1200), timeout=300)
    done = target.probing("memory", "--leaks")
    assert "nothing grows and stays" in done.stdout.replace("\n", " "), (done.stdout, done.stderr)


def test_what_is_full_or_goes_is_no_leak(world):
    target = entered(world, 0)
    shared.wait_for(lambda: snapshots(target) >= 8 or target.rows(
        "select extract(epoch from now() - since) > 15 from memory.sampling")[0][0], "snapshots")
    done = target.probing("memory", "--leaks", "--since", "10s")
    assert "nothing grows and stays" in done.stdout.replace("\n", " ") or \
        "snapshot" in done.stderr, (done.stdout, done.stderr)


def test_marks_and_the_peak(world):
    target = entered(world, 40000)
    assert "mark before" in target.probing("memory", "--mark", "before").stdout
    alive = "select sum(bytes) from memory.live where function_name = 'leaking'"
    first = target.rows(alive)[0][0] or 0
    shared.wait_for(lambda: (target.rows(alive)[0][0] or 0) > first + (8 << 20), "the leak")
    target.probing("memory", "--mark", "after")
    done = target.probing("memory", "--diff", "before", "after")
    line = re.search(r"^  leaking .*?([\d.]+) MB \+- ([\d.]+) MB$", done.stdout, flags=re.M)
    assert line and float(line.group(1)) > 4, done.stdout
    diff = json.loads(target.probing("memory", "--diff", "before", "after", "--json").stdout)
    assert (diff["from"], diff["to"]) == ("before", "after"), diff
    grown = [one["grown_bytes"] for one in diff["grown"] if one["function_name"] == "leaking"]
    assert sum(grown) > 4 << 20, diff  # its callers may have more stacks than one
    peak = shared.wait_for(lambda: target.probing("memory", "--peak").stdout, "a peak")
    assert "leaking" in peak, peak
    done = target.probing("memory", "--diff", "before", "memory.high")  # made by an event only
    assert done.returncode == 1 and "no such event has come" in done.stderr, done.stderr
    done = target.probing("memory", "--diff", "before", "it's")
    assert done.returncode != 0 and "no mark 'it's'" in done.stderr, done.stderr
    done = target.probing("memory", "--mark", "a b")
    assert done.returncode != 0 and "1 to 63 bytes" in done.stderr, done.stderr
