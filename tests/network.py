# SPDX-License-Identifier: Apache-2.0
"""Machines of a test's own and the network between them: each has its own processes, host name,
/etc/hosts and address, and one cable to a switch that delays, loses, throttles and cuts.

A machine is a set of namespaces.  Its cable is a tun device whose other end the switch holds: a
process that takes packets from one and puts them into another when they are due.  (sch_netem does
the same where a kernel has it.)  All of it ends with the test, however that ends."""
import ctypes
import fcntl
import heapq
import json
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from world import CLI, LIMIT, World, wait_for

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
PREFIX = "10.89.0."
PACKET = 1600      # bytes: a device of Ethernet's size
BACKLOG = 1 << 18  # bytes that wait before a slow cable; what comes then is lost, as by a router


# ---- the switch ----

def plug(pid, number):
    """The switch's end of that machine's cable; sets up its addresses."""
    with open("/proc/%d/ns/net" % pid) as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", b"cable", IFF_TUN | IFF_NO_PI))
    for words in ("link set lo up", "address add %s%d/24 dev cable" % (PREFIX, number),
                  "link set cable up"):
        subprocess.run(["ip", *words.split()], check=True)
    return end


class Switch:
    """Cables by the number of their machine, from 1 on: the last byte of its address."""

    def __init__(self, pids, seed):
        self.ends = {n: plug(pid, n) for n, pid in enumerate(pids, 1)}
        self.numbers = {end: n for n, end in self.ends.items()}
        self.ways = {(a, b): {"delay": 0.0, "jitter": 0.0, "loss": 0.0, "rate": 0.0, "free": 0.0}
                     for a in self.ends for b in self.ends}
        self.cut, self.due, self.count = set(), [], 0
        self.chance = random.Random(seed)

    def change(self, said):
        """{"cut": [NUMBER ...]} or {"from": [...], "to": [...], "delay": S, ...}."""
        if "cut" in said:
            self.cut = set(said["cut"])
            return
        for pair in ((a, b) for a in said["from"] for b in said["to"]):
            self.ways[pair].update({k: v for k, v in said.items() if k not in ("from", "to")})

    def take(self, here, packet):
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[16:19] != bytes([10, 89, 0]):
            return
        there, now = packet[19], time.monotonic()
        way = self.ways.get((here, there))
        if way is None or self.is_cut(here, there) or self.chance.random() < way["loss"]:
            return
        if way["rate"]:
            begin = max(now, way["free"])
            if (begin - now) * way["rate"] > 8 * BACKLOG:
                return
            way["free"] = now = begin + 8 * len(packet) / way["rate"]
        self.count += 1  # who came first leaves first
        at = now + way["delay"] + self.chance.random() * way["jitter"]
        heapq.heappush(self.due, (at, self.count, here, there, packet))

    def is_cut(self, here, there):
        return here != there and (here in self.cut or there in self.cut)

    def deliver(self):
        while self.due and self.due[0][0] <= time.monotonic():
            _, _, here, there, packet = heapq.heappop(self.due)
            if not self.is_cut(here, there):
                try:
                    os.write(self.ends[there], packet)
                except OSError:
                    pass  # it is full, or its machine has gone: a packet is lost

    def run(self, control):
        poll = select.poll()
        for fd in [control, *self.numbers]:
            poll.register(fd, select.POLLIN)
        print(json.dumps("ready"), flush=True)
        while True:
            wait = 1000 * (self.due[0][0] - time.monotonic()) if self.due else None
            for fd, _ in poll.poll(max(0, wait) if wait is not None else None):
                if fd == control:
                    line = sys.stdin.buffer.raw.readline()
                    if not line:
                        return
                    self.change(json.loads(line))
                    print(json.dumps("done"), flush=True)
                    continue
                for _ in range(64):  # of one cable, before others get their turn
                    try:
                        self.take(self.numbers[fd], os.read(fd, PACKET))
                    except OSError:
                        break
            self.deliver()


# ---- for tests ----

