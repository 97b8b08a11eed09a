# SPDX-License-Identifier: Apache-2.0
"""`debug`: a pdb session in the main thread, and debugpy for those who bring an editor.

The session is Python's own pdb with its input and output in C (debug.c).  It begins where the main
thread next comes back to Python code; leaving it, however that comes about, takes out the tracing
function and the breakpoints, and the program goes on.
"""
import sys

safe = tool("safe")
FAR_WARNING = ("other machines can reach %s, and what they send is not encrypted; go through "
               "`ssh -L %d:127.0.0.1:%d HOST`, or add --open, with which they need a token")
BRING = ("debugpy is not in this Python (%s); bring it: `%s -m pip install debugpy`, or Debian's "
         "python3-debugpy for Debian's Python; or name a directory that has it: --debugpy DIR "
         "(VS Code's: ~/.vscode/extensions/ms-python.debugpy-*/bundled/libs)")
STILL_S = 25  # for debugpy to begin to listen, of the time in which nothing of it goes on
LOOK_S = 0.25


class Lines(object):
    """Stands for sys.stdin."""
    encoding = "utf-8"

    def __init__(self, life):
        self.life = life

    def readline(self):
        line = native["debug_read"](self.life)
        return "" if line is None else line + "\n"


class Writer(object):
    """Stands for sys.stdout."""
    encoding = "utf-8"

    def write(self, text):
        native["debug_write"](text)
        return len(text)

    def flush(self):
        pass


def session_class():
    import pdb

    class Session(pdb.Pdb):
        is_open = True

        def __init__(self):
            self.life = native["debug_life"]()  # of the client's: see debug.c
            pdb.Pdb.__init__(self, stdin=Lines(self.life), stdout=Writer(), nosigint=True,
                             readrc=False)
            self.use_rawinput = False
            self.prompt = "(Pdb) "

        def begin(self, frame):
            self.set_trace(frame)

        def trace_dispatch(self, frame, event, arg):
            if not self.is_open:
                return None
            if native["debug_gone"](self.life):
                self.leave()
                return None
            if native["debug_stop"]():
                self.set_step()
            found = pdb.Pdb.trace_dispatch(self, frame, event, arg)
            return found if self.is_open else None

        def set_continue(self):
            pdb.Pdb.set_continue(self)
            if not self.breaks:
                self.leave()

        def set_quit(self):  # pdb's own raises BdbQuit in the program
            self.leave()

        def leave(self):
            """As if nobody had been here."""
            if not self.is_open:
                return
            self.is_open = False
            for path, lines in list(self.breaks.items()):
                for line in list(lines):
                    self.clear_break(path, line)
            sys.settrace(None)
            frame = sys._getframe()
            while frame is not None:
                if getattr(frame.f_trace, "__self__", None) is self:
                    del frame.f_trace
                frame = frame.f_back
            native["debug_end"](self.life)

        def refused(self, arg):
            self.message("not here: it would end the program or read its terminal; c goes on and "
                         "leaves, help shows the rest")

        do_run = do_restart = do_debug = do_interact = refused

        def do_detach(self, arg):
            """detach\n        Leave the program; it goes on."""
            return self.do_quit(arg)

    return Session


def editor_is_attached():
    debugpy = sys.modules.get("debugpy")
    try:
        return debugpy is not None and debugpy.is_client_connected()
    except Exception:  # a module of theirs has this name, or it is half imported
        return False


def pause():
    """Have the main thread come into a session as soon as it is in Python code."""
    if editor_is_attached():  # and may have all threads stand still, ours too
        raise Refused("an editor is attached through debugpy; it has to disconnect first")
    session = session_class()()

    def come():
        """In the main thread, between two instructions of its own."""
        if native["debug_gone"](session.life):
            return None
        if sys.gettrace() is not None:
            native["debug_write"]("a tracing function is set already (%s): a debugger or a "
                                  "coverage tool; it must end first\n"
                                  % safe["type_name"](type(sys.gettrace())))
            return native["debug_end"](session.life)
        session.begin(sys._getframe(1))

    native["debug_begin"](come)


