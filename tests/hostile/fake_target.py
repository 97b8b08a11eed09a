# SPDX-License-Identifier: Apache-2.0
"""A process that looks as if a core were in it, and wants harm: what it shows is chosen by argv[1].

usage: fake_target.py JSON, with any of
    root    where it makes "<pid>-<start time>"; the data file in it is mapped, as a core's is
    sock    "listen": answers as a core does, where told what; "full": a queue that nobody empties;
            "link:PATH"; "file"; "fifo"
    door    "link:PATH"
    token   text, or "link:PATH"
    info    text, or "fifo"
    port    a TCP port (0: any) to listen on; all that comes is written to `heard`
    says    the text that is answered to each command at the socket
    heard   a file
It prints "ready DIRECTORY PORT" and goes on until it is killed.  Python 3.8, standard library.
"""
import base64
import hashlib
import json
import mmap
import os
import re
import socket
import struct
import sys
import threading
import time

want = json.loads(sys.argv[1])
started = open("/proc/self/stat").read().rpartition(")")[2].split()[19]
here = "%s/%d-%s" % (want["root"], os.getpid(), started)
os.makedirs(here, 0o755, exist_ok=True)
kept = []


def hear(data):
    with open(want["heard"], "ab") as log:
        log.write(data)


def put(name, what):
    path = os.path.join(here, name)
    if what.startswith("link:"):
        os.symlink(what[5:], path)
    elif what == "fifo":
        os.mkfifo(path)
    else:
        with open(path, "w") as file:
            file.write(what)


def frame(text):
    data = text.encode()
    return (struct.pack("!BB", 0x81, len(data)) if len(data) < 126 else
            struct.pack("!BBH", 0x81, 126, len(data))) + data


def answer(connection):
    """A websocket that says `says` to whatever it is asked."""
    asked = b""
    while b"\r\n\r\n" not in asked:
        asked += connection.recv(4096)
    key = re.search(rb"(?i)Sec-WebSocket-Key: (\S+)", asked).group(1)
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                       b"Connection: Upgrade\r\nSec-WebSocket-Protocol: probing.1\r\n"
                       b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
    number = 0
    while connection.recv(65536):
        number += 1
        connection.sendall(frame(json.dumps({"id": number, "data": want.get("says", "")})) +
                           frame(json.dumps({"id": number, "done": 0})))


def serve(listener, each):
    while True:
        connection = listener.accept()[0]
        threading.Thread(target=each, args=(connection,), daemon=True).start()


def listen_tcp(connection):
    while True:
        data = connection.recv(65536)
        if not data:
            return
        hear(data)


sock = want.get("sock", "")
if sock in ("listen", "full"):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(here, "sock"))
    os.chmod(os.path.join(here, "sock"), 0o777)
    listener.listen(8 if sock == "listen" else 0)
    if sock == "listen":
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
    while sock == "full":
        one = socket.socket(socket.AF_UNIX)
        one.setblocking(False)
        kept.append(one)
        try:
            one.connect(os.path.join(here, "sock"))
        except BlockingIOError:
            break
elif sock:
    put("sock", sock)
for name in ("door", "token", "info"):
    if name in want:
        put(name, want[name])
port = 0
if "port" in want:
    tcp = socket.socket()
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    tcp.bind(("127.0.0.1", want["port"]))
    tcp.listen(8)
    port = tcp.getsockname()[1]
    threading.Thread(target=serve, args=(tcp, listen_tcp), daemon=True).start()
    want["says"] = want.get("says", "") % {"port": port}
with open(os.path.join(here, "data.mdb"), "w+b") as data:
    data.truncate(4096)
    kept.append(mmap.mmap(data.fileno(), 4096))
print("ready", here, port, flush=True)
while True:
    time.sleep(1)
