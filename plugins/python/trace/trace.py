# SPDX-License-Identifier: Apache-2.0
"""`trace`: finds the function that a name means, and puts what watches it in and takes it out.

CPython 3.12 and newer: sys.monitoring, events of that code object only.  3.8 to 3.10: the function
object's own entry for calls (vectorcall).  3.11, which goes round that entry: its code is replaced
by one of the same parameters that calls a copy of the function.  Each is undone to the bit.
"""
import builtins
import functools
import os
import sys
import types

safe = tool("safe")
NEW = sys.version_info >= (3, 12)
CODE = (3, 11) <= sys.version_info < (3, 12)
TOOL_NAME = "probing"
USAGE = "trace [--args] [--watch VARIABLE] [--duration TIME] [--limit N] [--keep] MODULE.FUNCTION"

REPLACED = "the program has another function of this name by now, which is not watched"

watched = {}  # slot: (name, function, its code, the code put in its place or None, variable)
uses = {}  # id of code: events that are wanted of it, one entry for each slot
monitor = None  # our tool id in sys.monitoring


# ---- from a name to a function ----

def split(name):
    """(module, the words behind it): the longest name that is an imported module."""
    words = name.split(".")
    for n in range(len(words) - 1, 0, -1):
        module = sys.modules.get(".".join(words[:n]))
        if module is not None:
            return module, words[n:]
    main = sys.modules.get("__main__")
    if words[0] not in vars(main) and words[0] in vars(builtins):
        return builtins, words
    path = getattr(main, "__file__", None)
    script = os.path.basename(path).partition(".")[0] if type(path) is str else None
    if len(words) > 1 and words[0] == script:
        words = words[1:]
    return main, words


def attribute(owner, name):
    """As it lies in the module's, class's or object's dict: no descriptor, no __getattr__ runs."""
    if safe["is_a"](type(owner), type):
        for base in type.__dict__["__mro__"].__get__(owner):
            names = type.__dict__["__dict__"].__get__(base)
            if name in names:
                return names[name]
        return None
    if safe["is_a"](type(owner), types.ModuleType):
        return types.ModuleType.__getattribute__(owner, "__dict__").get(name)
    found = member(owner, name)
    return None if found is missing else found


def near(owner, word):
    import difflib
    if safe["is_a"](type(owner), types.ModuleType):
        names = list(types.ModuleType.__getattribute__(owner, "__dict__"))
    else:
        kind = owner if safe["is_a"](type(owner), type) else type(owner)
        names = [n for base in type.__dict__["__mro__"].__get__(kind)
                 for n in type.__dict__["__dict__"].__get__(base)] + list(own_names(owner))
    found = difflib.get_close_matches(word, [n for n in names if type(n) is str], 1)
    return "; did you mean '%s'?" % found[0] if found else ""


def title(owner):
    if safe["is_a"](type(owner), types.ModuleType):
        return str(types.ModuleType.__getattribute__(owner, "__dict__").get("__name__", "?"))
    return safe["type_name"](owner) if safe["is_a"](type(owner), type) else safe["shown"](owner)


def own_names(found):
    """The dict of an object that may have one; nothing of the program's runs."""
    for base in type.__dict__["__mro__"].__get__(type(found)):
        names = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if type(names) is types.GetSetDescriptorType:
            own = names.__get__(found)
            return own if type(own) is dict else {}
    return {}


def can_be_watched(function):
    return NEW or not function.__code__.co_flags & 0x2a0


def inside(found):
    """The function inside a decorated function or method; None: there is none."""
    if safe["is_a"](type(found), staticmethod, classmethod, types.MethodType):
        return found.__func__
    if type(found) is property:
        return found.fget
    if safe["is_a"](type(found), functools.partial, functools.partialmethod):
        return found.func
    if type(found) is functools.cached_property:
        return own_names(found).get("func")
    if safe["type_name"](type(found)).endswith("_lru_cache_wrapper"):
        return found.__wrapped__
    own = own_names(found)
    if "registry" in own and "dispatch" in own:  # of singledispatch: it wraps one of many
        return None
    return own.get("__wrapped__")