# ---- debugpy ----

def parse(words):
    o = {"address": "127.0.0.1:5678", "open": False, "debugpy": None}
    rest = iter(words)
    for word in rest:
        if word == "--open":
            o["open"] = True
        elif word in ("--address", "--debugpy"):
            o[word[2:]] = next(rest, "")
        else:
            raise Refused("debug --dap has no option '%s'" % word)
    host, colon, port = o["address"].rpartition(":")
    if not colon and port.isdigit():
        host = "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise Refused("--address needs HOST:PORT, such as 127.0.0.1:5678")
    o["host"], o["port"] = host.strip("[]") or "127.0.0.1", int(port)
    return o


def resolve(o):
    """The family and address to listen on, and whether only this machine can reach it."""
    import ipaddress
    import socket
    try:
        family, _, _, _, address = socket.getaddrinfo(o["host"], o["port"],
                                                      type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise Refused("cannot listen on %s: %s" % (o["address"], error.strerror or error))
    return family, address, ipaddress.ip_address(address[0].partition("%")[0]).is_loopback


def bring_debugpy(folder):
    """Import it; its warnings on this process are for people who started it that way."""
    import os
    before = os.environ.get("PYDEVD_DISABLE_FILE_VALIDATION")
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    if folder:
        if not os.path.isdir(os.path.join(folder, "debugpy")):
            raise Refused("no folder 'debugpy' in %s, as this process sees it" % folder)
        sys.path.append(folder)
    try:
        import debugpy
        import debugpy.server.api  # noqa: F401  # now, while the variable is set
    except ImportError as error:
        raise Refused(BRING % (error, sys.executable or "python3"))
    finally:
        if folder:
            sys.path.remove(folder)
        if before is None:
            del os.environ["PYDEVD_DISABLE_FILE_VALIDATION"]
        else:
            os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = before
    return debugpy


def needed(debugpy):
    """The debugpy that this CPython takes where this one is older: it says that a breakpoint is
    verified, and never stops there (tried with each).  None: it is not too old."""
    least = {11: (1, 6, 3), 12: (1, 8, 6), 13: (1, 8, 7),
             14: (1, 8, 15), 15: (1, 8, 15)}.get(sys.version_info[1], (0,))
    try:
        version = tuple(int(part) for part in debugpy.__version__.split("+")[0].split(".")[:3])
    except ValueError:
        return None
    return ".".join(map(str, least)) if version < least else None


def open_listener(family, address):
    import socket
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(16)
    except OSError as error:
        listener.close()
        raise Refused("cannot listen on %s:%d: %s" % (address[:2] + (error.strerror,)))
    return listener


def start_adapter(debugpy, listener, token, begun):
    """Our end of the connection to it: see debug_adapter.py."""
    import json
    import os
    import socket
    import subprocess
    ours, theirs = socket.socketpair()
    own = native["debug_user"]()
    o = {"folder": os.path.dirname(os.path.dirname(os.path.abspath(debugpy.__file__))),
         "listener": listener.fileno(), "program": theirs.fileno(), "token": token,
         "users": sorted({0} if own is None else {0, own})}
    try:
        adapter = subprocess.Popen(
            [sys.executable or "python3", "-c", native["source"]("debug_adapter")],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            pass_fds=(o["listener"], o["program"]), start_new_session=True)
        begun["places"].append("/proc/%d/schedstat" % adapter.pid)
        why = adapter.communicate(json.dumps(o).encode())[1].decode("utf-8", "replace")
    except (OSError, subprocess.SubprocessError) as error:
        ours.close()
        raise Refused("the adapter cannot be started: %s" % error)
    finally:
        theirs.close()
    if adapter.returncode != 0:
        ours.close()
        raise Refused("the adapter ended: %s" % (why.strip().splitlines() or ["no word"])[-1])
    return ours


def connect(debugpy, adapter):
    """What debugpy.listen() does once its adapter runs, but pydevd speaks to the adapter through
    this socket, in place of a port that is open to all."""
    import os
    import pydevd
    before, taken = pydevd.start_client, []
    pydevd.start_client = lambda *_: taken.append(adapter) or adapter
    try:
        pydevd.settrace(host="127.0.0.1", port=0, suspend=False, wait_for_ready_to_run=False,
                        block_until_connected=True, notify_stdin=False,
                        patch_multiprocessing=False,  # it changes how a process starts others
                        dont_trace_start_patterns=(os.path.dirname(debugpy.__file__),),
                        dont_trace_end_patterns=("debugpy_launcher.py",))
    finally:
        pydevd.start_client = before
    if not taken:
        raise Refused("a debugger of the program's own is in this process already")


def begin_to_listen(debugpy, family, address, token):
    """In a thread of Python's own: pydevd looks at the one that calls.  It may take longer than
    the call that has begun it; the next one then finds what came of it."""
    import threading
    # no join(): one that is interrupted takes the thread for ended (bpo-45274)
    begun = {"token": token, "places": [], "ended": threading.Event()}

    def run():
        adapter = None
        begun["places"].append("/proc/self/task/%d/schedstat" % threading.get_native_id())
        try:
            with open_listener(family, address) as listener:
                adapter = start_adapter(debugpy, listener, token, begun)
                connect(debugpy, adapter)
                begun["at"] = listener.getsockname()[:2]
        except BaseException as error:
            begun["error"] = error
            if adapter is not None:
                adapter.close()
        begun["ended"].set()

    threading.Thread(target=run, name="debugpy listens", daemon=True).start()
    return begun


def busy_ns(places):
    """How long threads have run and waited for a processor."""
    total = 0
    for place in list(places):
        try:
            with open(place) as text:
                total += sum(map(int, text.read().split()[:2]))
        except (OSError, ValueError):  # it has ended; or no such file here: then the clock counts
            pass
    return total


def wait_for(begun):
    """Where it listens.  As sdk/lib/proc/patience.h does: only the time counts in which neither
    the thread nor the adapter ran or waited for a processor."""
    still, busy = 0.0, busy_ns(begun["places"])
    while not begun["ended"].wait(LOOK_S) and still < STILL_S:
        now = busy_ns(begun["places"])
        still += LOOK_S if now - busy < LOOK_S * 1e9 / 2 else 0
        busy = now
    if isinstance(begun.get("error"), Refused):
        raise begun["error"]
    if "error" in begun:
        raise Refused("debugpy: %s" % begun["error"])
    if "at" not in begun:
        raise Refused("debugpy has not begun to listen yet, and did nothing for %g s; the same "
                      "command asks again" % STILL_S)
    return begun["at"]


def dap(words, out):
    import binascii
    import os
    o = parse(words)
    family, address, local = resolve(o)
    if not local and not o["open"]:
        raise Refused(FAR_WARNING % (o["address"], o["port"], o["port"]))
    debugpy = bring_debugpy(o["debugpy"])
    newer = needed(debugpy)
    if newer is not None:
        raise Refused("debugpy %s stops at no breakpoint of CPython %d.%d: that takes %s or newer"
                      % ((debugpy.__version__,) + sys.version_info[:2] + (newer,)))
    before = dap.begun is not None and "at" in dap.begun
    if dap.begun is None or "error" in dap.begun:
        token = None if local else binascii.hexlify(os.urandom(16)).decode()
        dap.begun = begin_to_listen(debugpy, family, address, token)
    (host, port), token = wait_for(dap.begun), dap.begun["token"]
    out.write("debugpy %s %s %s:%d; attach, in VS Code's launch.json:\n"
              '  {"type": "debugpy", "request": "attach", "name": "probing",\n'
              '   "connect": {"host": "%s", "port": %d}, "justMyCode": false%s}\n'
              "Disconnect lets the program go on; debugpy's threads and its adapter process stay "
              "until the program ends.\n"
              % (debugpy.__version__,
                 "has been listening since before, on" if before else "listens on", host, port,
                 host, port, ',\n   "token": "%s"' % token if token else ""))
    return 0


dap.begun = None  # what has been begun, here or by an earlier call


def main(words, out):
    if words[0] == "pause":
        return pause()
    return dap(words[1:], out)
