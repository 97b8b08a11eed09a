# SPDX-License-Identifier: Apache-2.0
"""debug: stacks, pdb in the main thread, and debugpy with a client that speaks DAP."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest
from pythons import PYTHONS, minor_of
from terminal import Terminal, Way
from world import BUILD, CLI, DEBIAN_PYTHON, World, said, wait_for

pytestmark = pytest.mark.some_pythons

LOOP = """
import sys, threading, time
def work(n):
    a = n + 1
    b = a * 2  # b
    return b
def loop():
    n = 0
    while True:
        n += 1
        result = work(n)
        if n % 20 == 0:
            print("tick", n, flush=True)
        time.sleep(0.005)
print("ready", flush=True)
loop()
"""


def ticks(target):
    return target.output().count("tick")


def goes_on(target):
    before = ticks(target)
    wait_for(lambda: ticks(target) > before + 2, "the program to go on")
    assert target.eval("import sys; sys.gettrace(), sys._current_frames()[__import__('threading')"
                       ".main_thread().ident].f_trace").stdout == "(None, None)\n"
    assert "Error" not in target.output() and "BdbQuit" not in target.output()


def pdb(target, lines, *words):
    return subprocess.run([str(CLI), "-t", str(target.pid), "debug", "--pause", *words],
                          input="".join(line + "\n" for line in lines), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=target.world.env, timeout=60,
                          universal_newlines=True)


def test_dump(world, python):
    target = world.start(python, LOOP).inject()
    # until the thread sleeps as it always does, and is not met in something of our start
    wait_for(lambda: "libc" in target.probing("debug", "--dump").stdout, "the loop at rest")
    for words in (["debug", "--dump"], ["d", "-d"], ["dbg", "-d"]):
        done = target.probing(*words)
        assert done.returncode == 0 and "loop" in done.stdout, done
    done = world.probing("--dump", str(target.pid))
    assert done.returncode == 0 and "loop" in done.stdout


def test_a_prompt_that_is_left_alone(world):
    """After 150 s without a pong the process closed both connections, and the program went on."""
    target = world.start(list(PYTHONS.values())[0], LOOP).inject()
    with Way(target) as way:
        t = Terminal(target, "debug", "--pause", at=way.address, env=way.env)
        t.wait(r"\(Pdb\) ")
        way.ping()
        way.ping()
        t.type("p 40 + 2\n")
        t.wait(r"\n42\r\n")
        t.type("c\n")
        assert t.end() == 0
    goes_on(target)


def test_a_session(world, python):
    target = world.start(python, LOOP).inject()
    done = pdb(target, ["where", "b %d" % target.line("b"), "c", "p a == n + 1", "n",
                        "p b == a * 2", "up", "p n > 0", "p sys.argv[0][-11:]", "run", "interact",
                        "cl 1", "c"])
    assert done.returncode == 0, done.stderr
    assert len(re.findall("^True$", done.stdout, re.M)) == 3, done.stdout
    assert "'target-0.py'" in done.stdout
    assert re.search(r"Breakpoint \d+ at .*target-0.py:%d" % target.line("b"), done.stdout)
    assert done.stdout.count("not here: it would end") == 2
    goes_on(target)


def test_a_session_beside_code_that_hears_no_interrupt(world, python):
    """To 3.12 an interrupt is a flag for all threads, and 3.11 told debuggers nothing meanwhile."""
    target = world.start(python, LOOP).inject()
    assert target.eval("import time; time.sleep(600)", "--timeout", "0.1").returncode == 1
    done = pdb(target, ["b %d" % target.line("b"), "c", "p 'value', a == n + 1", "cl 1", "c"])
    assert "('value', True)" in done.stdout, done.stdout
    goes_on(target)


@pytest.mark.parametrize("end", [["q"], ["c"], [], ["detach"], ["b work", "c", "q"]])
def test_it_goes_on_however_a_session_ends(world, python, end):
    target = world.start(python, LOOP).inject()
    assert pdb(target, ["p 1"] + end).returncode == 0
    goes_on(target)


def test_it_goes_on_when_the_client_is_killed(world, python):
    target = world.start(python, LOOP).inject()
    for lines in (b"p 41 + 1\n", b"b nosuch\np 41 + 1\n", b"b work\nc\np 41 + 1\n"):
        client = subprocess.Popen([str(CLI), "-t", str(target.pid), "debug", "-p"], env=world.env,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        client.stdin.write(lines)
        client.stdin.flush()
        said(client.stdout, b"42")
        before = ticks(target)
        other = target.probing("debug", "--pause")
        assert other.returncode != 0 and "already" in other.stderr
        assert ticks(target) == before, "it is paused"
        client.kill()
        client.wait()
        goes_on(target)


def test_answers_go_to_who_gave_the_line(world):
    """The client that paused it once took what belonged to the first line after it."""
    target = world.start(list(PYTHONS.values())[-1], LOOP).inject()
    for i in range(25):
        done = pdb(target, ["p 41 + %d" % i, "c"])
        assert done.returncode == 0 and str(41 + i) in done.stdout, (i, done)
    goes_on(target)


def test_a_visitor_needs_the_token(world, python):
    target = world.start(python, LOOP).inject()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = subprocess.Popen([str(CLI), "-p", str(target.pid), "d", "-p", "-a",
                               "127.0.0.1:%d" % port], env=world.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE)
    pattern = rb"(?m)^([0-9a-f]{24})\n"
    token = re.search(pattern, said(client.stdout, pattern)).group(1)
    with socket.create_connection(("127.0.0.1", port), 60) as wrong:
        wrong.sendall(b"0" * 24 + b"\n")
        assert b"the token is wrong" in wrong.makefile("rb").read()
    with socket.create_connection(("127.0.0.1", port), 60) as visitor:
        file = visitor.makefile("rb")
        visitor.sendall(token + b"\np 40 + 2\nc\n")
        text = file.read()
        assert b"42" in text and text.count(b"(Pdb) ") == 2, text
    assert client.wait(60) == 0
    goes_on(target)


def test_a_silent_visitor_keeps_nobody_out(world):
    """Anybody on this machine may connect; one who said nothing was waited for without end."""
    target = world.start(DEBIAN_PYTHON, LOOP).inject()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "debug", "-p", "-a",
                               "127.0.0.1:%d" % port], env=world.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE)
    pattern = rb"(?m)^([0-9a-f]{24})\n"
    token = re.search(pattern, said(client.stdout, pattern)).group(1)
    with socket.create_connection(("127.0.0.1", port), 60), \
            socket.create_connection(("127.0.0.1", port), 60) as visitor:
        visitor.sendall(token + b"\np 40 + 2\nc\n")
        assert b"42" in visitor.makefile("rb").read()
    assert client.wait(60) == 0
    goes_on(target)


def test_a_main_thread_that_waits_in_c(world):
    target = world.start(list(PYTHONS.values())[-1], """
