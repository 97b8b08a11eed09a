# SPDX-License-Identifier: Apache-2.0
"""probing in this process: start it, ask whether it runs; and ask another process.

    import probing
    probing.init()                          # as PROBING=1 does
    probing.init(listen="127.0.0.1:8080", **{"torch.sample_rate": "0.1"})
    losses = probing.table("loss", {"step": int, "value": float}); losses.append(1, 0.5)
    with probing.span("epoch", number=1): probing.event("begun")
    probing.step()                          # in a loop whose steps have no optimizer to end them
    probing.query("select type, count from python.objects order by count desc limit 5").frame()
    probing.config("torch.sample_rate", 0.5)
    probing.connect(4242).query("select name, rows from probing.tables").dicts()

Nothing happens at import.  libprobing.so is PROBING_LIBRARY or the one that was installed with this
package (_where.py); it is found at run time and not linked.
"""
import os
import sys

from . import _where
from . import spans as _spans
from . import tables as _tables
from ._where import ProbingError
from .spans import event, span, step
from .tables import table

__all__ = ["init", "config", "connect", "event", "is_running", "library", "query", "set_role",
           "span", "step", "table", "version", "ProbingError"]


ProbingError.__module__ = __name__  # where users catch it
_BEGIN_S = 5       # whoever asks for probing waits so long for it: a machine may be busy
_HOOK_S = 1        # and a program that knows nothing of it
_PATIENCE_S = 0.1  # for a main thread to come by


def __getattr__(name):
    if name not in ("version", "__version__"):
        raise AttributeError("module 'probing' has no attribute %r" % name)
    version = _where.version()
    globals().update(version=version, __version__=version)
    return version


def library():
    """Path of libprobing.so; ProbingError when there is none that can be loaded here."""
    return _where.library()


def is_running():
    """Does probing run in this process, however it came in?"""
    for tid in os.listdir("/proc/self/task"):
        try:
            with open("/proc/self/task/%s/comm" % tid) as comm:
                if comm.read().startswith("probing/"):
                    return True
        except OSError:  # that thread ended
            pass
    return False


def _attach(native):
    """Called by the plugin: what it has for us, or None when it leaves."""
    if native is not None:
        _spans._arrives = _tables._arrives = None
    _spans.attach(native)
    _tables.attach(native)


def _wait_until(deadline, core):
    """Gives a function that waits until the plugin is here, which was started a moment ago, and
    tells in `failed` why it will not come."""
    import time

    def arrives():
        patience = time.monotonic() + _PATIENCE_S
        while _spans._begin is None and time.monotonic() < deadline and not arrives.failed:
            time.sleep(0.0005)  # the main thread comes by meanwhile
            arrives.failed = _why(core)
            if time.monotonic() > patience:  # or it does not: it is in a call of C, and this is
                _have_the_plugin_come()      # another thread; and the core may not answer yet
                patience = time.monotonic() + _PATIENCE_S
        _spans._arrives = _tables._arrives = None
        return _spans._begin is not None
    arrives.failed = ""
    return arrives


def _have_the_plugin_come():
    from . import client
    try:
        with connect(os.getpid(), timeout=1) as own:
            own.run("eval", "--timeout", "1", "None")
    except client.Error:
        pass


def set_role(role):
    """What this process does in its job, "actor" or "learner": the column role of its rows, and
    ROLE_NAME of the environment for those who come later and for children."""
    os.environ["ROLE_NAME"] = str(role)
    look = (getattr(sys, "_probing", None) or {}).get("role")
    if look is not None:
        look()
    tell = getattr(sys, "_probing_role", None)
    if tell is not None:
        tell(str(role))


def connect(target=None, token=None, timeout=30.0):
    """Ask another process: a pid, "host:port", a socket or a data directory; see client.py."""
    from . import client
    return client.connect(target, token, timeout)


def _text_of(value):
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _own():
    """A connection to this process; where probing has just begun, once it answers."""
    import time
    from . import client
    deadline = time.monotonic() + _BEGIN_S
    while True:
        try:
            return connect(os.getpid())
        except client.Gone:
            if not is_running():
                raise client.Gone("probing does not run in this process; probing.init() starts it")
            if time.monotonic() > deadline:
                raise
        time.sleep(0.002)


def query(sql, timeout=None):
    """Rows of an SQL statement over what is measured here: a list of tuples, with .dicts(),
    .column(name), .columns() and, for pandas, .frame().

    client.Error when probing does not run in this process, or about the statement.
    timeout: seconds, then the statement is stopped.
    """
    with _own() as own:
        return own.query(sql, timeout=timeout)


def config(name=None, value=None):
    """Settings of this process: all as a dict of texts, one by name, or a new value for one.

    client.Error for a name that is not known, or a value that is not allowed, with the reason.
    """
    with _own() as own:
        if name is None:
            return dict(own.query("select name, value from probing.settings"))
        if value is None:
            return own.run("config", "get", name).strip()
        return own.run("config", "set", name, _text_of(value)).strip()


def init(listen=None, **settings):
    """Start probing in this process: True, or False when it ran already (then the settings are
    changed as config() does it).  What is recorded from here on is kept.

    listen: "HOST:PORT" to open to the network, as the setting server.listen; a line on stderr then
    says where the page is, with its token.
    settings: by name; a dot in a name may be written as two underscores
    (torch__sample_rate="0.1").
    """
    if listen is not None:
        settings["server.listen"] = listen
    settings = {name.replace("__", "."): _text_of(value) for name, value in settings.items()}
    if not _start(settings, _BEGIN_S):
        for name, value in sorted(settings.items()):
            config(name, value)
        _tell_page(settings)
        return False
    arrives = _spans._arrives
    if arrives is not None and not arrives() and arrives.failed:
        raise ProbingError(arrives.failed)
    _tables.wait()
    _tell_page(settings)
    return True


def _tell_page(settings):
    if settings.get("server.listen"):
        from . import _page
        _page.tell(_own)


def _start(settings, seconds=_HOOK_S):
    """Have libprobing.so begin, and do not wait for it: True, or False when it ran already."""
    lines = []
    for name, text in sorted(settings.items()):
        if "\n" in name or "\n" in text or "=" in name:
            raise ValueError("a setting's name and value have no line breaks, a name no '='")
        lines.append("%s=%s" % (name, text))
    import ctypes
    beware = _where.foreign()
    if beware:
        sys.stderr.write("probing: %s\n" % beware)
    try:
        core = ctypes.CDLL(library(), use_errno=False)
        start = core.probing_start
    except (OSError, AttributeError) as error:
        raise ProbingError(str(error))
    if not is_running():  # what a parent had, before a fork, is not here
        _attach(None)
    start.argtypes, start.restype = [ctypes.c_char_p], ctypes.c_int
    result = start("\n".join(lines).encode())
    if result < 0:
        raise ProbingError("libprobing.so refused: %s" % os.strerror(-result))
    # Its thread names itself a moment after start; from here on is_running() must be right.
    import time
    deadline = time.monotonic() + seconds
    while not is_running() and time.monotonic() < deadline:
        if _why(core):
            raise ProbingError(_why(core))
        time.sleep(0.0005)
    if _spans._begin is None:  # what is recorded first waits for the plugin
        _spans._arrives = _tables._arrives = _wait_until(deadline, core)
    return result == 0


def _why(core):
    """Why it has ended again; "" while it has not."""
    import ctypes
    text = ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(core, "probing_why")))
    return text.decode("utf-8", "replace")


if getattr(sys, "_probing", None) is not None:  # else it attaches us when it comes
    _attach(sys._probing)
