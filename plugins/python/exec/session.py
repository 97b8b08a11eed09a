# SPDX-License-Identifier: Apache-2.0
"""What `eval` does inside the interpreter: run a client's code, send what it prints.

Runs in a namespace of its own on the plugin's threads, with the GIL; several clients' code may run
beside each other.  The program's __main__ is seen, never written, and nothing of it is kept when no
code runs: what it lets go must go.
"""
import sys
from types import CodeType

variables = {}  # what clients' code sees as its globals; lives as long as the plugin
brought = {}  # those of them that are __main__'s
needed = set()  # names that functions of clients use: they may be called later
running = 0  # clients' code that runs
COMPLETIONS = 300  # more would not be read
TICK = 0.1  # seconds after which an interrupt is heard in `await`
FILE = "<frozen probing>"  # bindings.h
tools = {}  # our other modules, by name: their namespaces; made when first asked for
native = globals()["native"]  # what is in C: bindings.c
streams = globals()["streams"]  # streams.py's names


class Refused(Exception):
    """Why something is not done, for the client."""


def tool(name):
    """Namespace of one of our own modules."""
    names = tools.get(name)
    if names is None:
        names = {"__builtins__": __builtins__, "__name__": "probing_" + name, "native": native,
                 "tool": tool, "Refused": Refused}
        exec(compile(native["source"](name), FILE, "exec", dont_inherit=True), names)
        tools[name] = names
    return names


# ---- names ----

def refresh():
    """Bring __main__ of now into the clients' variables; what is assigned there stays.  What looks
    for objects has gc from the start, where the program calls nothing else so."""
    import gc
    main = sys.modules.get("__main__")
    now = {"gc": gc}
    now.update(main.__dict__ if main is not None else {})
    for name, value in list(brought.items()):
        if variables.get(name) is not value:
            del brought[name]  # a client has assigned it, or deleted it
        elif name not in now:
            del variables[name], brought[name]
    for name, value in now.items():
        if name in brought or name not in variables:
            variables[name] = brought[name] = value
    variables["__builtins__"] = native["builtins"]
    brought.pop("__builtins__", None)


def put_back():
    """Nothing runs: what is only __main__'s is held no longer."""
    for name, value in list(brought.items()):
        if name not in needed:
            del brought[name]
            if variables.get(name) is value:
                del variables[name]


def note(code):
    """The names that functions in it use."""
    for one in code.co_consts:
        if type(one) is CodeType:
            needed.update(one.co_names)
            note(one)


def enter(emit):
    """Not interrupted, as leave() is not."""
    global running
    streams["enter"](emit)
    running += 1
    refresh()


def settle():
    """An interrupt that is still on its way comes here."""
    for _ in (1, 2):
        pass


def leave():
    global running
    streams["leave"]()
    running -= 1
    if not running:
        put_back()
    forget_thread()


def forget_thread():
    """threading makes an object for a thread that it does not know, and to 3.11 keeps it."""
    threading = sys.modules.get("threading")
    active = getattr(threading, "_active", None)
    if type(active) is dict:
        from _thread import get_ident
        if type(active.get(get_ident())) is getattr(threading, "_DummyThread", None):
            active.pop(get_ident(), None)


# ---- code ----

def compiled(code, name, mode, flags=0):
    made = compile(code, name, mode, flags, dont_inherit=True)
    note(made)
    return made


def awaits(tree):
    """Is there an `await` outside of functions?  The code is whole: a part of it cannot tell."""
    import ast
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, (ast.Await, ast.AsyncFor, ast.AsyncWith)) or \
                isinstance(one, ast.comprehension) and one.is_async:
            return True
        if not isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            todo.extend(ast.iter_child_nodes(one))
    return False


def wait_for(awaitable):
    """In an event loop of our own: those of the program belong to its threads."""
    import asyncio

    async def whole():
        async def tick():
            while True:
                await asyncio.sleep(TICK)
        ticking = asyncio.ensure_future(tick())
        try:
            return await awaitable
        finally:
            ticking.cancel()
    return asyncio.run(whole())


