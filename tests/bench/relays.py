# SPDX-License-Identifier: Apache-2.0
"""One statement over ranks behind relays: what the command needs where these merge what they pass,
and where they pass on the rows of each rank.

usage: relays.py [--hosts N] [--rounds N]

N real cores of this machine are asked as N hosts, so N * N ranks behind N relays: a remote shell
that runs what it is given here.  Command, relays and cores share the processors, so only the
command's own processor time and memory are figures.
"""
import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time

from figures import figure

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("PROBING_BUILD", os.path.join(ROOT, "build", "release"))
PROBING = os.path.join(BUILD, "probing")
SHELL = "#!/bin/sh\nshift\nexec sh -c \"$*\"\n"
STATEMENTS = {
    "one row": "select count(*) n, avg(length(value)) a from global.process.envs",
    "first 10 of all": "select _rank, name, length(value) n from global.process.envs order by n "
                       "desc limit 10",
    "distinct rows": "select distinct _rank, name from global.process.envs",
    "all rows": "select _rank, name, value from global.process.envs",
}


def high_water(pid):
    """Bytes at most until now; 0: it is not the command yet, or not any more.  What wait4() says
    begins with what was there before exec()."""
    try:
        with open("/proc/%d/status" % pid) as status:
            lines = dict(line.split(":", 1) for line in status)
    except (OSError, ValueError):
        return 0
    return int(lines.get("VmHWM", "0").split()[0]) * 1024 * (lines["Name"].strip() == "probing")


def ask(members, statement, **env):
    """Processor time, bytes of memory at most, and the exit code."""
    with tempfile.TemporaryFile() as out:
        asker = subprocess.Popen([PROBING, "-t", members, "--timeout", "100s", "query", "--format",
                                  "csv", statement], stdout=out, stderr=subprocess.DEVNULL,
                                 env=dict(os.environ, **env))
        ended, memory = 0, 0
        while ended == 0:
            memory = max(memory, high_water(asker.pid))
            time.sleep(0.005)
            ended, status, used = os.wait4(asker.pid, os.WNOHANG)
        asker.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return used.ru_utime + used.ru_stime, memory, asker.returncode, out.read()


def start(n, job):
    cores = [subprocess.Popen([PROBING, "launch", "--", "sleep", "100000"],
                              env=dict(os.environ, RANK=str(rank), WORLD_SIZE=str(n),
                                       TORCHELASTIC_RUN_ID=job)) for rank in range(n)]
    until = time.monotonic() + 120
    count = "select count(*) n from global.process.envs where name = 'RANK'"
    while ask("job:" + job, count)[3].split() != [b"n", b"%d" % n]:
        if time.monotonic() > until:
            sys.exit("the cores that are to be asked have not answered within 120 s")
    return cores


def measure(members, n, rounds):
    for name, statement in STATEMENTS.items():
        for merge, how in (("1", "merged by relays"), ("0", "not merged")):
            made = [ask(members, statement, PROBING_RELAY_MERGE=merge) for _ in range(rounds)]
            if any(code != 0 for _, _, code, _ in made):
                sys.exit("%s of %d ranks, %s: not all have answered" % (name, n * n, how))
            times = sorted(seconds for seconds, _, _, _ in made)
            figure("%d ranks behind %d relays, %s, %s" % (n * n, n, name, how), "s of a processor",
                   least=times[0], median=times[len(times) // 2])
            figure("%d ranks behind %d relays, %s, %s, memory" % (n * n, n, name, how), "MB",
                   most=max(memory for _, memory, _, _ in made) / 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shell = os.path.join(folder, "shell")
        with open(shell, "w") as script:
            script.write(SHELL)
        os.chmod(shell, 0o755)
        os.environ.update(PROBING_DATA_DIR=folder, PROBING_RSH=shell, PROBING_REMOTE=PROBING,
                          PROBING_RELAY_DEGREE="1000")
        job = "relays-%d" % os.getpid()
        cores = start(options.hosts, job)
        try:
            measure("ssh:h[1-%d]/job:%s" % (options.hosts, job), options.hosts, options.rounds)
        finally:
            for core in cores:
                core.send_signal(signal.SIGKILL)
                core.wait()


if __name__ == "__main__":
    main()
