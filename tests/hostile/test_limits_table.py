# SPDX-License-Identifier: Apache-2.0
"""What each part takes of each limit: the table (probing.limits) against a real process, and
docs/life.md against the table."""
import os
import re
import resource

import pytest

from test_limits import MIB, status
from world import DEBIAN_PYTHON, ROOT

PARTS = "python", "profile", "memory", "system", "torch", "nccl", "gpu", "cuda"
SIZES = "address_space", "data", "memory"
RESOURCES = SIZES + ("mappings", "descriptors", "threads", "file_size", "signals")
USED = {"python": [["backtrace"], ["eval", "1 + 1"], ["backtrace"]],
        "profile": [["flamegraph", "-s", "1", "--format", "folded"]],
        "memory": [["memory"]],
        "system": [["query", "select count(*) from process.maps"]]}


def taken(pid):
    """Without the three files, which are a share of what there is."""
    maps = open("/proc/%d/maps" % pid).read()
    files = sum(int(end, 16) - int(start, 16) for start, end in re.findall(
        r"^(\w+)-(\w+) .*/(?:rings|strings|data\.mdb)$", maps, flags=re.M))

    def size(field):
        return int(status(pid, field).split()[0]) * 1024
    return {"address_space": size("VmSize") - files, "data": size("VmData"),
            "memory": size("VmRSS"), "mappings": maps.count("\n"),
            "descriptors": len(os.listdir("/proc/%d/fd" % pid)),
            "threads": int(status(pid, "Threads")),
            "signals": int(status(pid, "SigQ").split("/")[0])}


def limits_of(target):
    """part: {resource: (takes, each_thread)}"""
    parts = {}
    for part, resource, takes, each in target.rows(
            "select part, resource, takes, each_thread from probing.limits"):
        parts.setdefault(part, {})[resource] = (takes, each)
    return parts


@pytest.fixture
def filled(world):
    target = world.python("import threading, time\n"
                          "for i in range(4):\n"
                          "    t = threading.Thread(target=time.sleep, args=(600,), daemon=True)\n"
                          "    t.start()\n"
                          "print('ready', flush=True)\n"
                          "time.sleep(600)\n", python=DEBIAN_PYTHON)
    target.wait_line("ready")
    return target


def test_no_part_takes_more_than_the_table_says(filled):
    def step(*commands):
        """The most that it came to, after any of them."""
        before, most = taken(filled.pid), {}
        for words in commands:
            filled.probing(*words)
            now = taken(filled.pid)
            most = {r: max(now[r] - before[r], most.get(r, 0)) for r in now}
        return most
    seen = {"the core": step(["inject", "-D", "probing.plugins="], ["plugin", "list"],
                             ["query", "select count(*) from generate_series(1, 100000)"])}
    for name in PARTS:
        seen["plugin " + name] = step(["plugin", "load", name], *USED.get(name, []))
    seen["crash reports (crash.handler)"] = step(["config", "set", "crash.handler", "on"])
    seen["listening (server.listen)"] = step(["config", "set", "server.listen", "127.0.0.1:0"])
    table = limits_of(filled)
    for resource, (takes, each) in table.pop("the library").items():
        loader = resource in ("address_space", "data") and resource_stack()
        table["the core"][resource] = (table["the core"][resource][0] + takes + loader, each)
    all_take, all_may = dict.fromkeys(RESOURCES, 0), dict.fromkeys(RESOURCES, 0)
    for part, most in seen.items():
        for resource in RESOURCES[:-2]:  # signals are the user's, of all processes
            takes, each = table[part].get(resource, (0, 0))
            all_take[resource] += most[resource]
            all_may[resource] += takes + 5 * each
            if part == "plugin memory" and resource in SIZES:  # a quarter of what is left
                all_may[resource] += most[resource]
            # Together: which of our threads first calls malloc(), and when, is chance.
            slack = 2 * MIB if resource in SIZES else 2  # what the program does meanwhile
            assert all_take[resource] <= all_may[resource] + slack, (part, resource, seen)
    for part in ("the core", "plugin profile"):  # and not much less
        assert seen[part]["mappings"] * 3 > table[part]["mappings"][0], seen


def resource_stack():
    """The thread that loads the library: glibc's default is what `ulimit -s` says."""
    size = resource.getrlimit(resource.RLIMIT_STACK)[0]
    return 2 * MIB if size == resource.RLIM_INFINITY else size


def test_the_page_shows_the_table(filled):
    """docs/life.md has the rows of probing.limits, in its words."""
    def text(resource, number):
        if resource not in SIZES + ("file_size",):
            return str(number)
        return "%d MiB" % (number >> 20) if number >= MIB else "%d KiB" % (number >> 10)

    def cell(resource, takes, each):
        return " + ".join(([text(resource, takes)] if takes else [])
                          + ([text(resource, each) + " a thread"] if each else []))
    filled.inject()
    for name in PARTS:
        filled.probing("plugin", "load", name)  # torch is not there, and declares all the same
    page = (ROOT / "docs" / "life.md").read_text()
    for part, row in limits_of(filled).items():
        line = "| %s | %s |" % (part, " | ".join(
            cell(r, *row.get(r, (0, 0))) for r in RESOURCES))
        assert line in page, line
