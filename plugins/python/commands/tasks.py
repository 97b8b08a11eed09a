# SPDX-License-Identifier: Apache-2.0
"""`backtrace --tasks`: what each task of asyncio and trio waits in, from the innermost await
outwards, by event loop and thread, and where each greenlet stands that is not the current one.

No code of the user's runs: only coroutines, generators, tasks and futures of exactly known types
are looked into; of others the type is told.
"""
import gc
import json
import sys
import time
import types
from _weakref import ref

safe = tool("safe")
threads = tool("values")
NAMES = 5  # of tasks that stand for many
DEPTH = 200  # awaits in awaits
ALIKE = 10  # tasks at one place are told apart by what they wait for, in so many groups
AWAITED = (types.CoroutineType, types.GeneratorType, types.AsyncGeneratorType)
TASKS = FUTURES = ()  # asyncio's classes
bases = {}  # of TASKS, by the id of a task's class; as long as main() runs
loops_seen = {}  # by id, as long as main() runs
HELPERS = set()  # code of asyncio's that waits for tasks by a future of its own


class Look(object):
    """The tasks that were found until the time was up."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.until = time.monotonic() + seconds
        self.found = []
        self.left = 0  # tasks that were not reached
        self._objects = None

    def each(self, things, function):
        for i, thing in enumerate(things):
            if time.monotonic() > self.until:
                self.left += len(things) - i
                return
            self.found.append(function(thing))

    def objects(self, test):
        """Tasks among all objects that the interpreter's collector knows."""
        if self._objects is None:
            self._objects = gc.get_objects()
        return [thing for thing in self._objects if test(type(thing))]


class Entry(object):
    __slots__ = "id", "name", "state", "waits", "awaits", "frames", "loop"

    def __init__(self, task, name, state, frames, loop):
        self.id, self.name, self.state, self.frames = id(task), name, state, frames
        self.loop = loop  # what kind, its address, and the ident of its thread
        self.awaits = []  # ids of tasks
        self.waits = []  # their names, or what else it waits for

    def order(self):
        return name_order(self.name)


def name_order(name):
    return name.rstrip("0123456789"), len(name), name


def is_a(thing, kinds):
    return issubclass(type(thing), kinds)


def several(names):
    return names[:NAMES] + (["%d more" % (len(names) - NAMES)] if names[NAMES:] else [])


# ---- asyncio ----

def learn(asyncio):
    """Its classes; the ones in Python, too."""
    global TASKS, FUTURES
    TASKS = tuple(k for k in (asyncio.Task, getattr(asyncio.tasks, "_PyTask", None)) if k)
    FUTURES = asyncio.Future, asyncio.futures._PyFuture
    group = getattr(getattr(asyncio, "taskgroups", None), "TaskGroup", None)
    places = [(asyncio.tasks, "_wait"), (asyncio.tasks, "wait_for"),
              (group, "__aexit__"), (group, "_aexit")]
    HELPERS.clear()
    HELPERS.update(code for code in (getattr(getattr(place, name, None), "__code__", None)
                                     for place, name in places) if code is not None)


def base(task):
    """The class whose methods are asyncio's own, whatever a subclass makes of them."""
    kind = id(type(task))
    if kind not in bases:
        bases[kind] = next(one for one in TASKS if is_a(task, one))
    return bases[kind]


def open_tasks(things):
    return [t for t in things if is_a(t, TASKS) and not base(t).done(t)]


def all_tasks(asyncio, look):
    """The tasks of every loop in every thread."""
    found = {}
    for name in "_all_tasks", "_scheduled_tasks", "_eager_tasks":
        tasks = getattr(asyncio.tasks, name, ())
        for task in list(getattr(tasks, "data", tasks)):  # a WeakSet's, while it changes
            task = task() if type(task) is ref else task
            found[id(task)] = task
    if sys.version_info >= (3, 14):  # there the loops' lists are C's own
        found.update((id(t), t) for t in look.objects(lambda kind: issubclass(kind, TASKS)))
    return open_tasks(found.values())


def referent(thing, kinds):
    """The object that an iterator, which C keeps to itself, goes through."""
    for other in gc.get_referents(thing):
        if type(other) in kinds or is_a(other, FUTURES):
            return other
    return None


def chain(coroutine):
    """([(function, file, line)] innermost first, what the last one awaits, who of asyncio's own
    waits there for tasks)."""
    frames, thing, helper = [], coroutine, None
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
            break
        if frame is not None:
            code = frame.f_code
            frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename,
                           frame.f_lineno))
            if code in HELPERS:
                helper = thing
        thing = inner
        if inner is None:
            break
    return tuple(frames[::-1]), thing, helper


