# SPDX-License-Identifier: Apache-2.0
"""`backtrace --tasks`: what each asyncio task waits in, from the innermost await outwards, and
where each greenlet stands that is not the current one.

No code of the user's runs: only coroutines, generators, tasks and futures of exactly known types
are looked into; of others the type is told.
"""
import gc
import json
import sys
import types

safe = tool("safe")
CHILDREN = 5  # of a gather, by name
DEPTH = 200  # awaits in awaits


def all_tasks(asyncio):
    """Of every loop in every thread."""
    kinds = tuple(kind for kind in (asyncio.Task, getattr(asyncio.tasks, "_PyTask", None)) if kind)
    found = {}
    for name in "_all_tasks", "_scheduled_tasks", "_eager_tasks":
        for task in list(getattr(asyncio.tasks, name, ())):
            found[id(task)] = task
    if sys.version_info >= (3, 14):  # there the loops' lists are C's own
        for thing in gc.get_objects():
            if issubclass(type(thing), kinds):
                found[id(thing)] = thing
    return [t for t in found.values() if issubclass(type(t), kinds) and not base(t).done(t)]


def base(task):
    """The class whose methods are asyncio's own, whatever a subclass makes of them."""
    asyncio = sys.modules["asyncio"]
    return asyncio.Task if issubclass(type(task), asyncio.Task) else asyncio.tasks._PyTask


def is_future(thing):
    return issubclass(type(thing), (sys.modules["asyncio"].Future,
                                    sys.modules["asyncio"].futures._PyFuture))


def referent(thing, kinds):
    """What an iterator that C keeps to itself goes through."""
    for other in gc.get_referents(thing):
        if type(other) in kinds or is_future(other):
            return other
    return None


AWAITED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)


def chain(coroutine):
    """([(function, file, line)] outermost first, what the last one awaits)."""
    frames, thing = [], coroutine
    for _ in range(DEPTH):
        kind = type(thing)
        if kind is types.CoroutineType:
            frame, inner = thing.cr_frame, thing.cr_await
        elif kind is types.GeneratorType:
            frame, inner = thing.gi_frame, thing.gi_yieldfrom
        elif kind is types.AsyncGeneratorType:
            frame, inner = thing.ag_frame, thing.ag_await
        elif kind.__name__ in ("coroutine_wrapper", "async_generator_asend", "FutureIter",
                               "async_generator_athrow", "anext_awaitable"):
            frame, inner = None, referent(thing, AWAITED)
        else:
            return frames, thing
        if frame is not None:
            code = frame.f_code
            frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename,
                           frame.f_lineno))
        if inner is None:
            return frames, None
        thing = inner
    return frames, thing


def name_of(task):
    return safe["plain"](base(task).get_name(task))


def waited_for(thing):
    """Names of the tasks, or what else it is."""
    if thing is None:
        return []
    if not is_future(thing):
        return [safe["type_name"](type(thing))]
    tasks = sys.modules["asyncio"].Task, sys.modules["asyncio"].tasks._PyTask
    if issubclass(type(thing), tasks):
        return [name_of(thing)]
    children = getattr(thing, "_children", None) if "Gather" in type(thing).__name__ else None
    if type(children) is list:
        left = [name_of(t) for t in children if issubclass(type(t), tasks) and not base(t).done(t)]
        return left[:CHILDREN] + (["%d more" % (len(left) - CHILDREN)] if left[CHILDREN:] else [])
    return [type(thing).__name__]


def in_order(tasks):
    """Those that nobody waits for first, by name; each is followed by what it waits for."""
    waited = {name for task in tasks for name in task["waits_for"]}
    tasks = sorted(tasks, key=lambda t: (t["name"] in waited, t["name"].rstrip("0123456789"),
                                         len(t["name"]), t["name"]))
    named = {}
    for task in tasks:
        named.setdefault(task["name"], []).append(task)
    found, todo = {}, tasks[::-1]
    while todo:
        task = todo.pop()
        if id(task) not in found:
            found[id(task)] = task
            todo += [t for name in reversed(task["waits_for"]) for t in named.get(name, ())]
    return list(found.values())


def look(task):
    coroutine = base(task).get_coro(task)
    frames, last = chain(coroutine)
    kind = type(coroutine)
    running = kind is types.CoroutineType and coroutine.cr_running
    waiter = getattr(task, "_fut_waiter", None)
    if running:
        state = "running"
    elif waiter is not None:
        state = "waiting"
    else:
        state = "ready"  # the loop will run it at its next turn
    waits = waited_for(waiter if is_future(waiter) else last) if state == "waiting" else []
    return {"name": name_of(task), "state": state, "waits_for": waits,
            "frames": [{"depth": depth, "func": func, "file": file, "line": line}
                       for depth, (func, file, line) in enumerate(reversed(frames))]}


def greenlets():
    """Those that stand in their middle, gevent's too; the one of now is in the thread's stack."""
    kind = getattr(sys.modules.get("greenlet"), "greenlet", None)
    found = []
    for thing in gc.get_objects() if isinstance(kind, type) else ():
        if not issubclass(type(thing), kind):
            continue
        frame, frames = kind.gr_frame.__get__(thing), []
        while frame is not None and len(frames) < DEPTH:
            code = frame.f_code
            frames.append({"depth": len(frames), "file": code.co_filename, "line": frame.f_lineno,
                           "func": getattr(code, "co_qualname", code.co_name)})
            frame = frame.f_back
        if frames:
            found.append({"name": "%s 0x%x" % (safe["type_name"](type(thing)), id(thing)),
                          "state": "waiting", "waits_for": [], "frames": frames})
    return found


def clean(text):
    return "".join(c if c >= " " and c != "\x7f" else "?" for c in str(text))


def main(words, out):
    asyncio = sys.modules.get("asyncio")
    whole = hasattr(asyncio, "run") and hasattr(asyncio, "Task")  # or it is being imported
    tasks = in_order([look(t) for t in all_tasks(asyncio)]) if whole else []
    tasks += greenlets()
    if "--json" in words:
        out.write(json.dumps({"tasks": tasks}) + "\n")
        return 0
    for i, task in enumerate(tasks):
        waits = " for " + ", ".join(map(clean, task["waits_for"])) if task["waits_for"] else ""
        out.write('%sTask "%s" (%s%s)\n' % ("\n" if i else "", clean(task["name"]), task["state"],
                                            waits))
        for f in task["frames"]:
            out.write("%3d %-22s %s:%s\n" % (f["depth"], clean(f["func"]), clean(f["file"]),
                                             f["line"]))
    if not tasks:
        out.write("no asyncio task and no greenlet waits or runs in this process\n")
    return 0
