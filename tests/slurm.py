# SPDX-License-Identifier: Apache-2.0
"""A real SLURM on machines of a test's own (tests/network.py): munge and a slurmd on each,
slurmctld on the first.  All of it ends with its machines."""
import os
import shutil
import subprocess

import pytest
from network import Job
from world import wait_for

DAEMONS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc")
CONF = """ClusterName=probing
SlurmctldHost=node1
SlurmUser=root
SlurmdUser=root
StateSaveLocation=%(tmp)s/state
SlurmdSpoolDir=%(tmp)s/spool-%%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
KillWait=1
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_min_interval=0,batch_sched_delay=0
NodeName=node[1-%(nodes)d] CPUs=16 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
SOCKET = "/run/munge/munge.socket.2"


class Slurm(Job):
    """Job has machines, each with an sshd; here they are a cluster."""

    def __init__(self, tmp, nodes, **ways):
        path = os.environ["PATH"] + ":/usr/sbin"
        missing = [name for name in DAEMONS if not shutil.which(name, path=path)]
        if missing:
            pytest.skip("no SLURM here, %s is missing (Debian: slurm-wlm, munge)" % missing[0])
        super().__init__(tmp, nodes, **ways)
        try:
            self.begin_cluster(nodes)
        except BaseException:
            self.end()
            raise

    def begin_cluster(self, nodes):
        key, conf = self.tmp / "munge.key", self.tmp / "slurm.conf"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        conf.write_text(CONF % {"tmp": self.tmp, "nodes": nodes})
        (self.tmp / "state").mkdir()
        self.env.update(SLURM_CONF=str(conf), PATH=os.environ["PATH"] + ":/usr/sbin")
        everywhere = range(1, nodes + 1)
        # /run is of each machine alone.
        munge = ("mkdir -m 755 /run/munge && cd /run/munge && exec munged -F --key-file=%s "
                 "--log-file=$PWD/log --seed-file=$PWD/seed --pid-file=$PWD/pid" % key)
        daemons = [self.start(n, "sh", "-c", munge) for n in everywhere]
        for n in everywhere:
            (self.tmp / ("spool-node%d" % n)).mkdir()
            wait_for(lambda n=n: self.shell(n, "test -S " + SOCKET).returncode == 0, "munged")
        daemons.append(self.start(1, "slurmctld", "-D", "-f", conf))
        daemons += [self.start(n, "slurmd", "-D", "-N", "node%d" % n, "-f", conf)
                    for n in everywhere]

        def ready():
            for daemon, log in daemons:
                assert daemon.poll() is None, log.read_text()
            return self.shell(1, "sinfo -h -t idle -o %D").stdout.strip() == str(nodes)
        wait_for(ready, lambda: self.shell(1, "sinfo 2>&1; scontrol show node 2>&1").stdout)

    def shell(self, number, text, **more):
        """Run a shell's text there, until it has ended."""
        return subprocess.run(self.network[number].words("sh", "-c", text),
                              env=self.on(number, **more), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True)

    def batch(self, text, *words, user=""):
        """The number of a job that sbatch was given."""
        self.logs += 1
        script = self.tmp / ("batch-%d" % self.logs)
        script.write_text("#!/bin/bash\n" + text)
        script.chmod(0o755)
        done = self.shell(1, "cd /tmp && %s sbatch --parsable -o %s/batch-%%j %s %s" % (
            user, self.tmp, " ".join(map(str, words)), script))
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def wait_steps(self, *steps):
        """Until those run, as squeue calls them."""
        listed = "squeue -s -h -o %i"
        wait_for(lambda: set(steps) <= set(self.shell(1, listed).stdout.split()),
                 lambda: "steps: " + self.shell(1, "squeue; squeue -s; cat %s/batch-*" % self.tmp)
                 .stdout)

    def cancel(self, *jobs):
        self.shell(1, "scancel --signal=KILL --full %s; scancel %s" % ((" ".join(jobs),) * 2))
        wait_for(lambda: not self.shell(1, "squeue -h").stdout.strip(), "no job is left")