import os, time
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(3)  # here
    print("tick", flush=True)
""").inject()
    done = pdb(target, ["p 40 + 2", "c"])
    assert done.returncode == 0 and "42" in done.stdout, done.stdout
    # nobody waits for one that never comes
    target = world.start(list(PYTHONS.values())[-1], "import time\nprint('ready', flush=True)\n"
                         "time.sleep(600)").inject()
    client = subprocess.Popen([str(CLI), "-t", str(target.pid), "debug", "-p"], env=world.env,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said(client.stdout, b"sleep")
    client.send_signal(signal.SIGINT)
    assert client.wait(60) != 0
    assert target.eval("1").stdout == "1\n"
    assert target.probing("eject").returncode == 0


def test_a_program_that_is_traced_already(world):
    target = world.start(list(PYTHONS.values())[0], LOOP.replace(
        "def loop():", "def tracer(*a): return tracer\ndef loop():\n    sys.settrace(tracer)"))
    target.inject()
    done = pdb(target, ["c"])
    assert "a tracing function is set already" in done.stdout + done.stderr
    assert done.returncode != 0
    before = ticks(target)
    wait_for(lambda: ticks(target) > before + 2, "the program to go on")


# ---- debugpy ----

class Dap:
    """A small DAP client: requests, their responses, and events by name."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, 60)
        self.file = self.socket.makefile("rb")
        self.seq, self.events, self.answers = 0, [], {}

    def send(self, command, **arguments):
        self.seq += 1
        body = json.dumps({"seq": self.seq, "type": "request", "command": command,
                           "arguments": arguments}).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        return self.seq

    def receive(self):
        size = 0
        for line in iter(self.file.readline, b"\r\n"):
            if not line:
                raise EOFError("the adapter closed the connection")
            if line.lower().startswith(b"content-length:"):
                size = int(line.split(b":")[1])
        message = json.loads(self.file.read(size).decode())
        if message["type"] == "response":
            self.answers[message["request_seq"]] = message
        elif message["type"] == "event":
            self.events.append(message)

    def answer(self, seq):
        while seq not in self.answers:
            self.receive()
        assert self.answers[seq]["success"], self.answers[seq]
        return self.answers[seq].get("body", {})

    def ask(self, command, **arguments):
        return self.answer(self.send(command, **arguments))

    def event(self, name):
        while not any(e["event"] == name for e in self.events):
            self.receive()
        found = next(e for e in self.events if e["event"] == name)
        self.events.remove(found)
        return found.get("body", {})

    def close(self):
        self.file.close()
        self.socket.close()


