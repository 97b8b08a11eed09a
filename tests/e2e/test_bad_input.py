# SPDX-License-Identifier: Apache-2.0
"""Wrong input gets one clear line and a non-zero exit code, and leaves the target as it was."""
import os
import shutil
import socket
import subprocess
import tempfile

import pytest

from world import CLI, ROOT, wait_for

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"


@pytest.fixture
def idle(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    return target


def refused(done, *words):
    """One line on stderr with all `words`, nothing on stdout, exit code 1 or 2."""
    assert done.returncode in (1, 2), (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0], done.stderr


def test_no_such_process(world):
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    refused(world.probing("-t", str(gone.pid), "inject"), "no process", str(gone.pid))
    refused(world.probing("-t", "99999999999", "inject"), "is not a pid")
    refused(world.probing("-t", str(gone.pid), "query", "select 1"), "no process")


def test_not_entered_yet(world, idle):
    refused(idle.probing("query", "select 1"), "inject")
    refused(idle.probing("backtrace"), "inject")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_not_ours(world, idle):
    with tempfile.TemporaryDirectory() as place:  # pytest's own directories are closed to others
        os.chmod(place, 0o755)
        for file in ("probing", "libprobing.so"):
            shutil.copy(CLI.parent / file, place)
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               place + "/probing", "-t", str(idle.pid), "inject"],
                              capture_output=True, text=True,
                              env=dict(world.env, PROBING_DATA_DIR="/tmp"))
    refused(done, str(idle.pid))
    assert idle.alive()


def test_already_entered(world, idle):
    idle.inject()
    again = idle.probing("inject")  # it connects, and says where
    assert again.returncode == 0 and "already" in again.stdout and "data: " in again.stdout
    assert idle.rows("select 1") == [[1]]


def test_plugins(world, idle):
    idle.inject()
    refused(idle.probing("plugin", "load", "nosuchplugin"), "nosuchplugin")
    refused(idle.probing("plugin", "load", "./missing.so"), "missing.so")
    refused(idle.probing("plugin", "load", "Not-A-Name"), "Not-A-Name")
    refused(idle.probing("plugin", "stop", "nosuchplugin"), "nosuchplugin")
    refused(idle.probing("plugin", "load", "torch"), "torch")  # no torch in that process
    done = idle.probing("plugin", "load", "profile", "nosuchplugin", "system")  # up to the first
    assert done.stdout == "plugin profile loaded\n" and done.returncode == 1
    assert "no plugin 'nosuchplugin'" in done.stderr, done.stderr
    done = idle.probing("plugin", "stop", "profile", "python")
    assert done.stdout == "plugin profile has stopped\nplugin python has stopped\n", done.stderr
    old = world.plugin(
        "old", '#include <probing/plugin.h>\n'
        'PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {'
        '.size = sizeof(struct probing_plugin), .abi = 9u << 16, .name = "old", .version = "1",'
        ' .doc = "wrong ABI"};\n')
    refused(idle.probing("plugin", "load", str(old)), "ABI")
    (world.tmp / "text.so").write_text("this is no shared object\n")
    refused(idle.probing("plugin", "load", str(world.tmp / "text.so")), "text")
    assert idle.rows("select 1") == [[1]] and idle.alive()


def test_sql(world, idle):
    idle.inject()
    refused(idle.probing("query", "selct 1"), "line 1", "selct")
    refused(idle.probing("query", "select modul from probing.plugins"), "column 8", "modul")
    refused(idle.probing("query", "select * from python.backtrac"), "backtrac", "backtrace")
    refused(idle.probing("query", "select 1/0"), "zero")
    refused(idle.probing("query", "--format", "yaml", "select 1"), "yaml", "json")
    refused(idle.probing("query"), "SQL")
    refused(idle.probing("query", "--colour", "select 1"), "--colour")
    refused(idle.probing("describe", "no.such"), "no.such")


def test_settings(world, idle):
    idle.inject()
    refused(idle.probing("config", "get", "probing.max_memroy"), "max_memory")
    refused(idle.probing("config", "set", "probing.max_memory", "lots"), "lots")
    refused(idle.probing("config", "nonsense"), "nonsense")


def test_directory_of_a_living_process(world, idle):
    idle.inject()
    directory = next(world.data.iterdir())
    refused(world.probing("-t", str(directory), "query", "select 1"), str(idle.pid))
    refused(world.probing("-t", str(world.tmp), "query", "select 1"), "not a data directory")


def test_garbage_on_the_socket(world, idle):
    idle.inject()
    path = next(world.data.iterdir()) / "sock"
    fds = "/proc/%d/fd" % idle.pid
    before = len(os.listdir(fds))
    huge = b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000
    for junk in (b"\0" * 4096, huge, os.urandom(65536), b"GET", b""):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(path))
            try:
                s.sendall(junk)
            except OSError:
                pass
    assert idle.rows("select 1") == [[1]] and idle.alive()
    wait_for(lambda: len(os.listdir(fds)) <= before, "the connections to be closed")


def test_clients_that_leave_while_they_are_greeted(world, idle):
    """Half of them with a handshake that is wrong, which ends the connection from our side too."""
    idle.inject()
    path = str(next(world.data.iterdir()) / "sock")
    for version in (12, 13) * 500:
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(path)
                s.sendall(b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                          b"Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                          b"Sec-WebSocket-Version: %d\r\nSec-WebSocket-Protocol: probing.1\r\n\r\n"
                          % version)
            except OSError:
                pass  # its queue is full
    assert idle.alive()
    wait_for(lambda: idle.probing("query", "select 1").returncode == 0, "an answer")


def test_usage(world):
    refused(world.probing("-t", "1", "injct"), "injct", "inject")
    refused(world.probing("query", "select 1"), "target")
    assert world.probing().returncode == 2
    assert world.probing("help").returncode == 0
    assert "example" in world.probing("help", "inject").stdout