def execute(code, name):
    """Run statements; give the value of the last one when it is an expression."""
    import ast
    flags = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
    tree = compile(code, name, "exec", ast.PyCF_ONLY_AST | flags, dont_inherit=True)
    if flags and awaits(tree):
        return execute_async(tree, name, flags)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    if tree.body:
        exec(compiled(tree, name, "exec"), variables)
    if last is not None:
        return eval(compiled(last, name, "eval"), variables)
    return None


def say_assigned(tree):
    """A line about names that the program has, too, and to which clients' code has given a value,
    or about the only thing that the code did."""
    import ast
    main = getattr(sys.modules.get("__main__"), "__dict__", {})
    names = []
    for one in tree.body:
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        names += [node.id for target in targets if target is not None and
                  isinstance(one, (ast.Assign, ast.AugAssign, ast.AnnAssign))
                  for node in ast.walk(target)
                  if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    alone = len(tree.body) == 1 and len(names) == 1
    names = [name for name in dict.fromkeys(names) if alone or name in main]
    if not names:
        return ""
    return ("probing: %s: set in eval's own variables, which the next eval has, too; the program's "
            "stay as they are, and are changed by: import __main__; __main__.%s = ...\n"
            % (", ".join(names), names[0]))


def execute_async(tree, name, flags):
    import ast
    import asyncio  # noqa: F401  # if it cannot be, no coroutine is begun
    last = None
    if isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    # both are compiled before one runs; a part without await is no coroutine
    parts = [compiled(one, name, mode, flags)
             for one, mode in ((tree, "exec"), (last, "eval")) if one is not None]

    async def whole():
        value = None
        for part in parts:
            value = eval(part, variables)
            if part.co_flags & 0x80:  # inspect.CO_COROUTINE
                value = await value
        return value if last is not None else None
    return wait_for(whole())


def execute_file(code, name, arguments):
    """As a script: no value is shown.  sys.argv is the program's; a file's own is `argv`."""
    variables.update(argv=[name] + arguments, __file__=name)
    try:
        exec(compiled(code, name, "exec"), variables)
    finally:
        for own in ("argv", "__file__"):
            variables.pop(own, None)


def execute_line(code, name, show):
    """Run one statement as a prompt does, `show` each value in it; False: more lines are needed."""
    import ast
    import codeop
    compiler = codeop.CommandCompiler()
    flags = getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
    compiler.compiler.flags |= flags
    statement = wrong = None
    try:
        statement = compiler(code, name, "single")
    except SyntaxError as error:
        wrong = error
    if wrong is not None:  # 3.11's codeop calls most of them "incomplete input"
        compile(code, name, "single", flags, dont_inherit=True)
        raise wrong
    if statement is None:
        return False
    note(statement)
    before, sys.displayhook = sys.displayhook, show
    try:
        found = eval(statement, variables)
        if statement.co_flags & 0x80:
            wait_for(found)
    finally:
        if sys.displayhook is show:
            sys.displayhook = before
    return True


def explain(error, code, name):
    """The traceback as text, from the client's code on."""
    import linecache
    import traceback
    linecache.cache[name] = (len(code), None, [l + "\n" for l in code.split("\n")], name)
    trace = error.__traceback__
    found = trace
    while found is not None and found.tb_frame.f_code.co_filename != name:
        found = found.tb_next
    while found is None and trace is not None and \
            trace.tb_frame.f_code.co_filename == FILE:
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and found is None:  # its traceback is the compiler's
        trace = None
    lines = traceback.format_exception(type(error), error, found or trace)
    linecache.cache.pop(name, None)
    return "".join(lines)


def item_of(value, key):
    """value[key] where that is a look only: no code of the user's, and no new key of a
    defaultdict."""
    kind = type(value)
    getitem = getattr(kind, "__getitem__", None)
    if isinstance(value, dict) and getitem is dict.__getitem__:
        if not dict.__contains__(value, key):
            raise KeyError(key)
        return dict.get(value, key)
    in_c = type(getitem) in (type(list.__len__), type(list.append))
    if in_c or getattr(getitem, "__module__", None) == "torch.nn.modules.container":
        return value[key]
    raise Refused("%s has a __getitem__ of its own" % kind.__name__)


def value_of(node):
    """The value of a chain of names, attributes and constant subscripts; all else would run."""
    import ast
    if type(node) is ast.Name:
        return eval(node.id, variables)
    if type(node) is ast.Attribute:
        return getattr(value_of(node.value), node.attr)
    if type(node) is ast.Subscript:
        key = node.slice
        return item_of(value_of(node.value),
                       ast.literal_eval(key.value if type(key).__name__ == "Index" else key))
    raise Refused("it would have to be run")


def complete(text, out):
    """Send the names that may stand for `text`, one a line; none where its beginning cannot be
    known by a look.  Looks up attributes: a property of the user's runs, as it does at any
    prompt."""
    import ast
    import rlcompleter
    names, before, short = variables, "", text
    if "]" in text or ")" in text:
        before, _, last = text.rpartition(".")
        try:
            names = {"_": value_of(ast.parse(before, mode="eval").body)}
        except Exception:  # a half-written line, no such name, or more than a look
            return
        short = "_." + last
    completer = rlcompleter.Completer(names)
    seen = set()
    for at in range(COMPLETIONS):
        name = completer.complete(short, at)
        if name is None:
            break
        if name not in seen:
            seen.add(name)
            out.write((before + name[1:] if before else name) + "\n")


class Writer(object):
    """The stream that a tool of ours writes to."""

    def __init__(self, emit):
        self.emit = emit

    def write(self, text):
        self.emit(text.encode("utf-8", "backslashreplace"))


def run_tool(name, words, out):
    try:
        return tool(name)["main"](words, out) or 0
    except Refused as refused:
        native["refuse"](str(refused))
        return 3
    except BaseException as error:  # a fault of ours: told whole
        import traceback
        out.write("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        return 1


def run(code, emit, mode):
    """0, 1 after an exception, whose traceback has been sent, or 2: more lines are needed.

    mode: "run" takes all of it; "file" too, with a name and words before it; "line" wants one whole
    statement, as a prompt does; "complete" sends what a name may become; else a tool of ours,
    `code` being its words.
    """
    out = Writer(emit)
    name, arguments = "<eval>", []
    if mode == "file":  # eval.c's joined()
        count, _, rest = code.partition("\x1f")
        words = rest.split("\x1f", int(count) + 1)
        name, arguments, code = words[0], words[1:-1], words[-1]
    elif mode not in ("run", "line", "complete"):
        return run_tool(mode, code.split("\x1f")[:-1], out)

    def show(value):
        if value is not None:
            if mode == "line":
                variables["_"] = value
            out.write(repr(value) + "\n")

    try:
        if mode == "complete":
            complete(code, out)
        elif mode == "run":
            value = execute(code, name)
            show(value)
            if value is None and "=" in code:
                import ast
                flags = ast.PyCF_ONLY_AST | getattr(ast, "PyCF_ALLOW_TOP_LEVEL_AWAIT", 0)
                out.write(say_assigned(compile(code, name, "exec", flags, dont_inherit=True)))
        elif mode == "file":
            execute_file(code, name, arguments)
        elif not execute_line(code, name, show):
            return 2
    except BaseException as error:  # SystemExit too: the process is not ours to end
        try:
            text = explain(error, code, name)
        except Exception as other:
            text = "%s: %s\n(no traceback: %s: %s)\n" % (
                type(error).__name__, error, type(other).__name__, other)
        out.write(text)
        return 1
    return 0