def debugpy_folder_of_its_own(python):
    return subprocess.run([python, "-c", "import debugpy"],
                          stderr=subprocess.DEVNULL).returncode == 0


def debugpy_folder(python):
    """The folder of debugpy for this Python: None for its own; else once brought into build/."""
    if debugpy_folder_of_its_own(python):
        return None
    folder = BUILD.parent / "debugpy" / ("3.%d" % minor_of(python))
    if not folder.exists():
        made = tempfile.mkdtemp(dir=str(BUILD))
        done = subprocess.run([python, "-m", "pip", "install", "-q", "--no-input", "--no-compile",
                               "--target", made, "debugpy"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE)
        if done.returncode != 0:
            shutil.rmtree(made)
            pytest.skip("no debugpy for %s (Debian: python3-debugpy), and pip cannot bring it"
                        % python)
        folder.parent.mkdir(exist_ok=True)
        try:
            os.rename(made, str(folder))
        except OSError:  # another test has been quicker
            shutil.rmtree(made)
    return str(folder)


def test_an_editor_attaches(world, python):
    folder = debugpy_folder(python)
    target = world.start(python, LOOP).inject()
    words = ["--address", "127.0.0.1:0"] + (["--debugpy", folder] if folder else [])
    done = target.probing("debug", "--dap", *words, timeout=100)
    if "stops at no breakpoint" in done.stderr:  # Ubuntu 24.04's 1.8.0, with its CPython 3.12
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    address = re.search(r"listens on ([\d.]+):(\d+)", done.stdout).groups()
    address = address[0], int(address[1])
    again = target.probing("debug", "--dap")
    assert "since before, on %s:%d" % address in again.stdout, again.stdout
    for _ in range(2):  # an editor may come again
        before = ticks(target)
        wait_for(lambda: ticks(target) > before, "it runs while nobody is attached")
        attach(target, address)
        goes_on_after_dap(target)


def test_a_call_that_was_given_up_is_no_end_of_it(world):
    """The adapter of a slow machine comes later: the next call says where it listens."""
    begun, go, slow = (world.tmp / name for name in ("begun", "go", "slow"))
    slow.write_text("#!/bin/sh\n: >%s\nwhile [ ! -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n"
                    % (begun, go, DEBIAN_PYTHON))
    slow.chmod(0o755)
    source = "import sys\nsys.executable = %r\n" % str(slow) + LOOP
    target = world.start(DEBIAN_PYTHON, source).inject()
    folder = debugpy_folder(DEBIAN_PYTHON)
    words = [str(CLI), "-t", str(target.pid), "debug", "--dap", "--address", "127.0.0.1:0"]
    words += ["--debugpy", folder] if folder else []
    first = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                             env=world.env)
    wait_for(begun.exists, "the adapter to be started")
    first.send_signal(signal.SIGINT)
    assert first.wait(100) == 130 and not first.communicate()[0]
    go.touch()
    wait_for(lambda: target.eval("any(t.name == 'debugpy listens' for t in threading.enumerate())")
             .stdout == "False\n", "debugpy to listen")
    done = target.probing(*words[3:], timeout=100)
    address = re.search(r"on ([\d.]+):(\d+); attach", done.stdout).groups()
    attach(target, (address[0], int(address[1])))
    assert "since before, on %s:%s" % address in target.probing("debug", "--dap").stdout


