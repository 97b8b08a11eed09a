# SPDX-License-Identifier: Apache-2.0
"""Ways in: preload, the hook and variables, and what they leave alone."""
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest
from life import PACKAGE, free_port, our_threads
from world import CORE, DEBIAN_PYTHON, LIMIT, wait_for


def test_preload_leaves_programs_alone(world):
    """A pipeline of programs that end at once, or before the core is up: same words, same codes."""
    env = dict(world.env, LD_PRELOAD=str(CORE))
    for _ in range(20):
        done = subprocess.run(["/bin/sh", "-c",
                               "echo a b | tr ' ' '\\n' | sort -r | head -1; exit 7"],
                              capture_output=True, text=True, env=env, timeout=LIMIT)
        assert (done.returncode, done.stdout, done.stderr) == (7, "b\n", "")


def test_probing_0_disables(world):
    target = world.start("/bin/sleep", "600", env={"LD_PRELOAD": str(CORE), "PROBING": "0"})
    wait_for(lambda: "sleep" in os.readlink("/proc/%d/exe" % target.pid), "sleep")
    wait_for(lambda: "libprobing" in open("/proc/%d/maps" % target.pid).read(), "the library")
    assert our_threads(target.pid) == [] and list(world.data.iterdir()) == []
    hook = world.python("import site\nsite.addsitedir(%r)\nprint('ready', flush=True)\n"
                        "import time; time.sleep(600)\n" % str(PACKAGE),
                        env={"PROBING": "0", "PROBING_LIBRARY": str(CORE)})
    hook.wait_line("ready")
    assert our_threads(hook.pid) == []


CHILD_OF_HOOK = """
import site
site.addsitedir(%r)
import subprocess, sys, time
if len(sys.argv) > 1:
    print('child', __import__('os').getpid(), flush=True)
    time.sleep(600)
child = subprocess.Popen([sys.executable, '-u', __file__, 'child'])
print('ready', flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("value,parent,child", [("1", True, False), ("2", True, True),
                                                ("regex:target-0", True, True),
                                                ("regex:no_such", False, False),
                                                ("target-0.py", True, True),
                                                ("other.py", False, False)])
def test_hook_chooses(world, value, parent, child):
    target = world.python(CHILD_OF_HOOK % str(PACKAGE), python=DEBIAN_PYTHON,
                          env={"PROBING": value, "PROBING_LIBRARY": str(CORE)})
    target.wait_line("ready")
    target.wait_line("child")
    pid = int(re.search(r"child (\d+)", target.output()).group(1))
    try:
        for asked, expected in ((target.pid, parent), (pid, child)):
            if expected:
                wait_for(lambda: world.probing("-t", str(asked), "query", "select 1")
                         .returncode == 0, "a core in %d" % asked)
            else:
                assert our_threads(asked) == []
    finally:
        os.kill(pid, signal.SIGKILL)


def http(port, path, token=None, host="127.0.0.1"):
    request = urllib.request.Request("http://%s:%d%s" % (host, port, path))
    if token:
        request.add_header("Authorization", "Bearer " + token)
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                request, timeout=LIMIT) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_old_names(world):
    """PROBE_ADDR and PROBE_... as the oldest versions had them."""
    port = free_port()
    target = world.start("/bin/sleep", "600",
                         env={"LD_PRELOAD": str(CORE), "PROBE_ADDR": "127.0.0.1:%d" % port,
                              "PROBE_RETENTION_DAYS": "3", "PROBING_RETENTION_DAYS": "2"})
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core")
    assert "listening: 127.0.0.1:%d" % port in target.probing("info").stdout
    assert target.probing("config", "get", "probing.retention").stdout == "2d\n"


@pytest.mark.parametrize("value,address", [("%d", "127.0.0.1"), ("127.0.0.1:%d", "127.0.0.1"),
                                           ("0.0.0.0:%d", "0.0.0.0")])
def test_port_wants_a_token(world, value, address):
    """A bare port is for this machine only; all addresses must be asked for.  A token always."""
    port = free_port()
    target = world.start("/bin/sleep", "600",
                         env={"LD_PRELOAD": str(CORE), "PROBING_PORT": value % port})
    wait_for(lambda: target.probing("query", "select 1").returncode == 0, "a core")
    token_file = next(world.data.iterdir()) / "token"
    wait_for(token_file.exists, "the token")
    assert token_file.stat().st_mode & 0o077 == 0
    token = token_file.read_text()
    assert http(port, "/query?q=select+1") == 401
    assert http(port, "/query?q=select+1", "wrong") == 401
    assert http(port, "/query?q=select+1", token) == 200
    listening = subprocess.run(["cat", "/proc/%d/net/tcp" % target.pid], capture_output=True,
                               text=True).stdout
    local = re.findall(r" ([0-9A-F]{8}):%04X 00000000:0000 0A" % port, listening)
    assert local == ["%08X" % int.from_bytes(socket.inet_aton(address), "little")]
    assert target.probing("eject").returncode == 0
    wait_for(lambda: not our_threads(target.pid), "the end")
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(("127.0.0.1", port))


TITLED = """
import ctypes, time
libc = ctypes.CDLL(None)
libc.strdup.restype = ctypes.c_void_p
libc.strdup.argtypes = [ctypes.c_void_p]
place = ctypes.c_void_p.in_dll(libc, "environ")
old = ctypes.cast(place, ctypes.POINTER(ctypes.c_void_p))
count = next(n for n in range(10000) if not old[n])
kept = (ctypes.c_void_p * (count + 1))(*[libc.strdup(old[n]) for n in range(count)])
place.value = ctypes.addressof(kept)
begin, end = map(int, open("/proc/self/stat").read().rpartition(")")[2].split()[47:49])
title = TITLE.encode()[:end - begin - 1]
ctypes.memmove(begin, title + bytes(end - begin - len(title)), end - begin)
print("ready", flush=True)
while True: time.sleep(1)
"""


@pytest.mark.parametrize("title", ["", "VLLM::Worker_TP0 with a title as long as those of servers"])
def test_a_program_that_gives_itself_a_title(world, title):
    """Ray, vLLM and gunicorn write it over their first environment, which was all that we read:
    PROBING_DATA_DIR and settings were lost without a word."""
    place = world.tmp / "elsewhere"
    place.mkdir(mode=0o700)
    target = world.python("TITLE = %r\n" % title + TITLED, python=DEBIAN_PYTHON, env={
        "PROBING_DATA_DIR": str(place), "PROBING_MAX_MEMORY": "123MB", "RANK": "3"})
    target.wait_line("ready")
    target.inject()
    assert [p.name for p in place.iterdir()] == ["%d-%s" % (
        target.pid, open("/proc/%d/stat" % target.pid).read().rpartition(")")[2].split()[19])]
    assert target.rows("select value from process.envs where name = 'RANK'") == [["3"]]
    assert target.probing("config", "get", "probing.max_memory").stdout == "123MB\n"
    assert target.rows("select count(*) - count(distinct name) from process.envs") == [[0]]
