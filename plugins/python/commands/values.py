# SPDX-License-Identifier: Apache-2.0
"""`backtrace --locals=repr`: Python stacks with variables as the program's own repr() shows them.

This runs the program's code, with the GIL, because it was asked to.  Each value is cut, and when
the time is up the rest is told by type only; a __repr__ that hangs is interrupted by the caller.
"""
import _thread
import json
import os
import sys
import time

safe = tool("safe")
CHARACTERS = 200  # of one value
VARIABLES = 64  # of a frame
OPTIMIZED = 1  # co_flags: variables are in the frame, not in a dict
PROGRAM = type(sys), type, type(lambda: 0), type(len)  # what it consists of
FRAMES = 200  # of a thread
SECONDS = 1.0  # for all; then types only


def shown(value, until):
    if time.monotonic() > until:
        return "<%s>" % safe["type_name"](type(value))
    try:
        text = repr(value)
        text = text if type(text) is str else str.__str__(text)
    except Exception as error:
        return "<repr of %s raised %s>" % (safe["type_name"](type(value)),
                                           safe["type_name"](type(error)))
    return text if len(text) <= CHARACTERS else text[:CHARACTERS] + "..."


def variables(frame, until):
    values = frame.f_locals
    if not frame.f_code.co_flags & OPTIMIZED and type(values) is not dict:
        return {}  # of a class body or exec() in a mapping of the program's own
    values = dict(values)  # other threads go on meanwhile
    names = [name for name in values if type(name) is str]
    if not frame.f_code.co_flags & OPTIMIZED:  # a module's or class body's
        names = [name for name in names
                 if name[:2] != "__" and not issubclass(type(values[name]), PROGRAM)]
    found = {name: shown(values[name], until) for name in names[:VARIABLES]}
    if len(names) > VARIABLES:
        found["..."] = None
    return found


def stack(frame, until):
    rows = []
    while frame is not None and len(rows) < FRAMES:
        code = frame.f_code
        rows.append({"depth": len(rows), "type": "python",
                     "func": getattr(code, "co_qualname", code.co_name), "file": code.co_filename,
                     "line": frame.f_lineno, "locals": variables(frame, until)})
        frame = frame.f_back
    return rows


def clean(text):
    return "".join(c if c >= " " and c != "\x7f" else "?" for c in str(text))


def thread_name(tid):
    try:
        with open("/proc/self/task/%d/comm" % tid, errors="replace") as comm:
            return comm.read().rstrip("\n")
    except (OSError, TypeError):
        return "?"


def known_threads(words):
    """A function that gives the kernel's id and the name of a thread by its ident."""
    known = words[words.index("--known") + 1].split() if "--known" in words else []
    tids = dict(map(int, pair.split("=")) for pair in known)
    threading = sys.modules.get("threading")  # importing it here would make us its main thread
    active = dict(getattr(threading, "_active", ()))

    def thread_of(ident):
        thread = active.get(ident)
        tid = tids.get(ident, getattr(thread, "native_id", None))
        name = getattr(thread, "_name", None)
        return tid, name if type(name) is str else thread_name(tid)
    return thread_of


def main(words, out):
    only = int(words[words.index("--thread") + 1]) if "--thread" in words else 0
    thread_of = known_threads(words)
    until = time.monotonic() + SECONDS
    me = _thread.get_ident()
    threads = []
    for ident, frame in sys._current_frames().items():
        tid, name = thread_of(ident)
        if ident == me or (only and tid != only):
            continue
        threads.append({"tid": tid, "name": name, "frames": stack(frame, until)})
    threads.sort(key=lambda t: t["tid"] != os.getpid())
    if "--json" in words:
        out.write(json.dumps({"threads": threads}) + "\n")
        return 0
    for i, t in enumerate(threads):
        out.write('%sThread %s "%s"\n' % ("\n" if i else "", t["tid"], clean(t["name"])))
        for f in t["frames"]:
            out.write("%3d %-22s %s:%s\n" % (f["depth"], clean(f["func"]), clean(f["file"]),
                                             f["line"]))
            for name, text in f["locals"].items():
                out.write("      %s = %s\n" % (clean(name), clean(text)))
    return 0