def attach(target, address):
    client = Dap(address)
    client.ask("initialize", adapterID="probing", clientID="test", linesStartAt1=True,
               columnsStartAt1=True, pathFormat="path")
    attached = client.send("attach", justMyCode=False)
    client.event("initialized")
    path = str(target.world.tmp / "target-0.py")
    placed = client.ask("setBreakpoints", source={"path": path},
                        breakpoints=[{"line": target.line("b")}])
    assert placed["breakpoints"][0]["verified"], placed
    client.ask("configurationDone")
    client.answer(attached)
    stopped = client.event("stopped")
    assert stopped["reason"] == "breakpoint"
    thread = stopped["threadId"]
    frame = client.ask("stackTrace", threadId=thread)["stackFrames"][0]
    assert (frame["name"], frame["line"]) == ("work", target.line("b"))
    ahead = ticks(target)
    scope = client.ask("scopes", frameId=frame["id"])["scopes"][0]["variablesReference"]
    values = {v["name"]: v["value"] for v in
              client.ask("variables", variablesReference=scope)["variables"]}
    assert int(values["a"]) == int(values["n"]) + 1
    assert client.ask("evaluate", expression="a * 2", frameId=frame["id"],
                      context="repl")["result"] == str(int(values["a"]) * 2)
    client.ask("next", threadId=thread)
    assert client.event("stopped")["reason"] == "step"
    frame = client.ask("stackTrace", threadId=thread)["stackFrames"][0]
    assert frame["line"] == target.line("b") + 1
    assert ticks(target) == ahead, "it stands still"
    client.ask("continue", threadId=thread)
    client.event("stopped")
    client.ask("disconnect", terminateDebuggee=False)
    client.close()


def goes_on_after_dap(target):
    before = ticks(target)
    wait_for(lambda: ticks(target) > before + 2, "the program to go on")
    assert target.alive() and "Error" not in target.output(), target.output()


def test_dap_is_refused_with_reasons(world):
    target = world.start(list(PYTHONS.values())[0], LOOP).inject()
    done = target.probing("debug", "--dap", "--address", "0.0.0.0:5678")
    assert done.returncode != 0 and "need a token" in done.stderr and "ssh -L" in done.stderr
    done = target.probing("debug", "--dap", "--address", "here")
    assert done.returncode != 0 and "HOST:PORT" in done.stderr
    done = target.probing("debug", "--dap", "--debugpy", str(world.tmp))
    assert done.returncode != 0 and "no folder 'debugpy'" in done.stderr
    bare = next((p for p in PYTHONS.values() if subprocess.run(
        [p, "-c", "import debugpy"], stderr=subprocess.DEVNULL).returncode), None)
    if bare:
        done = world.start(bare, LOOP).inject().probing("debug", "--dap")
        assert done.returncode != 0 and "pip install debugpy" in done.stderr
    assert target.alive() and target.eval("'debugpy' in __import__('sys').modules") is not None


