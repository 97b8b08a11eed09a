# SPDX-License-Identifier: Apache-2.0
"""A process whose memory is held by a driver that hangs: whoever reads its map, its environment or
its words waits until the driver lets go, as it does in state D.

usage: hung_target.py FILE [NAME=VALUE ...], in a mount namespace of its own, as root.  Over FILE a
file system (FUSE) is mounted whose server is this process, which never answers a write.  A child of
it, with those variables in its environment, maps another page over one that it has written to: the
kernel writes that back first, with the lock of its memory held.  "ready PID" is printed then;
"refused": this machine does not allow it.  The child ends with us.  Python 3.8, standard library.
"""
import ctypes
import os
import signal
import struct
import subprocess
import sys

INIT, GETATTR, OPEN, READ, WRITE = 26, 3, 14, 15, 16
SHARED, PRIVATE, FIXED, ANONYMOUS = 1, 2, 16, 32
PAGE = os.sysconf("SC_PAGESIZE")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]


def hang(file):
    libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.stat(file)  # the kernel learns its size
    at = libc.mmap(None, PAGE, 3, SHARED, os.open(file, os.O_RDWR), 0)
    ctypes.memset(at, 1, PAGE)
    libc.mmap(at, PAGE, 3, PRIVATE | FIXED | ANONYMOUS, -1, 0)


def serve(fuse, child):
    while True:
        asked = os.read(fuse, 1 << 17)
        _, code, number = struct.unpack("=IIQ", asked[:16])
        if code == INIT:
            said = struct.pack("=IIIIHHII", 7, 19, 1 << 16, 0, 1, 1, 1 << 16, 0)[:24]
        elif code == GETATTR:
            said = struct.pack("=QII6Q10I", 3600, 0, 0, 1, PAGE, 8, 0, 0, 0, 0, 0, 0,
                               0o100644, 1, 0, 0, 0, PAGE, 0)
        elif code == OPEN:
            said = struct.pack("=QII", 1, 0, 0)
        elif code == READ:
            said = bytes(PAGE)
        elif code == WRITE:
            print("ready", child.pid, flush=True)
            continue
        else:
            os.write(fuse, struct.pack("=IiQ", 16, -38, number))  # -ENOSYS
            continue
        os.write(fuse, struct.pack("=IiQ", 16 + len(said), 0, number) + said)


name = os.path.abspath(sys.argv[1])
if sys.argv[2:] == ["hang"]:
    hang(name)
    sys.exit()
server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
options = b"fd=%d,rootmode=100644,user_id=0,group_id=0,allow_other" % server
if libc.mount(b"never", name.encode(), b"fuse", 0, options) != 0:
    print("refused", flush=True)
    sys.exit()
serve(server, subprocess.Popen([sys.executable, "-S", __file__, name, "hang"], env=dict(
    os.environ, **dict(word.split("=", 1) for word in sys.argv[2:]))))
