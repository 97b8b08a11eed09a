# SPDX-License-Identifier: Apache-2.0
"""Over TCP: nothing is open until asked for, and then only with the token."""
import os
import re
import socket
import urllib.error
import urllib.request

import pytest

from world import LIMIT

IDLE = "import time\nprint('ready')\nwhile True: time.sleep(0.05)\n"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def listening(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    port = free_port()
    done = target.inject("-l", "127.0.0.1:%d" % port)
    token = re.search(r"page: http://127.0.0.1:%d/\?token=(\w+)" % port, done.stdout).group(1)
    return target, port, token


def get(port, path, headers=None):
    request = urllib.request.Request("http://127.0.0.1:%d%s" % (port, path), headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_no_port_is_open_until_asked_for(world):
    target = world.python(IDLE)
    target.wait_line("ready")
    target.inject()
    inodes = set()
    for family in ("tcp", "tcp6"):
        with open("/proc/%d/net/%s" % (target.pid, family)) as lines:
            inodes.update(line.split()[9] for line in list(lines)[1:] if line.split()[3] == "0A")
    fds = "/proc/%d/fd" % target.pid
    ours = {os.readlink("%s/%s" % (fds, fd)) for fd in os.listdir(fds)}
    assert not {"socket:[%s]" % inode for inode in inodes} & ours


def test_token_host_and_origin(listening):
    _, port, token = listening
    good = {"Authorization": "Bearer " + token}
    assert get(port, "/query?q=select+1&format=json", good)[0] == 200
    for headers in ({}, {"Authorization": "Bearer " + token[:-1] + "x"},
                    dict(good, Host="evil.example:%d" % port),
                    dict(good, Origin="http://evil.example")):
        status, body = get(port, "/query?q=select+1&format=json", headers)
        assert status in (401, 403) and "error" in body, (headers, status, body)
    status, body = get(port, "/query?q=selct&format=json", good)
    assert status == 400 and "line 1" in body


def test_command_over_tcp(listening):
    target, port, token = listening
    at = "127.0.0.1:%d" % port
    # the token of a process of ours on this machine is found by itself
    assert target.world.probing("-t", at, "eval", "6 * 7").stdout == "42\n"
    refused = target.world.probing("-t", at, "query", "select 1", env={"PROBING_TOKEN": "wrong"})
    assert refused.returncode == 1 and "token" in refused.stderr
    assert target.probing("config", "set", "server.listen", "").returncode == 0
    closed = target.world.probing("-t", at, "query", "select 1", env={"PROBING_TOKEN": token})
    assert closed.returncode == 1 and "refused" in closed.stderr.lower()


def test_plain_text(listening):
    _, port, token = listening
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
        s.sendall(("token %s\nquery 'select 6*7 as answer'\nnonsense\n" % token).encode())
        text = b""
        while b"nonsense" not in text:
            text += s.recv(4096)
    assert b"answer" in text and b"42" in text and b"error: " in text
    with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as s:
        s.sendall(b"query 'select 1'\n")
        answer = s.recv(4096)
    assert b"error" in answer and b"token" in answer