def test_an_old_debugpy_is_refused(world, python):
    """It says that a breakpoint is verified and never stops there."""
    folder = world.tmp / "old" / "debugpy" / "server"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("__version__ = '1.5.1'\n")
    (folder / "__init__.py").write_text("")
    (folder / "api.py").write_text("")
    target = world.start(python, LOOP).inject()
    done = target.probing("debug", "--dap", "--address", "127.0.0.1:0", "--debugpy",
                          str(folder.parents[1]))
    if debugpy_folder_of_its_own(python):
        assert " listens on " in done.stdout, done  # which was found first
    else:
        assert done.returncode != 0, done
        assert ("or newer" in done.stderr) == (minor_of(python) >= 11), done


# ---- who may attach ----

# As another user: says what it was answered, or that the connection has ended.
STRANGER = r"""
import json, os, socket, sys
port, uid, token, early = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
s = socket.create_connection(("127.0.0.1", port), 60)
f = s.makefile("rb")
def message(seq, command, **arguments):
    body = json.dumps({"seq": seq, "type": "request", "command": command,
                       "arguments": arguments}).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
def receive():
    size = 0
    for line in iter(f.readline, b"\r\n"):
        if not line:
            sys.exit()
        if line.lower().startswith(b"content-length"):
            size = int(line.split(b":")[1])
    return json.loads(f.read(size))
EVALUATE = "__import__('builtins').debugged_by.append(%d)" % uid
first = message(1, "initialize", adapterID="x")
attach = message(2, "attach", justMyCode=False, **({"token": token} if token else {}))
rest = message(3, "configurationDone"), message(4, "evaluate", expression=EVALUATE, context="repl")
try:
    if early == "all":  # and away: what nobody holds any more is shown as root's
        s.sendall(first + attach + b"".join(rest))
        sys.exit()
    s.sendall(first)
    while True:
        m = receive()
        print(json.dumps(m), flush=True)
        if m.get("request_seq") == 1 and m["success"]:
            s.sendall(attach)
        if m.get("event") == "initialized":
            s.sendall(b"".join(rest))
        if m.get("request_seq") == 4:
            break
except OSError as error:
    print(error)
"""


def stranger(port, uid, token="", early=""):
    done = subprocess.run([DEBIAN_PYTHON, "-c", STRANGER, str(port), str(uid), token, early],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=100, cwd="/",
                          universal_newlines=True)
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def debugged(world, *words):
    """A target at whose debugger one may attach, its port, and what was printed."""
    python = DEBIAN_PYTHON
    target = world.start(python, "import builtins\nbuiltins.debugged_by = []\n" + LOOP).inject()
    folder = debugpy_folder(python)
    done = target.probing("debug", "--dap", *words, *(["--debugpy", folder] if folder else []),
                          timeout=100)
    assert done.returncode == 0, done
    return target, int(re.search(r"listens on [\d.]+:(\d+)", done.stdout).group(1)), done.stdout


def debugged_by(target):
    return target.probing("eval", "__import__('builtins').debugged_by").stdout.strip()


def listening(pid):
    """The ports at which a process listens."""
    numbers = set()
    for fd in Path("/proc/%d/fd" % pid).iterdir():
        try:
            numbers.update(re.findall(r"socket:\[(\d+)\]", os.readlink(str(fd))))
        except FileNotFoundError:  # closed meanwhile
            pass
    found = []
    for table in "tcp", "tcp6":
        with open("/proc/net/" + table) as lines:
            found += [int(line.split()[1].rpartition(":")[2], 16) for line in lines
                      if line.split()[3] == "0A" and line.split()[9] in numbers]
    return found


