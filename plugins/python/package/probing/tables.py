# SPDX-License-Identifier: Apache-2.0
"""Tables that the program writes itself: python.NAME in SQL, while it runs and after it was killed.

    losses = probing.table("loss", {"step": int, "value": float, "note": str})
    losses.append(1, 0.5, "warm-up")
    losses.append(step=2, value=0.4)

    @dataclasses.dataclass
    class Batch:
        size: int
        seconds: float
    batches = probing.table(Batch)      # python.batch
    batches.append(Batch(32, 0.01))

Before probing comes and after it has left append() keeps nothing: such rows are counted, and
probing.log says how many they were; where probing was in the process already and only not ready,
they are in probing.lost.  A row never raises for what a value is: one that does not fit is NULL,
and probing.log says so once.
"""
import itertools
import re

from ._where import is_loaded

TYPES = {int: 1, float: 2, str: 3, bytes: 4, bool: 1}
_BY_NAME = {kind.__name__: kind for kind in TYPES}  # annotations may be texts
_OPTIONAL = [re.compile(form) for form in (
    r"\A(?:typing\.)?Optional\[(\w+)\]\Z", r"\A(\w+)\s*\|\s*None\Z", r"\ANone\s*\|\s*(\w+)\Z")]
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_OURS = re.compile(r"(torch_|comm_|gc_)\w*|(backtrace|samples|stacks|trace_event|watched|variables|"
                   r"exceptions|gc|imports|objects|modules|tensors|threads)\Z")

TABLES = 1024  # of one program: the core keeps room for so many, and for its own beside them
_make = _wait = _tell_early = None  # in C, while probing is in this process
_was_there = None  # was libprobing.so, before the first table?  None: nobody has looked
_arrives = None  # waits for it, where probing has just been started
_tables = {}  # by name


def attach(native):
    """The dict that the plugin gives, or None: it has left."""
    global _make, _wait, _tell_early, _was_there
    native = native or {}
    _make, _wait, _tell_early = map(native.get, ("table", "table_wait", "early"))
    for one in list(_tables.values()):
        one._attach(wait=False)
    if native:
        _was_there = False  # what comes after it has left is not meant for it


def wait():
    """Until all that were declared before probing came are there."""
    for one in list(_tables.values()):
        made = getattr(one.append, "__self__", None)
        if _wait is not None and made is not None:
            _wait(made)


class Table(object):
    """Rows that the program appends.  Look up .append each time: it changes when probing comes."""

    def __init__(self, name, columns, row, doc):
        self.name, self.columns, self._row, self._doc = "python." + name, columns, row, doc
        self.append = self._idle = _nothing(columns)
        self._told = 0  # of the calls that _idle has counted

    def __reduce__(self):  # by name: in another process it is that one's
        kinds = {code: kind for kind, code in reversed(list(TYPES.items()))}
        columns = {name: (kinds[code], doc) for name, code, doc in self.columns}
        return table, (self.name[len("python."):], self._row or columns, self._doc)

    def __repr__(self):
        return "<probing.table %s(%s)>" % (self.name, ", ".join(c[0] for c in self.columns))

    def _attach(self, wait):
        make = _make
        made = make(self.name, self._doc, self.columns, self._row, wait) if make else None
        self.append = made or self._idle
        if made and _tell_early:  # now nobody comes by the other way
            rows = next(self._idle.rows)
            early, self._told = rows - self._told, rows + 1
            if early:
                _tell_early(self.name, early, bool(_was_there))


def _nothing(columns):
    """Takes a row's arguments and counts: a wrong name is told without probing, too."""
    rows = itertools.count()
    space = {"_next": rows.__next__}
    exec("def append(%s): _next()" % ", ".join("%s=None" % c[0] for c in columns), space)
    space["append"].rows = rows
    return space["append"]


def _bare(kind):
    """int of Optional[int], of "int | None" and of a class made of int."""
    if isinstance(kind, str):
        for form in _OPTIONAL:
            kind = form.sub(r"\1", kind)
        return _BY_NAME.get(kind, kind)
    options = [one for one in getattr(kind, "__args__", ()) if one is not type(None)]
    if len(options) == 1 and type(None) in kind.__args__:
        kind = options[0]
    if isinstance(kind, type) and kind not in TYPES:
        return next((one for one in (bool, int, float, str, bytes) if issubclass(kind, one)), kind)
    return kind


def _column(name, kind, doc=""):
    if type(kind) is tuple and len(kind) == 2:  # {"value": (float, "after smoothing")}
        kind, doc = kind
    given, kind = kind, _bare(kind)
    if not isinstance(kind, type) or kind not in TYPES:
        raise TypeError("column %s is %r: there are int, float, str, bytes and bool"
                        % (name, given))
    if type(name) is not str or not _NAME.match(name) or name in ("ts", "tid", "timestamp"):
        raise ValueError("%r is no column's name: [a-z][a-z0-9_]*, but ts, tid and timestamp"
                         % (name,))
    return name, TYPES[kind], str(doc)


def _columns(schema):
    fields = getattr(schema, "__dataclass_fields__", None)
    if fields is not None:
        columns = [_column(f.name, f.type, f.metadata.get("doc", "")) for f in fields.values()]
    elif isinstance(schema, dict):
        columns = [_column(name, kind) for name, kind in schema.items()]
    else:
        raise TypeError("a table's columns are a dict of types or a dataclass, not %r" % (schema,))
    if not 0 < len(columns) <= 64:
        raise ValueError("a table has 1 to 64 columns, not %d" % len(columns))
    if any(kind == TYPES[bytes] for _, kind, _ in columns[:-1]):
        raise ValueError("bytes are kept in the last column only")
    return tuple(columns)


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def table(name, columns=None, doc=""):
    """A Table, python.NAME in SQL; the same one for the same name and columns.

    columns: {"name": type} or {"name": (type, "what it is")} or a dataclass; int, float, str, bool,
    and bytes.  table(Dataclass) takes its name from the class.  Texts of the last column may be of
    any kind and length; those of others are words that come again: 100,000 different ones.
    """
    global _was_there
    if columns is None:
        name, columns = _snake(getattr(name, "__name__", "")), name
    if type(name) is not str or not _NAME.match(name):
        raise ValueError("%r is no table's name: [a-z][a-z0-9_]*" % (name,))
    if _OURS.match(name):
        raise ValueError("python.%s is probing's own table: give yours another name" % name)
    row = columns if isinstance(columns, type) else None
    read = _columns(columns)
    if row is not None and not doc and row.__doc__ and not row.__doc__.startswith(row.__name__):
        doc = row.__doc__.strip().split("\n")[0]
    known = _tables.get(name)
    if known is not None:
        if (known.columns, known._row) == (read, row):
            return known
        raise ValueError("python.%s has been made already, with other columns" % name)
    if len(_tables) >= TABLES:
        raise ValueError("python.%s: a program may have %d tables, and has them: put the rows of "
                         "several in one, with a column that says whose they are" % (name, TABLES))
    if _arrives is not None:
        _arrives()
    if _was_there is None and _make is None:
        _was_there = is_loaded()
    made = _tables[name] = Table(name, read, row, str(doc))
    # Probing may come between any two lines: whom attach() finds it attaches, so a table is listed
    # first, and what it was given is not taken away again.
    if _make is not None and made.append is made._idle:
        made._attach(wait=True)
    return made