def plain_function(name, found):
    """(function, what the user has to know of the way to it); Refused: there is none inside."""
    notes = []
    for _ in range(16):
        inner = inside(found)
        if inner is None:
            break
        if type(found) is types.FunctionType:
            plain = inner if type(inner) is types.FunctionType else None
            if plain is not None and can_be_watched(found) and not can_be_watched(plain):
                break
            notes.append("the function that %s wraps is watched" % found.__qualname__)
        elif type(found) is types.MethodType:
            notes.append("calls for other objects are told, too")
        found = inner
    if type(found) is types.FunctionType:
        return found, notes
    if safe["is_a"](type(found), type):
        raise Refused("%s is a class; name its method: %s.__init__" % (name, name))
    if safe["is_a"](type(found), types.BuiltinFunctionType, types.MethodDescriptorType,
                    types.WrapperDescriptorType, types.MethodWrapperType):
        raise Refused("%s is written in C: it has no Python code to watch; flamegraph shows where "
                      "its time goes" % name)
    raise Refused("%s is no function: %s" % (name, safe["shown"](found)))


class Found(object):
    """The meaning of a name: a function, or code that makes a new function each time it is run."""

    def __init__(self, function, code, notes):
        self.function, self.code, self.notes = function, code, notes
        self.names = function.__globals__
        self.made_anew = code is not function.__code__


def resolve(name):
    owner, words = split(name)
    if not all(words) or not words:
        raise Refused("'%s' names no function: module.function or module.Class.method" % name)
    for n, word in enumerate(words):
        found = attribute(owner, word)
        if found is None and type(owner) is types.FunctionType:
            return inner_code(name, owner, words[n:])
        if found is None:
            hint = near(owner, word)
            if n == 0 and len(words) > 1 and owner is sys.modules.get("__main__"):
                raise Refused("no module '%s' is imported%s" % (word, hint))
            raise Refused("%s has no '%s'%s" % (title(owner), word, hint))
        if n + 1 < len(words) and inside(found) is not None:
            found = plain_function(name, found)[0]
        by_object = not safe["is_a"](type(owner), type, types.ModuleType)
        owner = found
    function, notes = plain_function(name, found)
    if by_object and type(found) is types.FunctionType:
        notes.append("calls for other objects are told, too")
    return Found(function, function.__code__, notes)


def inner_code(name, function, words):
    """A function that another one makes each time it is called."""
    code = function.__code__
    for word in words:
        if word == "<locals>":
            continue
        made = [c for c in code.co_consts if type(c) is types.CodeType]
        found = [c for c in made if c.co_name == word]
        if not found:
            raise Refused("%s has no '%s' and makes no such function%s" % (
                function.__qualname__, word,
                "; it makes " + ", ".join(c.co_name for c in made) if made else ""))
        code = found[0]
    if not NEW:
        raise Refused("%s is made anew in each call: it can be watched from CPython 3.12 on "
                      "(this is %d.%d)" % ((name,) + sys.version_info[:2]))
    return Found(function, code, [])


# ---- sys.monitoring ----

def monitoring():
    """Our tool id; made when the first function is watched."""
    global monitor
    m = sys.monitoring
    if monitor is not None:
        return m
    free = [n for n in (4, 3) if m.get_tool(n) is None]
    if not free:
        raise Refused("both free places of sys.monitoring are taken: by %s and %s"
                      % (m.get_tool(4), m.get_tool(3)))
    m.use_tool_id(free[0], TOOL_NAME)
    monitor = free[0]
    e = m.events
    for event, name in ((e.PY_START, "on_start"), (e.PY_RESUME, "on_start"),
                        (e.PY_RETURN, "on_return"), (e.PY_YIELD, "on_yield"), (e.LINE, "on_line"),
                        (e.PY_UNWIND, "on_unwind"), (e.PY_THROW, "on_start")):
        m.register_callback(monitor, event, native[name])
    m.set_events(monitor, e.PY_UNWIND | e.PY_THROW)  # these two are never of one code alone
    return m


