# SPDX-License-Identifier: Apache-2.0
"""Processes of other machines by relays: `-t ssh:HOST`, `-t relay:HOST:PORT`, trees of them, who is
missing, and that nothing stays behind.  The remote shell of most tests stays on this machine."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import pytest
from ranks import four, named, rows, start_ranks  # noqa: F401
from world import CLI, ROOT, sanitized, wait_for

# HOST and the text for its shell, as ssh has them.  "fake-HOW" is tests/fake_relay.py; "gated" is
# reached when open_gate() says so: until then nobody asks anything.
SHELL = """#!/bin/sh
host=$1
shift
echo $$ $host >> %(log)s
case $host in
dead*) echo "ssh: connect to host $host port 22: No route to host" >&2; exit 255 ;;
fake-*) exec %(python)s %(fake)s ${host#fake-} ;;
piped) exec %(python)s %(pump)s "$*" ;;
gated) cat %(gate)s ;;
esac
exec sh -c "$*"
"""
# A program between, as ssh is: nothing of it is left to the relay when it is killed.
PUMP = """import os, subprocess, sys, threading
there = subprocess.Popen(["sh", "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def copy(a, b):
    while piece := os.read(a, 65536):
        os.write(b, piece)
    os.close(b)
threading.Thread(target=copy, args=(0, there.stdin.fileno()), daemon=True).start()
copy(there.stdout.fileno(), 1)
"""


def parent_of(pid):
    try:
        with open("/proc/%d/stat" % pid, errors="replace") as stat:
            return int(stat.read().rsplit(")", 1)[1].split()[1])
    except OSError:
        return 0


@pytest.fixture
def far(four, tmp_path):  # noqa: F811
    """The four ranks, and an environment in which every host is this machine."""
    shell, log, gate = tmp_path / "shell", tmp_path / "log", tmp_path / "gate"
    os.mkfifo(gate)
    shell.write_text(SHELL % {"log": log, "python": sys.executable, "gate": gate,
                              "pump": tmp_path / "pump.py",
                              "fake": ROOT / "tests" / "fake_relay.py"})
    shell.chmod(0o755)
    log.touch()
    (tmp_path / "pump.py").write_text(PUMP)
    env = {"PROBING_RSH": str(shell), "PROBING_REMOTE": str(CLI)}

    class Far:
        world, job, ranks = four, four.job, four.ranks
        here = env  # and that of the command

        def probing(self, *words, **more):
            return four.probing(*words, env=dict(env, **more))

        def begin(self, *words, **more):
            return subprocess.Popen([str(CLI), *words], env=dict(four.env, **env, **more),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True, start_new_session=True)

        def shells(self):
            """Remote shells that were started, and what they have become: pid of each by host."""
            return {line.split()[1]: int(line.split()[0]) for line in log.read_text().splitlines()}

        def left(self):
            """Relays of this test that still run."""
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/environ" % pid, "rb") as f:
                        ours = b"PROBING_RSH=" + str(shell).encode() in f.read()
                    with open("/proc/%s/cmdline" % pid, "rb") as f:
                        words = f.read().split(b"\0")
                except OSError:
                    continue
                if ours and (b"relay" in words or str(shell).encode() in words):
                    found.append((int(pid), words))
            return found

        def relay_of(self, host):
            """The relay behind a remote shell: itself, or its child."""
            wait_for(lambda: host in self.shells(), "the shell of " + host)
            root = self.shells()[host]

            def seen():
                relays = [pid for pid, words in self.left() if words[0].endswith(b"probing")
                          and b"--stdio" in words]
                return next((pid for pid in relays if root in (
                    pid, parent_of(pid), parent_of(parent_of(pid)))), None)
            return wait_for(seen, "the relay on " + host)

        def open_gate(self):
            with open(gate, "w"):
                pass

        def all_ends(self):
            wait_for(lambda: not self.left(), lambda: "the end of %r" % self.left(), timeout=60)

    made = Far()
    yield made
    made.all_ends()


def test_what_is_about_this_machine_is_not_said_of_another(far):
    """It listed who is here."""
    done = far.probing("-t", "ssh:h1", "list")
    assert done.returncode == 2 and "about this machine and takes no target" in done.stderr
    assert done.stdout == "" and far.shells() == {}
    assert far.probing("list", PROBING_TARGET="ssh:h1").returncode == 0


def test_as_on_this_machine(far):
    """A command gives the same over a relay as here."""
    there, here = "ssh:node/job:" + far.job, "job:" + far.job
    for words in (("query", "select count(*) > 0 as some from process.envs", "--format", "csv"),
                  ("eval", "me * 2"), ("config", "get", "server.listen"), ("tables",),
                  ("query", "select _rank, count(*) > 0 as n from global.process.envs group by 1 "
                            "order by 1", "--format", "csv")):
        a, b = far.probing("-t", there, *words), far.probing("-t", here, *words)
        strip = lambda text: re.sub(r"\([^()]*(?:ms|us|ns|s)\)", "", text)  # noqa: E731
        assert (strip(a.stdout), a.returncode) == (strip(b.stdout), b.returncode), a.stderr
        assert a.stdout and a.stderr == b.stderr
    one = "ssh:node/%d" % far.ranks[2].pid
    assert far.probing("-t", one, "eval", "me").stdout == "2\n"
    assert "rank.py" in far.probing("-t", one, "backtrace").stdout
    assert "rank.py" in far.probing("-t", one, "backtrace", "--external").stdout
    done = far.probing("-t", "ssh:node/job:" + far.job, "query", "--format", "json",
                       "select distinct _host, _addr, _rank from global.process.envs order by 3")
    assert [list(r.values()) for r in rows(done)] == [
        ["node", "ssh:node/%d" % r.pid, i] for i, r in enumerate(far.ranks)], done.stderr


def test_streams_go_on(far):
    """watch gives lines of each rank until Ctrl-C, and then nothing of it is left."""
    asker = far.begin("-t", "ssh:node/job:" + far.job, "watch", "select 1 as one", "--interval",
                      "50ms", "--format", "jsonl")
    seen = set()
    while len(seen) < 4:
        seen.add(json.loads(asker.stdout.readline())["rank"])
    asker.send_signal(signal.SIGINT)
    asker.communicate(timeout=60)
    assert asker.returncode == 130


def test_a_flame_graph_of_there(far):
    """What takes the samples is loaded by the probing there: a core that was entered has no path
    of plugins."""
    target = far.world.python("print('ready', flush=True)\nimport time\ntime.sleep(600)")
    target.wait_line("ready")
    assert target.probing("inject").returncode == 0
    one = "ssh:node/%d" % target.pid
    for name in (one, "%s,ssh:node/%d" % (one, far.ranks[1].pid)):
        done = far.probing("-t", name, "flamegraph", "wall", "-s", "300ms", "-f", "folded")
        assert done.returncode == 0 and done.stdout, done.stderr
    for expected in ("plugin profile loaded", "plugin profile is loaded already"):
        done = far.probing("-t", one, "performance", "--cc")
        assert done.returncode == 0 and expected in done.stdout, done.stderr
    target.end()


def test_a_job_is_looked_at_there(far):
    """hang and diff look at a process where it runs, however its machine was named."""
    target = far.ranks[2]
    who = "ssh:node/job:%s,ssh:dead1/job:x" % far.job
    os.kill(target.pid, signal.SIGSTOP)
    try:
        done = far.probing("-t", who, "cluster", "hang", "--looks", "2", "--interval", "100ms",
                           "--json")
        seen = json.loads(done.stdout)
        assert {r["rank"]: r["state"] == "stopped" for r in seen["ranks"]} == {
            0: False, 1: False, 2: True, 3: False}, done.stdout
        assert [h["host"] for h in seen["not_reached"]] == ["dead1"]
        done = far.probing("-t", who, "cluster", "diff", "--all", "--json")
        facts = json.loads(done.stdout)
        assert '"limits"' in done.stdout and '"environment"' in done.stdout
        assert "it is stopped" in done.stdout and "dead1" in json.dumps(facts)
        done = far.probing("-t", "ssh:node/job:" + far.job, "flamegraph", "wall", "-s", "300ms",
                           "-f", "folded")
        assert done.returncode == 1 and "3 of 4 answered" in done.stderr, done.stderr
        assert "only existing samples" in done.stderr, done.stderr
        done = far.probing("-t", "ssh:node/%d" % target.pid, "flamegraph")
        assert done.returncode == 1 and "drawn on its machine" in done.stderr, done.stderr
        done = far.probing("-t", "ssh:node/%d" % target.pid, "export", "--format", "perfetto", "-o",
                           str(far.world.tmp / "trace"))
        assert done.returncode == 1 and "written on its machine" in done.stderr, done.stderr
    finally:
        os.kill(target.pid, signal.SIGCONT)


def test_a_machine_with_two_names(far):
    """Its processes are asked twice, and that is said: who says so could be lying."""
    who = "ssh:a/job:%s,ssh:b/job:%s" % (far.job, far.job)
    done = far.probing("-t", who, "query", "--format", "csv",
                       "select count(distinct _addr) from global.process.envs")
    assert done.stdout.splitlines()[1:] == ["8"]
    assert "4 processes are asked and counted twice" in done.stderr
    assert "one machine with two names" in done.stderr and done.stderr.count("\n") == 1
    for who in ("job:%s,ssh:a/job:%s", "ssh:a/job:%s,job:%s"):  # and this one by its own
        done = far.probing("-t", who % (far.job, far.job), "query", "select 1")
        assert "4 processes are asked and counted twice" in done.stderr, done.stderr
    words = ("cluster", "status", "--job", far.job, "--hosts", "a,b")
    assert "4 ranks, and 8 were found" in far.probing(*words).stderr
    words = ("cluster", "diff", "--job", far.job, "--hosts", "a,b")
    assert "two jobs are called '%s'" % far.job in far.probing(*words).stderr  # both meet at home


def test_what_takes_no_target(far):
    """A list of this machine is no answer about another."""
    done = far.probing("-t", "ssh:node", "list")
    assert done.returncode == 2 and "about this machine" in done.stderr and not done.stdout


def test_rows_by_number(far):
    """--from-row and --to-row are of one process; several would be a lie."""
    done = far.probing("-t", "job:" + far.job, "query", "--from-row", "1", "select 1")
    assert done.returncode == 2 and "take one process" in done.stderr, done.stderr


def test_entering_and_leaving(far):
    """inject, plugin load and eject are done there; a process without a core says so."""
    target = far.world.python("print('ready', flush=True)\nimport time\ntime.sleep(600)")
    target.wait_line("ready")
    name = "ssh:node/%d" % target.pid
    done = far.probing("-t", name, "query", "select 1")
    assert done.returncode == 1 and "no probing core in it" in done.stderr
    done = far.probing("-t", name, "inject")
    assert done.returncode == 0, done.stderr
    assert far.probing("-t", name, "query", "select 7 as n", "--format", "csv").stdout == "n\n7\n"
    done = far.probing("-t", name, "plugin", "load", "python")
    assert done.returncode == 0, done.stderr
    assert far.probing("-t", name, "eval", "1 + 1").stdout == "2\n"
    done = far.probing("-t", name, "eject")
    assert done.returncode == 0 and "ejected" in done.stdout, done.stderr
    target.end()


def test_the_dead(far):
    """Killed while it is asked, or before: its files answer, by pid and by directory."""
    target, = start_ranks(far.world, 1, RANK="7", TORCHELASTIC_RUN_ID="gone-%d" % os.getpid())
    name = "ssh:node/%d" % target.pid
    words = ("query", "select 3 as n", "--format", "csv")
    assert far.probing("-t", name, *words).stdout == "n\n3\n"
    asker = far.begin("-t", name, "watch", "select value from process.envs where name = 'RANK'",
                      "--interval", "50ms", "--format", "jsonl")
    asker.stdout.readline()
    target.kill()
    out, err = asker.communicate(timeout=60)
    assert asker.returncode == 1 and "has died" in err, err
    assert "/%d-" % target.pid in err, err  # and where its data are
    assert far.probing("-t", name, *words).stdout == "n\n3\n"
    directory, = (d for d in far.world.data.iterdir() if d.name.startswith("%d-" % target.pid))
    for who in ("ssh:node/%s" % directory, "ssh:node/%s,ssh:node/%d" % (directory, target.pid)):
        done = far.probing("-t", who, *words)
        assert done.returncode == 0 and done.stdout.endswith("3\n"), done.stderr
    done = far.probing("-t", name, "eval", "1")
    assert done.returncode == 1 and "has ended" in done.stderr
    here = far.probing("-t", str(directory), "query", "select 1 from no.such")  # the reason is its
    assert here.returncode == 1 and "unknown table 'no.such'" in here.stderr
    for who in (name, "ssh:node/job:gone-%d" % os.getpid()):
        done = far.probing("-t", who, "query", "select 1 from no.such")
        reason = done.stderr.splitlines()[-1].split(": ", 1)[1]
        assert done.returncode == 1 and reason == here.stderr.strip().split(": ", 1)[1], done.stderr


def test_what_to_do_next_names_the_host(far):
    bare = subprocess.Popen(["sleep", "1000"])
    try:
        one = "ssh:node/%d" % bare.pid
        for words in (("query", "select 1"), ("backtrace",), ("eval", "1")):
            done = far.probing("-t", one, *words)
            assert done.returncode == 1, words
            assert "probing -t %s inject" % one in done.stderr, (words, done.stderr)
            assert "-t %d" % bare.pid not in done.stderr, (words, done.stderr)
    finally:
        bare.kill()
        bare.wait()


def test_who_is_missing_is_named(far):
    """Hosts that are not there, and relays that do not as they should, cost themselves only."""
    hosts = ["dead", "fake-lines", "fake-flood", "fake-others", "fake-kind", "fake-long",
             "fake-half", "fake-steer", "fake-old"]
    done = far.probing("-t", ",".join(["ssh:" + h for h in hosts] + ["ssh:node/job:" + far.job]),
                       "query", "select 1 as one", "--format", "csv")
    assert done.returncode == 1
    assert len(done.stdout.splitlines()) == 5, done.stdout
    for host, why in (("dead", "No route to host"), ("fake-lines", "no answer of probing"),
                      ("fake-flood", "more than"), ("fake-half", "relay"),
                      ("fake-others", "wrong one"), ("fake-kind", "wrong one"),
                      ("fake-long", "wrong one"), ("fake-steer", "no [2J probing: rank 0"),
                      ("fake-old", "another version")):
        line = [part for part in done.stderr.splitlines() if "ssh:" + host in part]
        assert len(line) == 1 and why in line[0], (host, done.stderr)
    assert "\x1b" not in done.stderr
    for bad, why in (("ssh:", "a host is missing"), ("ssh:-oProxyCommand=x/1", "no name of a host"),
                     ("ssh:a;b/1", "no name of a host"),
                     ("ssh:node/ssh:other/1", "its own machine"),
                     ("ssh:node/999999999", "no process 999999999"),
                     ("relay:node/1", "no port")):
        done = far.probing("-t", bad, "query", "select 1")
        assert done.returncode != 0 and why in done.stderr, (bad, done.stderr)


def test_a_silent_relay_costs_its_time_limit(far):
    done = far.probing("-t", "ssh:fake-silent,ssh:node/job:" + far.job, "--timeout", "2s", "query",
                       "select 1 as one", "--format", "csv")
    assert done.returncode == 1 and len(done.stdout.splitlines()) == 5
    assert "fake-silent" in done.stderr and "2s" in done.stderr, done.stderr


@pytest.mark.parametrize("victim", ["asker", "shell", "relay", "stopped"])
def test_nothing_stays_behind(far, victim):
    """Whoever is killed in the middle: all others end, and the asker says what has happened."""
    asker = far.begin("-t", "ssh:piped/job:" + far.job, "watch", "select 1 as one", "--interval",
                      "50ms", "--format", "jsonl")
    asker.stdout.readline()
    relay = far.relay_of("piped")
    if victim == "asker":
        asker.kill()
    elif victim == "stopped":  # what it runs is ended with it
        os.kill(relay, signal.SIGSTOP)
        asker.terminate()
        asker.communicate(timeout=60)
        os.kill(relay, signal.SIGCONT)
    else:
        os.kill(relay if victim == "relay" else far.shells()["piped"], signal.SIGKILL)
        out, err = asker.communicate(timeout=60)
        assert asker.returncode == 1 and "ranks 0-3: " in err and err.count("\n") == 2, err
        assert "ended by signal 9" in err or "its relay has ended" in err, err
    asker.wait(timeout=60)
    far.all_ends()


def test_a_command_there_ends_with_who_asked(far):
    """A relay's children (which read files of the dead) end when nobody wants them any more."""
    target, = start_ranks(far.world, 1, RANK="8", TORCHELASTIC_RUN_ID="slow-%d" % os.getpid())
    target.kill()
    sql = "select count(*) as n from range(100000000000)"
    asker = far.begin("-t", "ssh:node/%d" % target.pid, "query", sql)
    wait_for(lambda: any(b"query" in words for _, words in running(far)), "the query there")
    asker.kill()
    asker.wait()
    wait_for(lambda: not any(b"query" in words for _, words in running(far)), "its end", timeout=60)


def running(far):
    """Commands that relays of this test run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            parent = parent_of(int(pid))
            of = open("/proc/%s/cmdline" % parent, "rb").read()
            words = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
        except OSError:
            continue
        if b"relay\0--stdio" in of and words[0].endswith(b"probing"):
            found.append((int(pid), words))
    return found


def test_a_tree(far):
    """Relays start relays: all are there, a dead one costs itself, and one killed those behind."""
    env = {"PROBING_RELAY_DEGREE": "2"}
    who = "ssh:n[1-3]/job:%s,ssh:dead1/job:x,ssh:n[4-7]/job:%s" % (far.job, far.job)
    sql = "select _host, count(*) > 0 as n from global.process.envs group by 1 order by 1"
    done = far.probing("-t", who, "query", "--format", "csv", sql, **env)
    assert done.stdout.splitlines()[1:] == ["n%d,true" % i for i in range(1, 8)], done.stderr
    assert "27 of 28 answered" not in done.stderr and "28 of 29 answered" in done.stderr
    assert "dead1" in done.stderr and "No route" in done.stderr
    far.all_ends()
    asker = far.begin("-t", "ssh:m[1-7]/%d" % far.ranks[1].pid, "watch", "select 1 as one",
                      "--interval", "50ms", "--format", "jsonl", **env)
    asker.stdout.readline()
    os.kill(far.relay_of("m1"), signal.SIGKILL)  # which stands before m2, m3 and m4
    wait_for(lambda: "m2" not in {h for h in far.shells() if parent_of(far.shells()[h])}, "its end")
    lines = [asker.stdout.readline() for _ in range(20)]  # of the others
    assert all("one" in line for line in lines)
    asker.send_signal(signal.SIGINT)
    asker.communicate(timeout=60)


def peak_kb(pid):
    for line in open("/proc/%d/status" % pid):
        if line.startswith("VmHWM"):
            return int(line.split()[1])
    return 0


@pytest.mark.skipif(bool(sanitized()), reason="sanitizers take memory of their own")
def test_a_slow_reader_blocks_nobody(far):
    """A client that does not read gets nothing more, and holds no memory."""
    sql = "select repeat('x', 1000) as x from range(200000)"
    asker = far.begin("-t", "ssh:node/job:" + far.job, "query", "--format", "csv", sql)
    asker.stdout.readline()
    relay = far.relay_of("node")
    before = []

    def still():
        before.append(open("/proc/%d/io" % relay).read())
        return len(before) > 25 and len(set(before[-10:])) == 1
    wait_for(still, "the relay to wait")
    assert peak_kb(relay) < 64 << 10
    asker.kill()
    asker.wait()


# Others' programs, which take their words in this order only, and run them without a shell.
KUBECTL = """#!/bin/sh
[ "$1 $2 $4 $#" = "exec -i -- 7" ] || { echo "error: unknown command: $*" >&2; exit 1; }
case $3 in pod-*) ;; *) echo "Error from server (NotFound): pods $3 not found" >&2; exit 1 ;; esac
shift 4
exec "$@"
"""
SRUN = """#!/bin/sh
[ "$1 $2 $3 $4" = "--jobid 12 --overlap -N1" ] || { echo "srun: error: $*" >&2; exit 1; }
case $5 in --nodelist=n[0-9]) ;; *) echo "srun: error: invalid nodes $5" >&2; exit 1 ;; esac
shift 5
exec "$@"
"""
DOCKER = """#!/bin/sh
[ "$1 $2" = "exec -i" ] || { echo "docker: $*" >&2; exit 1; }
[ "$3" = box ] || { echo "Error: No such container: $3" >&2; exit 1; }
shift 3
exec "$@"
"""


@pytest.mark.parametrize("name, text, rsh, host", [
    ("kubectl", KUBECTL, "kubectl exec -i {} -- sh -c", "pod-7"),
    ("srun", SRUN, "srun --jobid 12 --overlap -N1 --nodelist={} sh -c", "n3"),
    ("docker", DOCKER, "docker exec -i {} sh -c", "box")])
def test_shells_that_take_the_host_elsewhere(far, tmp_path, name, text, rsh, host):
    tool = tmp_path / "bin" / name
    tool.parent.mkdir()
    tool.write_text(text)
    tool.chmod(0o755)
    env = {"PROBING_RSH": rsh, "PATH": "%s:%s" % (tool.parent, os.environ["PATH"])}
    job = "ssh:%s/job:" + far.job
    done = far.probing("-t", job % host, "query", "select 1 as n", **env)
    assert done.returncode == 0 and "(4 rows" in done.stdout, done
    env["PROBING_RSH"] = "no-such-shell"  # --rsh says it, too
    done = far.probing("cluster", "status", "--job", far.job, "--hosts", host, "--rsh", rsh, **env)
    assert done.returncode == 0 and "4 of 4 ranks are entered" in done.stderr, done
    env["PROBING_RSH"] = rsh
    done = far.probing("-t", job % "nobody", "query", "select 1", **env)
    assert done.returncode == 1 and "nobody" in done.stderr, done.stderr
    done = far.probing("-t", job % host, "query", "select 1", **dict(env, PROBING_RSH=rsh + " {}"))
    assert done.returncode == 1 and "has {} twice" in done.stderr, done.stderr


def test_by_ssh(far, tmp_path):
    """A real ssh, to an sshd of this test's own."""
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    if not shutil.which("ssh") or not os.path.exists(sshd):
        pytest.skip("no ssh and sshd here (Debian: openssh-client, openssh-server)")
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)],
                       check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "keys")
    (tmp_path / "keys").chmod(0o600)
    port = 20000 + os.getpid() % 10000
    (tmp_path / "sshd_config").write_text(
        "ListenAddress 127.0.0.1\nPort %d\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\n"
        "StrictModes no\nUsePAM no\nPermitRootLogin yes\n" % (port, tmp_path / "host",
                                                            tmp_path / "keys"))
    os.makedirs("/run/sshd", exist_ok=True)
    server = subprocess.Popen([sshd, "-D", "-e", "-f", str(tmp_path / "sshd_config")],
                              stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: "listening" in server.stderr.readline() or server.poll() is not None,
                 "sshd")
        if server.poll() is not None:
            pytest.skip("sshd does not run here")
        rsh = ("ssh -T -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile="
               "/dev/null -o LogLevel=ERROR -i %s -p %d" % (tmp_path / "user", port))
        remote = "PROBING_DATA_DIR=%s %s" % (far.world.data, CLI)
        env = {"PROBING_RSH": rsh, "PROBING_REMOTE": remote}
        done = far.probing("-t", "ssh:127.0.0.1/job:" + far.job, "eval", "me", **env)
        assert done.stdout == "".join("rank %d: %d\n" % (i, i) for i in range(4)), done.stderr
        done = far.probing("cluster", "status", "--job", far.job, "--hosts", "127.0.0.2", "--json",
                           **env)
        assert done.returncode == 1 and "onnection refused" in done.stdout, done.stdout
    finally:
        server.kill()
        server.wait()