def handed(helper):
    """The tasks that a TaskGroup, wait() or wait_for() waits for: variables of its coroutine."""
    things = gc.get_referents(helper)  # from 3.11 on the variables
    for frame in [t for t in things if type(t) is types.FrameType]:
        things += gc.get_referents(frame)
    group = getattr(getattr(sys.modules["asyncio"], "taskgroups", None), "TaskGroup", None)
    found = {}
    for thing in things:
        thing = getattr(thing, "_tasks", None) if type(thing) is group else thing
        for one in list(thing) if type(thing) is set else [thing]:
            found[id(one)] = one
    return open_tasks(found.values())


def name_of(task):
    return str(safe["plain"](base(task).get_name(task)))


def wait_of(entry, thing, helper):
    """The object that the task waits for: other tasks, or a kind of thing."""
    if thing is None:
        return
    if not is_a(thing, FUTURES):
        entry.waits = [safe["type_name"](type(thing))]
        return
    children = getattr(thing, "_children", None) if "Gather" in type(thing).__name__ else None
    if is_a(thing, TASKS):
        tasks = [thing]
    elif type(children) is list:
        tasks = open_tasks(children)
    else:  # these are sets
        tasks = handed(helper) if helper is not None else []
        tasks.sort(key=lambda task: name_order(name_of(task)))
        if not tasks:
            entry.waits = [type(thing).__name__]
    entry.awaits = [id(t) for t in tasks]
    entry.waits = several([name_of(t) for t in tasks]) if tasks else entry.waits


def loop_of(task):
    """The loop, and the ident of the thread that runs it; 0: none; None: it does not say."""
    loop = base(task).get_loop(task)
    if id(loop) not in loops_seen:
        try:
            ident = object.__getattribute__(loop, "__dict__").get("_thread_id", 0) or 0
        except AttributeError:  # uvloop's
            ident = None
        loops_seen[id(loop)] = safe["type_name"](type(loop)), id(loop), ident
    return loops_seen[id(loop)]


def of_asyncio(task):
    coroutine = base(task).get_coro(task)
    frames, last, helper = chain(coroutine)
    waiter = getattr(task, "_fut_waiter", None)
    if type(coroutine) is types.CoroutineType and coroutine.cr_running:
        state = "running"
    else:  # ready: the loop will run it at its next turn
        state = "waiting" if waiter is not None else "ready"
    entry = Entry(task, name_of(task), state, frames, loop_of(task))
    if state == "waiting":
        wait_of(entry, waiter if is_a(waiter, FUTURES) else last, helper)
    return entry


# ---- trio ----

def trio_threads():
    """Idents of threads by the id of what runs trio there: a variable of trio's own functions."""
    found, names = {}, sys.modules["trio._core._run"].__dict__
    own = [getattr(names.get(name), "__code__", None) for name in ("run", "unrolled_run")]
    for ident, frame in sys._current_frames().items():
        while frame is not None:
            if frame.f_code in own:
                found[id(frame.f_locals.get("runner"))] = ident
            frame = frame.f_back
    return found


def trio_tasks(look):
    """Tasks that have not ended, by trio's own class of them."""
    kind = getattr(sys.modules.get("trio._core._run"), "Task", None)
    return [t for t in look.objects(lambda one: one is kind)
            if getattr(t.coro, "cr_frame", t) is not None] if isinstance(kind, type) else []


def of_trio(task):
    frames, runner = chain(task.coro)[0], id(task._runner)
    if not loops_seen:
        loops_seen.update((one, ("trio", one, ident)) for one, ident in trio_threads().items())
    if getattr(task.coro, "cr_running", False):
        state = "running"
    else:
        state = "ready" if getattr(task, "_next_send_fn", None) is not None else "waiting"
    entry = Entry(task, str(safe["plain"](task.name)), state, frames,
                  loops_seen.get(runner, ("trio", runner, None)))
    if state == "waiting":
        tasks = [child for nursery in getattr(task, "_child_nurseries", ())
                 if not getattr(nursery, "_nested_child_running", True)
                 for child in list(nursery._children)]
        entry.awaits = [id(t) for t in tasks]
        entry.waits = several(sorted([str(safe["plain"](t.name)) for t in tasks], key=name_order))
    return entry


# ---- greenlets ----

def greenlets(look):
    """Greenlets in their middle, gevent's too; the one of now is in the thread's stack."""
    kind = getattr(sys.modules.get("greenlet"), "greenlet", None)
    if not isinstance(kind, type):
        return []
    found = look.objects(lambda one: issubclass(one, kind))
    return [g for g in found if kind.gr_frame.__get__(g) is not None]


def of_greenlet(thing):
    frame, frames = sys.modules["greenlet"].greenlet.gr_frame.__get__(thing), []
    while frame is not None and len(frames) < DEPTH:
        code = frame.f_code
        frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename,
                       frame.f_lineno))
        frame = frame.f_back
    return Entry(thing, "%s 0x%x" % (safe["type_name"](type(thing)), id(thing)), "waiting",
                 tuple(frames), None)