def adapters(target):
    """Processes of debugpy's that this target has started."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if b"debugpy" in (process / "cmdline").read_bytes() and \
                    str(target.world.tmp).encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:  # of others, or it has ended
            pass
    return [pid for pid in found if pid != target.pid]


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user, too")


@needs_root
def test_no_other_user_may_attach(world):
    target, port, _ = debugged(world, "--address", "127.0.0.1:0")
    answer = json.loads(stranger(port, 65534))
    assert not answer["success"] and "only uid 0 may debug this process" in answer["message"]
    assert "of uid 65534" in answer["message"]
    for _ in range(20):
        stranger(port, 65534, early="all")
    assert '"command": "evaluate"' in stranger(port, 0)  # behind all that came before
    assert debugged_by(target) == "[0]"
    goes_on_after_dap(target)


def test_nothing_else_of_debugpy_is_open(world):
    """Its adapter had a port for the program, and the token of that in its words."""
    target, port, _ = debugged(world, "--address", "127.0.0.1:0")
    [adapter] = adapters(target)
    assert listening(adapter) == [port] and listening(target.pid) == []
    attach(target, ("127.0.0.1", port))
    assert listening(adapter) == [port] and listening(target.pid) == []
    target.kill()
    wait_for(lambda: not adapters(target), "the adapter to end with the program")


def test_a_browser_is_no_editor(world):
    """A page may have its reader's browser post to each port of the machine."""
    target, port, _ = debugged(world, "--address", "127.0.0.1:0")
    body = json.dumps({"seq": 1, "type": "request", "command": "initialize", "arguments": {}})
    with socket.create_connection(("127.0.0.1", port), 60) as browser:
        browser.sendall(("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
                         % (len(body), body)).encode())
        answer = browser.makefile("rb").read()
    assert b"speaks DAP only" in answer and b"supports" not in answer, answer
    attach(target, ("127.0.0.1", port))


@needs_root
@pytest.mark.parametrize("caps, users", [
    ((), [0, 65534]), (("--inh-caps=+net_raw", "--ambient-caps=+net_raw"), [0])])
def test_whoever_may_trace_it_may_attach(world, caps, users):
    """A user's process, and one that has more than its user."""
    target = World.start(world, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                         *caps, "env", "-u", "PROBING_DATA_DIR", "HOME=/", DEBIAN_PYTHON, "-u",
                         "-c", "import builtins\nbuiltins.debugged_by = []\n" + LOOP)
    target.wait_line("ready")
    if caps and "CapPrm:\t0000000000000000" in Path("/proc/%d/status" % target.pid).read_text():
        pytest.skip("no ambient capabilities here")
    target.inject()
    if debugpy_folder(DEBIAN_PYTHON):
        pytest.skip("no debugpy where that user may read it (Debian: python3-debugpy)")
    said = target.probing("debug", "--dap", "--address", "127.0.0.1:0", timeout=100)
    assert said.returncode == 0, said
    port = int(re.search(r"listens on [\d.]+:(\d+)", said.stdout).group(1))
    for uid in 65534, 65533, 0:
        assert ('"command": "evaluate"' in stranger(port, uid)) == (uid in users)
    assert debugged_by(target) == str(sorted(users, reverse=True))


@needs_root
def test_who_cannot_be_told_needs_the_token(world):
    target, port, said = debugged(world, "--address", "0.0.0.0:0", "--open")
    token = re.search('"token": "([0-9a-f]{32})"', said).group(1)
    for wrong in "", "0" * 32:
        answers = stranger(port, 65534, wrong)
        assert "needs the token" in answers.splitlines()[-1], answers
    stranger(port, 65534, early="all")
    assert debugged_by(target) == "[]"
    assert '"command": "evaluate"' in stranger(port, 65534, token)
    assert debugged_by(target) == "[65534]"
    assert token in target.probing("debug", "--dap").stdout


def test_pdb_waits_until_an_editor_has_gone(world):
    """debugpy may have all threads stand still, ours too: the session began 30 s later, or not."""
    target = world.start(list(PYTHONS.values())[0], LOOP).inject()
    attached = "import sys, types; sys.modules['debugpy'] = types.SimpleNamespace(" \
               "is_client_connected=lambda: %s)"
    target.eval(attached % True)
    done = pdb(target, ["c"])
    assert done.returncode != 0 and "an editor is attached" in done.stderr
    target.eval(attached % False)
    assert pdb(target, ["c"]).returncode == 0
    goes_on(target)


def test_bad_words(world):
    target = world.start(list(PYTHONS.values())[0], LOOP).inject()
    for words in ([], ["-d", "-p"], ["x"], ["--nosuch"]):
        done = target.probing("debug", *words)
        assert done.returncode != 0 and done.stderr.strip(), words
    assert target.alive()
