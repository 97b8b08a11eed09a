# SPDX-License-Identifier: Apache-2.0
"""Where a process is found, and the proof that it is the one who listens there.

Nothing is sent before the kernel has said who is at the other end; a token goes to its owner only.
"""
import errno
import os
import re
import socket
import stat
import struct
import time

from ._error import Error, Gone

DEFAULT_PORT = 9922


def _status(pid, pattern):
    """The first group of a line of /proc/PID/status."""
    with open("/proc/%d/status" % pid) as status:
        found = re.search(pattern, status.read(), re.M)
    return found.group(1) if found else ""


def _started(pid):
    with open("/proc/%d/stat" % pid, "rb") as text:
        return int(text.read().rpartition(b")")[2].split()[19])


class Door:
    """A data directory, and who must listen at the socket in it.

    Whoever owns a directory can put anything in it: a link to another's socket, or a socket of
    another process.  So no link is followed, and the kernel says who listens, before a byte is
    sent.  pid: who it must be; 0: the process that the directory is called after.
    """

    def __init__(self, directory, name="sock", pid=0, started=0):
        self.directory, self.name, self.pid, self.started = directory, name, pid, started

    def __str__(self):
        return os.path.join(self.directory, self.name)

    def open(self):
        """The directory, by its descriptor.  In another's root each name alone: no link leads out
        of it."""
        root = re.match(r"/proc/\d+/root(?=/)", self.directory)
        if not root:
            return os.open(self.directory or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        at = os.open(root.group(), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in filter(None, self.directory[root.end():].split("/")):
            try:
                if name == "..":
                    raise OSError(errno.EXDEV, "a path that leads out")
                inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                                dir_fd=at)
            finally:
                os.close(at)
            at = inner
        return at

    def dial(self, timeout):
        folder = self.open()
        try:
            # O_PATH of a link is the link itself, which is no socket.
            at = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                if not stat.S_ISSOCK(os.fstat(at).st_mode):
                    raise Error("%s is no socket: no core made it" % self, "ENOTSOCK")
                made = socket.socket(socket.AF_UNIX)
                try:
                    _connect(made, "/proc/self/fd/%d" % at, timeout)
                    self._prove(made, folder)
                except BaseException:
                    made.close()
                    raise
                return made
            finally:
                os.close(at)
        finally:
            os.close(folder)

    def _prove(self, made, folder):
        pid, uid, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED,
                                                          struct.calcsize("3i")))
        if self.pid:
            right = pid == self.pid and (not self.started or self._has_started(pid, self.started))
        else:
            named = re.fullmatch(r"(\d+)-(\d+)(?:\.\d+)?",
                                 os.path.basename(os.readlink("/proc/self/fd/%d" % folder)))
            right = bool(named and pid) and self._has_started(pid, int(named.group(2))) and \
                named.group(1) == (_status(pid, r"^NSpid:.*?(\d+)$") or str(pid))
            if not named or not pid:  # all of it our own user's, who gains nothing
                right = uid == os.geteuid() == os.fstat(folder).st_uid
        if not right:
            raise Error("%s is not the socket of %s: process %d of uid %d listens there; nothing "
                        "was sent to it" % (self, "process %d" % self.pid if self.pid else
                                            "the process that its directory is called after",
                                            pid, uid), "EACCES")

    @staticmethod
    def _has_started(pid, started):
        try:
            return _started(pid) == started
        except OSError:
            return False


def _connect(made, path, timeout):
    """A queue may be full, of a process that is stopped or wants us to wait."""
    end = time.monotonic() + timeout
    made.setblocking(False)
    while True:
        try:
            made.connect(path)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                raise socket.timeout("the process takes no connection")
            time.sleep(0.005)
    made.settimeout(timeout)


def door_of(pid):
    """The directory of a process's core, by its mapped data file: also of another container."""
    try:
        started = _started(pid)
        inside = _status(pid, r"^NSpid:.*?(\d+)$") or str(pid)
        with open("/proc/%d/maps" % pid, errors="surrogateescape") as maps:
            mapped = re.findall(r"^[^/\n]*(/.*)/data\.mdb$", maps.read(), re.M)
        root = os.readlink("/proc/%d/root" % pid)
    except OSError:
        raise Gone("no process %d, or it is not ours" % pid)
    for path in mapped:
        if os.path.basename(path).startswith(inside + "-"):
            if root != "/" and path.startswith(root + "/"):
                path = path[len(root):]
            return Door("/proc/%d/root%s" % (pid, path), pid=pid, started=started)
    raise Gone("process %d has no probing in it" % pid, "probing -t %d inject brings it" % pid)