def monitor_code(code, lines):
    m = monitoring()
    e = m.events
    uses.setdefault(id(code), []).append(
        e.PY_START | e.PY_RESUME | e.PY_RETURN | e.PY_YIELD | (e.LINE if lines else 0))
    apply_events(code)


def apply_events(code):
    events = 0
    for wanted in uses[id(code)]:
        events |= wanted
    sys.monitoring.set_local_events(monitor, code, events)


def unmonitor(code, lines):
    global monitor
    m = sys.monitoring
    e = m.events
    uses[id(code)].remove(e.PY_START | e.PY_RESUME | e.PY_RETURN | e.PY_YIELD
                      | (e.LINE if lines else 0))
    apply_events(code)
    if uses[id(code)]:
        return
    del uses[id(code)]
    if uses:
        return
    m.set_events(monitor, 0)
    for event in (e.PY_START, e.PY_RESUME, e.PY_RETURN, e.PY_YIELD, e.LINE, e.PY_UNWIND,
                  e.PY_THROW):
        m.register_callback(monitor, event, None)
    m.free_tool_id(monitor)
    monitor = None


# ---- 3.11: other code in the same function ----

def stub(function, call):
    """Code of the same name and parameters that gives them to `call`."""
    code = function.__code__
    names = code.co_varnames
    only, some, named = code.co_posonlyargcount, code.co_argcount, code.co_kwonlyargcount
    head, pass_on, at = [], [], some + named
    for n, name in enumerate(names[:some]):
        head.append(name + "=0" if function.__defaults__
                    and n >= some - len(function.__defaults__) else name)
        pass_on.append(name)
        if n + 1 == only:
            head.append("/")
    if code.co_flags & 4:  # *args
        head.append("*" + names[at])
        pass_on.append("*" + names[at])
        at += 1
    elif named:
        head.append("*")
    for name in names[some:some + named]:
        head.append(name + "=0")
        pass_on.append("%s=%s" % (name, name))
    if code.co_flags & 8:  # **kwargs
        head.append("**" + names[at])
        pass_on.append("**" + names[at])
    mark = "probing's own mark"
    space = {}
    # `or`: the compiler warns of a constant that is called
    exec(compile("def f(%s): return (%r or 0)(%s)" % (", ".join(head), mark, ", ".join(pass_on)),
                 code.co_filename, "exec", dont_inherit=True), space)
    made = space["f"].__code__
    return made.replace(co_consts=tuple(call if c == mark else c for c in made.co_consts),
                        co_name=code.co_name, co_qualname=code.co_qualname,
                        co_firstlineno=code.co_firstlineno, co_freevars=code.co_freevars)


def copy_of(function, code):
    made = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__,
                              function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


# ---- a variable ----

missing = object()


def member(owner, name):
    """An attribute as it lies in the object, its class or module: no code of the program's runs."""
    if safe["is_a"](type(owner), type, types.ModuleType):
        found = attribute(owner, name)
        return missing if found is None else found
    in_class = attribute(type(owner), name)
    if type(in_class) is types.MemberDescriptorType:  # of __slots__
        try:
            return in_class.__get__(owner)
        except AttributeError:
            return missing
    for base in type.__dict__["__mro__"].__get__(type(owner)):
        names = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if type(names) is types.GetSetDescriptorType:
            own = names.__get__(owner)
            if type(own) is dict and name in own:
                return own[name]
    return missing if in_class is None else in_class


def teller(names, path):
    """Read a value: of a variable whose attributes `path` follow, or (names) of a global."""
    def tell(value):
        if names is not None:
            value = names.get(path[0], missing)
        for word in path[names is not None:]:
            if value is missing:
                return None
            value = member(value, word)
        return None if value is missing else describe_value(value)
    return tell


def find_variable(name, found, variable):
    """(the local one to begin with or None, what tells it)"""
    code = found.code
    own = code.co_varnames + code.co_cellvars + code.co_freevars
    path = variable.split(".")
    if all(path) and path[0] in own:
        return path[0], describe_value if len(path) == 1 else teller(None, path[1:])
    names = found.names
    if all(path) and (path[0] in names or path[0] in code.co_names):
        return None, teller(names, path)
    raise Refused("%s has no variable '%s'; it has %s, the globals of %s, and their attributes"
                  % (name, variable, ", ".join(own) or "none of its own",
                     found.function.__module__))


