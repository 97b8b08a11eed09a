# SPDX-License-Identifier: Apache-2.0
"""The imports of our own Python: the standard library, whatever lies on the program's sys.path.

A json.py beside the program's main script is what `import json` finds there.  Code of ours must
neither run it nor break by it.  The standard library is the folder of `encodings`, which the
interpreter loads before sys.path has a folder of the program's.  A module that the program has from
there is shared with it.  Of any other a copy is loaded for us alone, with imports like these; the
program's sys.modules has it under a name that no program uses, as enum and others look their own
module up there.
"""
import sys
from _thread import RLock

PREFIX = "<probing>"
# Their state is the interpreter's or the program's: a copy would be another one.
SHARED = ("asyncio", "ctypes", "threading", "warnings")
ABSENT = ("readline",)  # rlcompleter would make itself the completer of the program's prompt
native = globals()["native"]
builtins = native["builtins"]  # the program's: a dict
program_import = builtins["__import__"]
bootstrap = sys.modules["_frozen_importlib"]
Finder = sys.modules["_frozen_importlib_external"].PathFinder
Module = type(sys)
copies = {}  # by name, from the moment that its code begins to run
whole = {}  # those whose code has ended; read without the lock
lock = RLock()  # of who loads a copy
places = []


def find_places():
    path = getattr(sys.modules.get("encodings"), "__path__", None)
    if type(path) is list and path and path[0].endswith("/encodings"):
        folder = path[0][:-len("/encodings")]
        places.extend([folder, folder + "/lib-dynload"])
        places.extend(p for p in sys.path if type(p) is str and p.endswith("/lib-dynload")
                      and p.startswith(sys.base_exec_prefix) and p not in places)


def is_standard(spec):
    """Is that a module of the standard library?"""
    origin = getattr(spec, "origin", None)
    return origin in ("built-in", "frozen") or type(origin) is str and \
        any(origin.startswith(place + "/") for place in places) and "-packages/" not in origin


def loaded(name):
    """The program's own module of that name where it is the standard library's, and whole."""
    module = sys.modules.get(name)
    spec = module.__dict__.get("__spec__") if type(module) is Module else None
    if is_standard(spec) and not getattr(spec, "_initializing", False):
        return module
    return None


def copy(name, spec, code):
    """A module of the standard library for us alone."""
    module = Module(PREFIX + name)
    path = spec.submodule_search_locations
    module.__dict__.update(
        __builtins__=own, __file__=spec.origin, __spec__=spec,
        __package__=PREFIX + (name.rpartition(".")[0] if path is None else name))
    if path is not None:
        module.__path__ = path
    copies[name] = sys.modules[PREFIX + name] = module
    try:
        exec(code, module.__dict__)
    except BaseException:
        del copies[name], sys.modules[PREFIX + name]
        raise
    copies[name] = whole[name] = sys.modules[PREFIX + name]  # collections.abc puts another there
    return whole[name]


def load_copy(name, path):
    """None: it is another's, and what the program's import gives."""
    spec = Finder.find_spec(name, path)
    if not is_standard(spec) or spec.loader is None:
        return None
    if name in ABSENT:
        raise ImportError(name + " is the program's")
    code = spec.loader.get_code(name)
    if code is None:  # a library of C
        module = bootstrap.module_from_spec(spec)
        spec.loader.exec_module(module)
        whole[name] = copies[name] = module
        return module
    if name not in SHARED:
        return copy(name, spec, code)
    there = sys.modules.get(name)
    origin = getattr(there or Finder.find_spec(name), "__file__" if there else "origin", None)
    if origin != spec.origin:
        raise ImportError("%s is %s here, not the standard library's" % (name, origin))
    return None


def load(name):
    """The module that a name means for us."""
    parent, _, last = name.rpartition(".")
    if parent:
        load(parent)
    inside = copies.get(parent)  # who loads it has the lock, others have waited for its end
    module = whole.get(name) or (loaded(name) if inside is None else None)
    if module is None and name not in sys.builtin_module_names and (inside or not parent):
        with lock:
            module = copies.get(name) or load_copy(name, inside.__path__ if inside else places)
        if inside and module is None:  # 3.14: abc is a name in collections, and has no file there
            module = getattr(inside, last, None)
            if type(module) is not Module:
                raise ImportError("no module named " + name)
        elif inside:
            setattr(inside, last, module)
    if module is None:
        program_import(name)
        module = sys.modules[name]
    return module


def import_name(name, globals=None, locals=None, fromlist=(), level=0):
    """The __import__ of our code and of the copies."""
    if level:
        package = globals["__package__"][len(PREFIX):]
        for _ in range(level - 1):
            package = package.rpartition(".")[0]
        name = package + "." + name if name else package
    module = load(name)
    if not fromlist:
        return load(name.partition(".")[0])
    for one in fromlist:
        if one != "*" and hasattr(module, "__path__") and not hasattr(module, one):
            try:
                load(name + "." + one)
            except ImportError:
                pass  # the `from` says that there is no such name
    return module


find_places()
own = dict(builtins)
if places:
    own["__import__"] = import_name
