# SPDX-License-Identifier: Apache-2.0
"""What `eval` does inside the interpreter: run a client's code, send what it prints.

Runs in a namespace of its own on the plugin's thread, with the GIL.  The user's __main__ is copied,
never written; sys.stdout and sys.stderr are replaced only while code runs, and only this thread's
output is taken.
"""
import sys

variables = {}  # what clients' code sees as its globals; lives as long as the plugin
KEPT = 16  # streams that the program has had
COMPLETIONS = 300  # more would not be read
assigned = set()  # names in it that came from clients' code, not from __main__
tools = {}  # our other modules, by name: their namespaces; made when first asked for
native = globals()["native"]  # what is in C: natives.c


class Refused(Exception):
    """Why something is not done, for the client."""


def tool(name):
    """Namespace of one of our own modules."""
    names = tools.get(name)
    if names is None:
        names = {"__builtins__": __builtins__, "__name__": "probing_" + name, "native": native,
                 "tool": tool, "Refused": Refused}
        exec(compile(native["source"](name), "<probing>", "exec", dont_inherit=True), names)
        tools[name] = names
    return names


class Output(object):
    """Stands for sys.stdout or sys.stderr: our thread's text goes to the client."""

    def __init__(self, original, emit, owner, get_ident):
        self.__dict__.update(_original=original, _emit=emit, _owner=owner, _ident=get_ident)

    def write(self, text):
        if self._ident() != self._owner:
            return self._original.write(text) if self._original is not None else len(text)
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        self._emit(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        if self._ident() != self._owner and self._original is not None:
            self._original.flush()

    def isatty(self):
        return (self._ident() != self._owner and self._original is not None
                and self._original.isatty())

    def __getattr__(self, name):
        return getattr(self._original, name)

    def __setattr__(self, name, value):
        setattr(self._original, name, value)


kept = []  # Outputs, the last used last


def output(original, emit, owner, get_ident):
    """The Output before this stream.  It outlives the eval: until 3.14 print() holds sys.stdout
    without a reference of its own (bltinmodule.c), and a thread of the program's may be in it."""
    found = [o for o in kept if o.__dict__["_original"] is original]
    made = found[0] if found else Output(original, emit, owner, get_ident)
    made.__dict__.update(_emit=emit, _owner=owner)
    kept[:] = [o for o in kept if o is not made][-KEPT:] + [made]
    return made


def refresh():
    """Bring __main__ of now into the clients' variables; gives the copy it was made from."""
    main = sys.modules.get("__main__")
    now = dict(main.__dict__) if main is not None else {}
    for name in [n for n in variables if n not in now and n not in assigned]:
        del variables[name]
    for name, value in now.items():
        if name not in assigned:
            variables[name] = value
    variables["__builtins__"] = __builtins__
    return now


def remember(main):
    assigned.clear()
    assigned.update(name for name, value in variables.items() if name != "__builtins__"
                    and (name not in main or main[name] is not value))


def execute(code, name):
    """Run statements; give the value of the last one when it is an expression."""
    import ast
    tree = ast.parse(code, name)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    if tree.body:
        exec(compile(tree, name, "exec", dont_inherit=True), variables)
    if last is not None:
        return eval(compile(last, name, "eval", dont_inherit=True), variables)
    return None


def execute_file(code, name, arguments):
    """As a script: no value is shown.  sys.argv is the program's; a file's own is `argv`."""
    variables.update(argv=[name] + arguments, __file__=name)
    try:
        exec(compile(code, name, "exec", dont_inherit=True), variables)
    finally:
        for own in ("argv", "__file__"):
            variables.pop(own, None)


def explain(error, code, name):
    """The traceback as text, from the client's code on."""
    import linecache
    import traceback
    linecache.cache[name] = (len(code), None, [l + "\n" for l in code.split("\n")], name)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == "<probing>":
        trace = trace.tb_next
    if isinstance(error, SyntaxError):  # its traceback is the compiler's
        trace = None
    lines = traceback.format_exception(type(error), error, trace)
    linecache.cache.pop(name, None)
    return "".join(lines)


def execute_line(code, name, show):
    """Run one statement as a prompt does, `show` each value in it; False: more lines are needed."""
    import codeop
    statement = codeop.compile_command(code, name, "single")
    if statement is None:
        return False
    before, sys.displayhook = sys.displayhook, show
    try:
        exec(statement, variables)
    finally:
        if sys.displayhook is show:
            sys.displayhook = before
    return True


def complete(text, out):
    """Send the names that may stand for `text`, one a line.  Looks up attributes: a property of
    the user's runs, as it does at any prompt."""
    import rlcompleter
    completer = rlcompleter.Completer(variables)
    seen = set()
    for at in range(COMPLETIONS):
        name = completer.complete(text, at)
        if name is None:
            break
        if name not in seen:
            seen.add(name)
            out.write(name + "\n")


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
    from _thread import get_ident
    owner = get_ident()
    name, arguments = "<eval>", []
    out = output(sys.stdout, emit, owner, get_ident)
    err = output(sys.stderr, emit, owner, get_ident)
    if mode == "file":  # eval.c's joined()
        count, _, rest = code.partition("\x1f")
        words = rest.split("\x1f", int(count) + 1)
        name, arguments, code = words[0], words[1:-1], words[-1]
    elif mode not in ("run", "line", "complete"):
        return run_tool(mode, code.split("\x1f")[:-1], out)
    before = sys.stdout, sys.stderr
    main = refresh()
    sys.stdout, sys.stderr = out, err
    failed = 0

    def show(value):
        if value is not None:
            variables["_"] = value
            out.write(repr(value) + "\n")

    try:
        if mode == "complete":
            complete(code, out)
        elif mode == "run":
            show(execute(code, name))
        elif mode == "file":
            execute_file(code, name, arguments)
        elif not execute_line(code, name, show):
            return 2
    except BaseException as error:  # SystemExit too: the process is not ours to end
        failed = 1
        out.write(explain(error, code, name))
    finally:
        if sys.stdout is out:
            sys.stdout = before[0]
        if sys.stderr is err:
            sys.stderr = before[1]
        remember(main)
    return failed