# ---- in and out ----

def probe():
    """Does this interpreter keep a frame's function where we look for it?"""
    return native["trace_finds"](probe)


def only_one(found):
    """The function to be told from others of the same code; None: there are no others."""
    if found.made_anew or not found.code.co_flags & 0x10:  # inspect.CO_NESTED
        return None
    if probe():
        return found.function
    found.notes.append("functions of the same code are told, too")
    return None


def put_in(name, found, args, variable, limit):
    function, code = found.function, found.code
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        raise Refused("trace counts on the GIL, which this build of CPython does without")
    if not NEW and variable is not None:
        raise Refused("variables can be watched from CPython 3.12 on (this is %d.%d): before, only "
                      "a tracing function sees them, and that slows everything"
                      % sys.version_info[:2])
    if not can_be_watched(function):
        raise Refused("%s is a generator or coroutine: they can be watched from CPython 3.12 on "
                      "(this is %d.%d)" % ((name,) + sys.version_info[:2]))
    for slot, of in watched.items():
        if not NEW and of[1] is function:
            raise Refused("%s is watched already (number %d)" % (name, slot))
    if args:
        global _encode  # now: its import would be a call's to pay
        import json
        _encode = json.JSONEncoder(ensure_ascii=False).encode
    describe = (describe_args, describe_result) if args else None
    place = None
    if NEW:
        base, tell = find_variable(name, found, variable) if variable is not None else (None, None)
        slot = native["trace_slot"](name, code, describe if variable is None else None, limit,
                                    variable, tell, base, only_one(found))
        try:
            monitor_code(code, variable is not None)
        except BaseException:
            native["trace_free"](slot)
            raise
    elif CODE:
        copy = copy_of(function, code)
        slot = native["trace_slot"](name, copy, describe, limit, None, None, None, None)
        place = stub(function, native["trace_wrapper"](slot, copy, function, code))
        function.__code__ = place
    else:
        slot = native["trace_slot"](name, function, describe, limit, None, None, None, None)
        native["trace_entry"](slot, function, True)
    watched[slot] = name, function, code, place, variable
    return slot


def take_out(slot):
    _, function, code, place, variable = watched.pop(slot)
    if NEW:
        unmonitor(code, variable is not None)
    elif CODE:
        if function.__code__ is place:  # else somebody has replaced it meanwhile
            function.__code__ = code
    else:
        native["trace_entry"](slot, function, False)
    native["trace_free"](slot)


# ---- what is told of a call ----

_encode = None  # of JSON


def describe_args(code, values):
    """values: those of co_varnames' first ones, or a function's positional and keyword ones."""
    names = code.co_varnames
    show = safe["plain"]
    shown = {}
    for n, value in enumerate(values[0]):
        name = names[n] if n < code.co_argcount else "*%d" % (n - code.co_argcount)
        shown[name] = show(value)
    for name, value in (values[1] or {}).items():
        shown[name] = show(value)
    return '{"args": %s}' % _encode(shown)


def describe_result(args, value):
    if type(value).__name__ == "async_generator_wrapped_value":  # CPython's own box around it
        import gc
        value = (gc.get_referents(value) + [None])[0]
    return '%s, "result": %s}' % (args[:-1], _encode(safe["plain"](value)))


def describe_value(value):
    """(text, type, number or None)"""
    kind, number = type(value), None
    if kind is float or kind is bool or kind is int and value.bit_length() < 1000:
        number = float(value)
    return safe["shown"](value), safe["type_name"](type(value)), number


# ---- the command ----

def seconds(text):
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    for unit in ("ms", "s", "m", "h"):
        if text.endswith(unit):
            number, factor = text[:-len(unit)], units[unit]
            break
    else:
        number, factor = text, 1.0
    try:
        value = float(number) * factor
    except ValueError:
        value = 0
    if not 0 < value < 1e7:
        raise Refused("trace: --duration needs a time: 10s, 500ms, 2m")
    return value