# ---- all of them ----

def groups_of(entries):
    """Lists of tasks of one loop that stand at one place: and wait for the same, unless they wait
    for too many different things."""
    places = {}
    for entry in entries:
        place = places.setdefault((entry.loop, entry.state, entry.frames), {})
        place.setdefault(tuple(entry.waits), []).append(entry)
    found = []
    for place in places.values():
        apart = list(place.values())
        if len(apart) > ALIKE:
            apart = [[entry for group in apart for entry in group]]
        found += [sorted(group, key=Entry.order) for group in apart]
    return found


def in_order(groups):
    """Tasks that nobody waits for come first, by name; each is followed by what it waits for."""
    waited = {one for group in groups for entry in group for one in entry.awaits}
    groups = sorted(groups, key=lambda g: (all(e.id in waited for e in g), Entry.order(g[0])))
    owner = {entry.id: group for group in groups for entry in group}
    found, todo = {}, groups[::-1]
    while todo:
        group = todo.pop()
        if id(group) not in found:
            found[id(group)] = group
            below = {id(owner[one]): owner[one] for entry in group for one in entry.awaits
                     if one in owner}
            todo += sorted(below.values(), key=lambda g: Entry.order(g[0]), reverse=True)
    return list(found.values())


def clean(text):
    return "".join(c if c >= " " and c != "\x7f" else "?" for c in str(text))


def loop_text(loop, thread):
    if loop is None:
        return "Greenlets"
    kind, address, ident = loop
    if ident:
        return 'Event loop of %s in thread %s "%s"' % (kind, thread[0], clean(thread[1]))
    return "Event loop of %s at 0x%x, %s" % (
        kind, address, "which no thread runs" if ident == 0 else "whose thread is not known")


def group_text(group):
    first, names = group[0], [clean(entry.name) for entry in group[:NAMES]]
    head = 'Task "%s"' % names[0]
    if group[1:]:
        head = "%d tasks %s" % (len(group), ", ".join('"%s"' % name for name in names))
        head += ", ..." if group[NAMES:] else ""
    waits = list(dict.fromkeys(one for entry in group[:NAMES] for one in entry.waits))
    if any(entry.waits != first.waits for entry in group):
        waits = waits[:NAMES] + ["..."]
    return "%s (%s%s)\n" % (head, first.state,
                            " for " + ", ".join(map(clean, waits)) if waits else "")


def write_text(look, loops, out):
    lines = []
    for thread, loop, groups in loops:
        count = sum(map(len, groups))
        lines.append("%s: %d task%s\n\n" % (loop_text(loop, thread), count, "s" * (count != 1))
                     if loop is not None else "Greenlets\n\n")
        for group in groups:
            lines.append(group_text(group))
            lines += ["%3d %-22s %s:%s\n" % (depth, clean(func), clean(file), line)
                      for depth, (func, file, line) in enumerate(group[0].frames)]
            lines.append("\n")
    if look.left:
        lines.append("(%d of %d tasks are not shown: they were not reached in %g s)\n" % (
            look.left, look.left + len(look.found), look.seconds))
    elif not look.found:
        lines.append("no task of asyncio or trio and no greenlet waits or runs in this process\n")
    else:
        lines.pop()
    out.write("".join(lines))


def write_json(look, loops, out):
    tasks = [{"name": entry.name, "state": entry.state, "waits_for": entry.waits,
              "loop": loop and "%s 0x%x" % loop[:2], "thread": thread and thread[0],
              "frames": [{"depth": depth, "func": func, "file": file, "line": line}
                         for depth, (func, file, line) in enumerate(entry.frames)]}
             for thread, loop, groups in loops for group in groups for entry in group]
    out.write(json.dumps({"tasks": tasks, "not_reached": look.left}) + "\n")


def main(words, out):
    bases.clear()
    loops_seen.clear()
    look = Look(float(words[words.index("--seconds") + 1]))
    asyncio = sys.modules.get("asyncio")
    if hasattr(asyncio, "run") and hasattr(asyncio, "Task"):  # or it is being imported
        learn(asyncio)
        look.each(all_tasks(asyncio, look), of_asyncio)
    loops_seen.clear()
    look.each(trio_tasks(look), of_trio)
    look.each(greenlets(look), of_greenlet)
    known, by_loop = threads["known_threads"](words), {}
    for entry in look.found:
        by_loop.setdefault(entry.loop, []).append(entry)
    loops = [(loop and loop[2] and known(loop[2]), loop, in_order(groups_of(entries)))
             for loop, entries in by_loop.items()]
    if "--thread" in words:
        only = int(words[words.index("--thread") + 1])
        loops = [one for one in loops if one[0] and one[0][0] == only]
    (write_json if "--json" in words else write_text)(look, loops, out)
    return 0
