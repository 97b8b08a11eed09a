# SPDX-License-Identifier: Apache-2.0
"""Hooks for python.exceptions, python.gc and python.imports: in, and out again to the bit.

Each is put in with the GIL on the runner's thread.  One that somebody has wrapped meanwhile stays
where it is and does nothing but go on.
"""
import gc
import sys

safe = tool("safe")
MESSAGE = 400  # characters
FRAMES = 16  # of a stack
OFF, UNHANDLED, RAISED = 0, 1, 2
_args_of = BaseException.__dict__["args"].__get__
_trace_of = BaseException.__dict__["__traceback__"].__get__

mode = OFF  # of exceptions
hooks = []  # (owner, attribute, what was there, ours)
monitor = None  # our tool id in sys.monitoring
importer = None  # (importlib's own, ours)


def message(error):
    """Without running code of the program's: __str__ may be theirs."""
    args = _args_of(error)
    if not args:
        return None
    if len(args) == 1 and type(args[0]) is str:
        return args[0][:MESSAGE]
    return safe["shown"](args if len(args) > 1 else args[0])[:MESSAGE]


def thread_name(thread=None):
    threading = sys.modules.get("threading")
    if thread is None and threading is not None:
        import _thread
        thread = getattr(threading, "_active", {}).get(_thread.get_ident())
    name = getattr(thread, "_name", None)
    return name if type(name) is str else None


# ---- raised: sys.monitoring ----

def on_raise(code, offset, error):
    kind = type(error)
    if kind is StopIteration or kind is StopAsyncIteration or kind is GeneratorExit:
        return  # the end of a loop: nothing is wrong
    trace = _trace_of(error)
    if trace is None or trace.tb_next is not None:
        return  # it comes by here on its way out: it was told where it was raised
    native["exception_row"](safe["type_name"](type(error)), code.co_qualname, code.co_filename,
                            trace.tb_lineno, thread_name(), None, None, message(error))


def monitor_on():
    global monitor
    m = sys.monitoring
    free = [n for n in (3, 4) if m.get_tool(n) is None]
    if not free:
        return "python.exceptions: both free places of sys.monitoring are taken"
    monitor = free[0]
    m.use_tool_id(monitor, "probing exceptions")
    m.register_callback(monitor, m.events.RAISE, on_raise)
    m.set_events(monitor, m.events.RAISE)
    return None


def monitor_off():
    global monitor
    m = sys.monitoring
    m.set_events(monitor, 0)
    m.register_callback(monitor, m.events.RAISE, None)
    m.free_tool_id(monitor)
    monitor = None


# ---- unhandled: around the hooks that CPython calls last ----

def tell_unhandled(error, trace, thread=None):
    if error is None:
        return
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        frames.append((getattr(code, "co_qualname", code.co_name), code.co_filename,
                       trace.tb_lineno))
        trace = trace.tb_next
    func, path, line = frames[-1] if frames else (None, None, -(1 << 63))
    stack = " < ".join("%s %s:%d" % frame for frame in frames[:-FRAMES - 1:-1])
    native["exception_row"](safe["type_name"](type(error)), func, path, line, thread_name(thread),
                            False, stack, message(error))


def around(before, read):
    """The function that CPython calls in place of `before`: it tells, then goes on as before."""
    def hook(*args):
        if mode != OFF:
            try:
                tell_unhandled(*read(*args))
            except Exception:
                pass
        return before(*args)
    return hook


def unhandled_on():
    put(sys, "excepthook", lambda kind, error, trace: (error, trace))
    put(sys, "unraisablehook", lambda args: (args.exc_value, args.exc_traceback))
    threading = sys.modules.get("threading")  # importing it here would make us its main thread
    if threading is not None:
        put(threading, "excepthook", lambda args: (args.exc_value, args.exc_traceback, args.thread))
    loops = sys.modules.get("asyncio.base_events")
    if loops is not None:  # tasks whose exception nobody has asked for
        put(loops.BaseEventLoop, "call_exception_handler", of_a_loop)


def of_a_loop(loop, context):
    error = context.get("exception")
    return error, None if error is None else _trace_of(error)


def put(owner, name, read):
    before = getattr(owner, name)
    ours = around(before, read)
    setattr(owner, name, ours)
    hooks.append((owner, name, before, ours))


def unhandled_off():
    while hooks:
        owner, name, before, ours = hooks.pop()
        if getattr(owner, name, None) is ours:
            setattr(owner, name, before)


# ---- imports ----

def imports(on):
    global importer
    bootstrap = sys.modules["_frozen_importlib"]
    if on and importer is None:
        own = bootstrap._find_and_load
        importer = own, native["import_hook"](own)
        bootstrap._find_and_load = importer[1]
    elif not on and importer is not None:
        if bootstrap._find_and_load is importer[1]:
            bootstrap._find_and_load = importer[0]
        importer = None


def apply(exceptions, collector, loading):
    """Make it as the settings are; a text: what could not be."""
    global mode
    problem = None
    callback = native["gc_callback"]
    if bool(collector) != (callback in gc.callbacks):
        (gc.callbacks.append if collector else gc.callbacks.remove)(callback)
    imports(loading)
    mode = exceptions
    if (exceptions != OFF) != bool(hooks):
        (unhandled_on if exceptions else unhandled_off)()
    if exceptions == RAISED and monitor is None:
        problem = monitor_on()
    elif exceptions != RAISED and monitor is not None:
        monitor_off()
    return problem