def parse(words):
    o = {"names": [], "args": False, "watch": None, "duration": 0.0, "limit": 0, "keep": False,
         "list": False, "stop": False, "json": False}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            o["names"].append(word)
        elif word in ("--args", "--keep", "--list", "--stop", "--json"):
            o[word[2:]] = True
        elif name in ("--watch", "--duration", "--limit"):
            value = value if equals else next(rest, "")
            if name == "--duration":
                o["duration"] = seconds(value)
            elif name == "--watch":
                o["watch"] = value
            elif value.isdigit() and 0 < int(value) < 1 << 60:
                o["limit"] = int(value)
            else:
                raise Refused("trace: --limit needs a number of calls: --limit 100")
        else:
            raise Refused("trace has no option '%s'; %s" % (name, USAGE))
    if o["json"] and not o["list"]:
        raise Refused("trace: --json is for --list; what a trace finds is rows of a table")
    return o


LISTED = (("name", "text", ""), ("variable", "text", ""), ("calls", "bigint", "count"),
          ("raised", "bigint", "count"), ("mean_ns", "double", "ns"), ("note", "text", ""))


def list_json(out):
    """As `query --json` gives its answers."""
    import json
    rows = []
    for slot in sorted(watched):
        calls, raised, mean, live = native["trace_count"](slot)
        note = [] if live else ["its limit is reached"]
        note += [REPLACED] if replaced(slot) else []
        rows.append([watched[slot][0], watched[slot][4] or None, calls, raised, mean,
                     ", ".join(note) or None])
    columns = [{"name": name, "type": kind, "unit": unit} for name, kind, unit in LISTED]
    out.write(json.dumps({"columns": columns, "rows": rows, "row_count": len(rows), "lost": 0,
                          "truncated": False}, ensure_ascii=False) + "\n")
    return 0


def main(words, out):
    o = parse(words)
    if o["json"]:
        return list_json(out)
    if not watched and (o["list"] or o["stop"]):
        out.write("nothing is watched\n")
        return 0
    if o["list"]:
        for slot in sorted(watched):
            calls, raised, mean, live = native["trace_count"](slot)
            name, variable = watched[slot][0], watched[slot][4]
            out.write("%3d  %s%s  %d calls, %d raised, mean %s%s%s\n" % (
                slot, name, " " + variable if variable else "", calls, raised, time_text(mean),
                "" if live else ", its limit is reached",
                ", " + REPLACED if replaced(slot) else ""))
        return 0
    if o["stop"]:
        return stop(o["names"], out)
    if not o["names"]:
        raise Refused("trace: which function? " + USAGE)
    slots = []
    try:
        for name in o["names"]:
            found = resolve(name)
            slots.append(put_in(name, found, o["args"], o["watch"], o["limit"]))
            out.write("".join("%s: %s\n" % (name, note) for note in dict.fromkeys(found.notes)))
    except BaseException:
        for slot in slots:
            take_out(slot)
        raise
    native["trace_follow"](sum(1 << slot for slot in slots), int(o["duration"] * 1e9), o["keep"],
                           finish)
    return 0


def time_text(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= size:
            return "%.3g %s" % (ns / size, unit)
    return "%d ns" % ns


def stop(names, out):
    """By name or number; all without one."""
    for word in names:
        if not any(word in (str(slot), watched[slot][0]) for slot in watched):
            raise Refused("'%s' is not watched; `trace --list` shows what is" % word)
    for slot in sorted(watched):
        name = watched[slot][0]
        if not names or name in names or str(slot) in names:
            take_out(slot)
            out.write("no longer watched: %s\n" % name)
    return 0


def replaced(slot):
    """Does its name mean another function by now?"""
    name, function, code, place = watched[slot][:4]
    try:
        found = resolve(name)
    except Refused:
        return True
    return found.function is not function and found.code not in (code, place)


def finish(slots):
    """Note what a client that has left should know."""
    told = []
    for slot in sorted(watched):
        if slots >> slot & 1:
            if replaced(slot):
                told.append("%s: %s\n" % (watched[slot][0], REPLACED))
            take_out(slot)
    return "".join(told)