def split_address(text):
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise Error("'%s' is not host:port" % text, "EINVAL")
    return host.strip("[]") or "localhost", int(port)


def _ends(address, six):
    """An address as /proc/net/tcp shows it, or tcp6, which has both kinds."""
    number = address[0].partition("%")[0]
    if ":" in number:
        raw = socket.inet_pton(socket.AF_INET6, number)
    else:
        raw = (b"\0" * 10 + b"\xff\xff" if six else b"") + socket.inet_pton(socket.AF_INET, number)
    words = struct.unpack("=%dI" % (len(raw) // 4), raw)
    return "%s:%04X" % ("".join("%08X" % word for word in words), address[1])


def _other_end(made):
    """The number of the socket at the other end of a connection, and its user; None: not here."""
    near, far = made.getsockname(), made.getpeername()
    if not re.match(r"127\.|::1$|::ffff:127\.", far[0]):
        return None
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for table, six in (("tcp", False), ("tcp6", True)):
            if not six and ":" in far[0]:
                continue
            want = [_ends(far, six), _ends(near, six)]
            with open("/proc/self/net/" + table) as lines:
                for line in lines:
                    words = line.split()
                    if words[1:3] == want and words[9] != "0":
                        return words[9], words[7]
        time.sleep(0.002)  # it has not been taken in yet
    return None


def _holds(pid, inode):
    fds = "/proc/%s/fd/" % pid
    for number in os.listdir(fds):
        try:
            if os.readlink(fds + number) == "socket:[%s]" % inode:
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def token_of(made):
    """The token of our process at the other end of this very connection, or None: anybody can
    listen on a port and say that he is another, and the kernel knows whose it is."""
    there = _other_end(made)
    for pid in filter(str.isdigit, os.listdir("/proc") if there else ()):
        try:
            if _holds(pid, there[0]) and \
                    there[1] in _status(int(pid), r"^Uid:\s*(.*)$").split():
                return token_in(int(pid))
        except (Error, OSError):
            continue
    return None


def token_in(pid):
    """The token of that process's core.  Error, OSError: it has none that could be believed."""
    folder, how = door_of(pid).open(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        at = os.open("token", how, dir_fd=folder)
        with open(at, "rb") as file:
            own = os.fstat(at).st_uid == os.fstat(folder).st_uid
            if not (own and stat.S_ISREG(os.fstat(at).st_mode)):
                raise Error("the token of process %d is no file of its own" % pid)
            return file.read(4096).split(b"\n")[0].decode("ascii", "replace").strip()
    finally:
        os.close(folder)


def identity(pid):
    """(pid, start time) of a process that lives; None: dead, a zombie or on its way out."""
    try:
        with open("/proc/%d/stat" % pid) as file:
            fields = file.read().rpartition(")")[2].split()
        over = fields[0] in "ZXx" or int(fields[6]) & 4  # PF_EXITING
        if over and len(os.listdir("/proc/%d/task" % pid)) <= 1:
            return None
        return pid, int(fields[19])
    except (OSError, ValueError, IndexError):
        return None


def listens(door):
    """Does anybody listen there?  None: the socket is not there any more."""
    try:
        door.dial(1.0).close()
        return True
    except FileNotFoundError:  # a process that dies loses its view of files, the folder too
        return None if os.path.isdir(door.directory) else False
    except (Error, OSError):
        return False


def has_core(pid, directory):
    """Is the store of the directory mapped?  True also where that cannot be told."""
    leaf = os.path.basename(os.path.abspath(directory))
    try:
        with open("/proc/%d/maps" % pid, errors="surrogateescape") as maps:
            text = maps.read()
    except OSError:
        return True
    return not text or not leaf[:1].isdigit() or "/%s/data.mdb" % leaf in text
