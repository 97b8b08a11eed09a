# SPDX-License-Identifier: Apache-2.0
"""Start probing with the interpreter when the environment asks for it: libprobing.pth imports this.

PROBING (or its old name PROBE):
    0, off, ""       no
    1, on            this process; processes that it starts are left alone
    2                this process and every Python that it starts
    regex:PATTERN    processes whose script's path matches, here and in children
    train.py         processes that run a script of this name, here and in children
PROBING_PORT=PORT or HOST:PORT is enough by itself: this process, with its page on that port.
Children do not get the variable, as the port is taken.  PROBE_ADDR=HOST:PORT is an old name of it
that asks for nothing alone.  A line on stderr says where the page is, with its token.

NCCL_PROFILER_PLUGIN is set where nobody has: NCCL looks for a profiler once, at the first
communicator, and ours costs nothing until the plugin nccl is loaded.

Never raises, never writes to stdout; a start that was asked for and failed says so on stderr.
"""
import os
import sys


def script_of(words):
    """The script, -m module or "" of a Python command line."""
    rest = iter(words[1:])
    for word in rest:
        if word in ("-m", "-c"):
            return next(rest, "") if word == "-m" else ""
        if word in ("-W", "-X", "--check-hash-based-pycs"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
        elif word.startswith("-m"):
            return word[2:]
    return ""


def command_line():
    with open("/proc/self/cmdline", "rb") as words:
        return [os.fsdecode(word) for word in words.read().split(b"\0")[:-1]]


def wanted(value, script):
    """(start here, leave the variable to children)"""
    word = value.strip()
    if word.lower() in ("", "0", "off", "no", "false"):
        return False, True
    if word.lower() in ("1", "on", "yes", "true"):
        return True, False
    if word == "2":
        return True, True
    if word.startswith("regex:"):
        import re
        return re.search(word[len("regex:"):], script) is not None, True
    return bool(script) and word in (script, os.path.basename(script)), True


def refuse_foreign():
    """RuntimeError where `import probing` would run another project's module, or is not whole: that
    other one has overwritten it, or has taken files of both away when it left."""
    from importlib.util import find_spec
    found = find_spec("probing")
    if not found or not found.origin:  # a folder without __init__.py has no origin
        raise RuntimeError("the module probing is not whole beside %s: install libprobing again"
                           % __file__)
    source = found.loader.get_source("probing")
    if source is not None and "\nfrom . import _where" not in source:
        raise RuntimeError("%s is of another project, which has the same names: keep one of the "
                           "two (pip uninstall probing, then install libprobing again)"
                           % os.path.dirname(found.origin))


def offer_profiler():
    """NCCL takes a path of at most 254 bytes."""
    from probing import _where
    path = os.path.join(os.path.dirname(_where.library()), "plugins", "nccl.so")
    if len(os.fsencode(path)) < 255 and os.path.isfile(path):
        os.environ.setdefault("NCCL_PROFILER_PLUGIN", path)


def main():
    name = "PROBING" if os.environ.get("PROBING") else "PROBE"
    value, port = os.environ.get(name), os.environ.get("PROBING_PORT")
    if not value and port:
        name, value = "PROBING_PORT", "1"
    here, inherit = wanted(value or "", script_of(command_line()))
    if not inherit:
        del os.environ[name]
        os.environ.pop("PROBING_PORT", None)  # it is taken
    if here:
        refuse_foreign()
        from probing import _where
        if not _where.believes_environment():
            raise RuntimeError("this program has other rights than the user who started it "
                               "(setuid, capabilities), so its environment does not count; enter "
                               "it by `probing -t PID inject`")
        import probing
        offer_profiler()
        listen = os.environ.get("PROBE_ADDR")
        probing._start({"server.listen": listen} if listen else {})
        if port or listen:
            probing._tell_page({"server.listen": port or listen})


try:
    main()
except Exception as error:  # the user's program begins whatever happens to us
    try:
        sys.stderr.write("probing: not started: %s\n" % error)
    except Exception:
        pass