class Machine:
    """One machine; `name` is its host name, which all of them know, `number` counts from 1."""

    def __init__(self, number, hosts):
        self.number, self.name, self.address = number, "node%d" % number, PREFIX + str(number)
        # PID 1 there: with it all else ends, and it ends with the pipe to us.
        self.first = subprocess.Popen(
            ["unshare", "--fork", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--mount",
             "sh", "-c", 'hostname "$0" && mount --bind "$1" /etc/hosts && mount -t tmpfs x /run'
             ' && mkdir /run/sshd && { [ ! -e "$2" ] || mount --bind /dev/null "$2"; } && echo up'
             ' && cat', self.name, str(hosts), os.path.expanduser("~root/.bashrc")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self):
        if self.first.stdout.readline() != "up\n":
            pytest.skip("no machines of our own here: " + self.first.stderr.read().strip())
        with open("/proc/%d/task/%d/children" % (self.first.pid, self.first.pid)) as children:
            self.pid = int(children.read())

    def words(self, *argv):
        """argv, to run there."""
        return ["nsenter", "-t", str(self.pid), "-n", "-u", "-i", "-m", "-p", *map(str, argv)]

    def end(self):
        self.first.stdin.close()
        self.first.wait()
        self.first.stdout.close()
        self.first.stderr.close()


class Network:
    """`nodes` machines.  What set() says of a way holds until it is said anew: delay_ms, jitter_ms,
    loss (of 1) and rate_kbit (0: any), each of one direction."""

    def __init__(self, nodes, hosts, seed=1, **ways):
        missing = [p for p in ("ip", "unshare", "nsenter") if not shutil.which(p)]
        if os.geteuid() != 0 or missing or not os.path.exists("/dev/net/tun"):
            pytest.skip("machines of our own need root, /dev/net/tun, ip, unshare and nsenter")
        hosts.write_text("127.0.0.1 localhost\n" + "".join(
            "%s%d node%d\n" % (PREFIX, n, n) for n in range(1, nodes + 1)))
        self.machines, self.switch = [Machine(n, hosts) for n in range(1, nodes + 1)], None
        try:
            for machine in self.machines:
                machine.wait()
            self.switch = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(seed),
                 *(str(m.pid) for m in self.machines)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if not self.switch.stdout.readline():
                pytest.skip("no tun devices here: " + self.switch.stderr.read().strip())
            self.set(**ways)
        except BaseException:
            self.end()
            raise

    def __getitem__(self, number):
        return self.machines[number - 1]

    def tell(self, **said):
        self.switch.stdin.write(json.dumps(said) + "\n")
        self.switch.stdin.flush()
        assert self.switch.stdout.readline(), self.switch.stderr.read()

    def set(self, here=None, there=None, delay_ms=0, jitter_ms=0, loss=0, rate_kbit=0):
        """All ways from machine `here` to `there`; None: from each."""
        everybody = [m.number for m in self.machines]
        pick = lambda m: [m.number] if m else everybody  # noqa: E731
        self.tell(**{"from": pick(here), "to": pick(there), "delay": delay_ms / 1000,
                     "jitter": jitter_ms / 1000, "loss": loss, "rate": rate_kbit * 1000})

    def cut(self, *machines):
        """From now on nothing comes through their cables; without a name: everything does again."""
        self.tell(cut=[m.number for m in machines])

    def end(self):
        for machine in self.machines:
            machine.end()
        if self.switch:
            self.switch.communicate()


class Job:
    """A network whose machines have an sshd and a data directory each, and `probing` on them."""

    def __init__(self, tmp, nodes, **ways):
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        if not shutil.which("ssh") or not os.path.exists(sshd):
            pytest.skip("no ssh and sshd here (Debian: openssh-client, openssh-server)")
        self.tmp, self.name = tmp, "net-%d" % os.getpid()
        self.logs, self.started = 0, []
        self.network = Network(nodes, tmp / "hosts", **ways)
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp / name)],
                           check=True)
        shutil.copy(tmp / "user.pub", tmp / "keys")
        (tmp / "keys").chmod(0o600)
        (tmp / "sshd_config").write_text(
            "HostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin yes\nUseDNS no\n" % (tmp / "host", tmp / "keys"))
        rsh = ("ssh -T -F none -o BatchMode=yes -o ConnectTimeout=10 -o StrictHostKeyChecking=no "
               "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i %s" % (tmp / "user"))
        remote = tmp / "remote"  # what a login shell would have set
        remote.write_text("#!/bin/sh\nexport PROBING_DATA_DIR=%s/data-$(hostname) PROBING_RSH='%s' "
                          "PROBING_REMOTE=%s\n[ ! -e %s/more-$(hostname) ] || . %s/more-$(hostname)"
                          "\nexec %s \"$@\"\n" % (tmp, rsh, remote, tmp, tmp, CLI))
        remote.chmod(0o755)
        self.env = dict(World(tmp).env, PROBING_RSH=rsh, PROBING_REMOTE=str(remote))
        for machine in self.network.machines:
            (tmp / ("data-" + machine.name)).mkdir(mode=0o700)
            self.start(machine.number, sshd, "-D", "-e", "-f", tmp / "sshd_config")
        for machine in self.network.machines:
            self.wait_port(machine.number, 22)

    def on(self, number, **more):
        name = self.network[number].name
        return dict(self.env, PROBING_DATA_DIR=str(self.tmp / ("data-" + name)), **more)

    def start(self, number, *words, **more):
        """(process, its output's path) of a program there; with its machine it ends."""
        self.logs += 1
        log = self.tmp / ("log-%d" % self.logs)
        with open(log, "wb") as out:
            made = subprocess.Popen(self.network[number].words(*words), env=self.on(number, **more),
                                    stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                    cwd=self.tmp)
        self.started.append(made)
        return made, log

    def begin(self, number, *words, **more):
        """probing there, its output and error in pipes."""
        return subprocess.Popen(self.network[number].words(CLI, *words),
                                env=self.on(number, **more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def probing(self, number, *words, timeout=LIMIT, **more):
        asker = self.begin(number, *words, **more)
        try:
            out, err = asker.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.kill(asker)
            pytest.fail("no end within %g s: %s" % (timeout, " ".join(words)))
        return subprocess.CompletedProcess(words, asker.returncode, out, err)

    def kill(self, process, how=signal.SIGKILL):
        """The program that `nsenter` has started there, and waits for."""
        with open("/proc/%d/task/%d/children" % (process.pid, process.pid)) as children:
            for pid in children.read().split():
                os.kill(int(pid), how)

    def wait_port(self, number, port):
        listening = self.network[number].words("cat", "/proc/net/tcp")
        wait_for(lambda: re.search(r":%04X [0-9A-F:]+ 0A " % port, subprocess.check_output(
            listening, text=True)), "port %d of node%d" % (port, number))

    def end(self):
        self.network.end()
        for process in self.started:
            process.wait()


if __name__ == "__main__":
    Switch(list(map(int, sys.argv[2:])), int(sys.argv[1])).run(0)
