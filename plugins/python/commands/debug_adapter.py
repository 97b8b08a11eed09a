# SPDX-License-Identifier: Apache-2.0
"""The process between an editor and a program that is debugged: debugpy's adapter behind a
listener of ours.

debugpy asks nobody who they are: each user of the machine may connect to its listener and to its
port for the program, and may read the token of that port in the words of its adapter.  Here the
program is at the other end of a pair of sockets, and a connection reaches debugpy only if the
kernel says that its other end is a socket of one of the users who may debug the program, or if it
brings the token.

debug.py starts it with a JSON object on its standard input; it runs until the program ends.
"""
import json
import os
import re
import socket
import struct
import sys
import threading
import time

GREETING_S = 30  # for each of a visitor's first messages
PROOF_S = 2  # for the kernel's table to have a new connection
VISITORS_MAX = 32  # who have not been let in yet
HEAD_MAX, BODY_MAX = 256, 1 << 20  # bytes of such a message
HEAD = re.compile(rb"Content-Length: *([0-9]{1,7})\r\n(?:Content-Type:[^\r\n]*\r\n)?\r\n", re.I)


class Refused(Exception):
    """Why a visitor is not let in, in words that it may read."""


# ---- who is at the other end ----

def in_table(address, six):
    """An address as /proc/net/tcp and tcp6 show it; None: that table does not have it."""
    host, port = address[:2]
    raw = socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
    mapped = b"\0" * 10 + b"\xff\xff"
    if not six:
        raw = raw[12:] if raw.startswith(mapped) else raw
        if len(raw) != 4:
            return None
    elif len(raw) == 4:
        raw = mapped + raw
    words = struct.unpack("=%dI" % (len(raw) // 4), raw)
    return "".join("%08X" % word for word in words) + ":%04X" % port


def user_in(path, ends):
    """The user of the socket with these two ends.  Only of a connection that stands and that a
    process holds: the kernel shows all others as root's."""
    with open(path) as table:
        for line in table:
            word = line.split()
            if word[1:3] == ends and word[3] == "01" and word[9] != "0":
                return int(word[7])
    return None


def is_known(uid):
    """False: the number may stand for each user that this user namespace does not have."""
    with open("/proc/sys/kernel/overflowuid") as number, open("/proc/self/uid_map") as users:
        return uid != int(number.read()) or users.read().split() == ["0", "0", "4294967295"]


def user_of(visitor):
    """The user who has connected; None: it is not one of this machine, or cannot be told."""
    far, near = visitor.getpeername(), visitor.getsockname()
    until = time.monotonic() + PROOF_S
    while True:
        for path, six in ("/proc/self/net/tcp", False), ("/proc/self/net/tcp6", True):
            ends = [in_table(far, six), in_table(near, six)]
            uid = user_in(path, ends) if None not in ends and os.path.exists(path) else None
            if uid is not None:
                return uid if is_known(uid) else None
        if not is_of_this_machine(far[0]) or time.monotonic() > until:
            return None
        time.sleep(0.01)


def is_of_this_machine(host):
    return host.rpartition(":")[2].startswith("127.") or host == "::1"


# ---- its first messages ----

def read_message(visitor):
    """A message as DAP has it, and nothing else: what a browser sends begins in another way."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = visitor.recv(1)
        if not byte or len(head) == HEAD_MAX:
            raise Refused("this port speaks DAP only")
        head += byte
    found = HEAD.fullmatch(head)
    if not found or int(found.group(1)) > BODY_MAX:
        raise Refused("this port speaks DAP only")
    body = b""
    while len(body) < int(found.group(1)):
        some = visitor.recv(int(found.group(1)) - len(body))
        if not some:
            raise Refused("the message ends in the middle")
        body += some
    message = json.loads(body.decode())
    if not isinstance(message, dict):
        raise Refused("this port speaks DAP only")
    return message


def write_message(to, message):
    body = json.dumps(message).encode()
    to.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))


def has_token(message, token):
    import hmac
    arguments = message.get("arguments")
    given = arguments.get("token") if isinstance(arguments, dict) else None
    return isinstance(given, str) and hmac.compare_digest(given.encode(), token.encode())


class Visitor:
    """A connection before debugpy has it."""

    def __init__(self, sock, o, begin):
        self.sock, self.o, self.begin = sock, o, begin
        self.inside = self.answers = None  # our end of debugpy's socket for it, and who reads there
        self.last = {}  # message that was read

    def read(self, command=None):
        self.last = {}
        self.last = read_message(self.sock)
        if command is not None and self.last.get("command") != command:
            raise Refused("without the token there is only initialize, then attach")

    def enter(self):
        """Let it in, or say why not.  Who has to bring the token is passed on as far as that:
        debugpy says what it can, in answer to initialize, and editors wait for it."""
        uid = user_of(self.sock)
        proved = uid in self.o["users"]
        if not proved and not self.o["token"]:
            raise Refused("only uid %s may debug this process, and this connection is of %s"
                          % (" and uid ".join(map(str, self.o["users"])),
                             "somebody who cannot be told" if uid is None else "uid %d" % uid))
        self.read(None if proved else "initialize")
        self.inside, theirs = socket.socketpair()
        self.begin(theirs)
        self.answers = threading.Thread(target=self.answer, daemon=True)
        self.answers.start()
        write_message(self.inside, self.last)
        if not proved:
            self.read("attach")
            if not has_token(self.last, self.o["token"]):
                raise Refused("the attach request needs the token that `debug --dap` has printed")
            write_message(self.inside, self.last)

    def refuse(self, why):
        try:
            write_message(self.sock, {"seq": 1, "type": "response", "success": False,
                                      "request_seq": self.last.get("seq", 1),
                                      "command": self.last.get("command", "initialize"),
                                      "message": "probing: %s" % why})
            self.sock.shutdown(socket.SHUT_WR)
            self.sock.settimeout(1)
            self.sock.recv(1 << 16)  # what is not read would throw away the answer
        except OSError:  # it has gone
            pass
        end(self.sock, socket.SHUT_RDWR)

    def forward(self):
        """Read what the editor sends, until it ends."""
        try:
            for data in iter(lambda: self.sock.recv(1 << 16), b""):
                self.inside.sendall(data)
        except OSError:
            pass

    def close(self):
        if self.inside is not None:
            end(self.inside, socket.SHUT_WR)
            self.answers.join()
            self.inside.close()
        self.sock.close()

    def answer(self):
        """What debugpy sends, until it ends.  A write of its own that failed would end the whole
        adapter, so it is read from whether the editor still reads or not."""
        for data in iter(lambda: self.inside.recv(1 << 16), b""):
            try:
                self.sock.sendall(data)
            except OSError:
                pass
        end(self.sock, socket.SHUT_RDWR)


def end(sock, how):
    try:
        sock.shutdown(how)
    except OSError:  # it has ended
        pass


def visit(sock, o, begin, turn):
    visitor = Visitor(sock, o, begin)
    try:
        try:
            sock.settimeout(GREETING_S)
            visitor.enter()
            sock.settimeout(None)
        finally:
            turn.release()
        visitor.forward()
    except (Refused, OSError, ValueError) as error:
        visitor.refuse(error)
    visitor.close()


def serve(listener, o, begin):
    """begin: gets a socket at which an editor speaks that may debug the program."""
    turn = threading.BoundedSemaphore(VISITORS_MAX)
    while True:
        turn.acquire()
        try:
            sock = listener.accept()[0]
            threading.Thread(target=visit, args=(sock, o, begin, turn), daemon=True).start()
        except (OSError, RuntimeError):  # no descriptor or no thread is left at the moment
            turn.release()
            time.sleep(0.1)


# ---- debugpy ----

def leave_parent():
    """As debugpy's own adapter: a child of nobody, which holds nothing of the program's."""
    if os.fork() != 0:
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def main():
    o = json.load(sys.stdin)
    sys.path[0] = o["folder"]  # in place of the program's own folder
    from debugpy.adapter import clients, servers, sessions
    listener, program = socket.socket(fileno=o["listener"]), socket.socket(fileno=o["program"])
    servers.listener = socket.socket()  # it listens nowhere: debugpy opens no port of its own
    clients.listener = listener
    leave_parent()
    servers.Connection(program)  # first: with no program debugpy ends when its last visitor goes
    threading.Thread(target=serve, args=(listener, o, clients.Client), daemon=True).start()
    servers.wait_until_disconnected()
    sessions.wait_until_ended()
    os._exit(0)


if __name__ == "__main__":
    main()
