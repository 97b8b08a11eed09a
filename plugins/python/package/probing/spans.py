# SPDX-License-Identifier: Apache-2.0
"""Spans, events and steps: rows of python.trace_event, once probing is in this process.

    with probing.span("epoch", number=3) as span:
        span.set(loss=0.25)
    @probing.span                       # or @probing.span("name"): each call is a span
    def forward(batch): ...
    probing.event("checkpoint", path="/tmp/3.pt")

A span knows the one around it: in the same thread, and in the same task of asyncio.  Before probing
comes and after it has left nothing is recorded, and a span costs some 0.5 us.  Where probing was in
the process already and only not ready, probing.lost counts the rows.
"""
import functools
import itertools
import sys

from ._where import is_loaded

try:
    import contextvars
except ImportError:  # Python 3.6 has clients only
    contextvars = None

ATTRIBUTES = 3900  # bytes of JSON; the table keeps 4000
_current = contextvars and contextvars.ContextVar("probing.span")
_around, _enter = contextvars and (_current.get, _current.set) or (None, None)
_begin = _end = _event = None  # in C, while probing is in this process
_arrives = None  # waits for them, where probing has just been started
_encode = _quote = None


def attach(native):
    """The dict that the plugin gives, or None: it has left."""
    global _begin, _end, _event, _miss
    native, missed = native or {}, _miss
    if native or _begin is not None:
        _miss = None  # what comes after it has left is not meant for it
    _begin, _end, _event = native.get("begin"), native.get("end"), native.get("event")
    if native:
        native["context"](_current)
        if missed is _count:
            native["early"]("python.trace_event", next(_missed), True)


_missed = itertools.count()  # rows that nobody took, while probing was on its way


def _count(rows):
    for _ in range(rows):
        next(_missed)


def _look(rows):
    """The first that nobody takes.  Without probing in the process none is missed, or counted."""
    global _miss
    if is_loaded():
        _miss = _count
        _count(rows)
    else:
        _miss = None


_miss = _look


def _other(value):
    return str(value)[:200]


def _import_json():
    """It costs 10 ms: when the first attributes come."""
    global _encode, _quote
    import json
    _encode = json.JSONEncoder(default=_other, skipkeys=True, ensure_ascii=False).encode
    _quote = json.encoder.encode_basestring


def _value(value):
    kind = type(value)
    if kind is int:
        return repr(value)
    if kind is str:
        return _quote(value)
    if kind is float:
        return repr(value) if value - value == 0 else "null"  # JSON has no infinity
    try:
        return _encode(value)
    except Exception as error:  # a value that is not to be had must not stop the program
        return _quote("<%s>" % type(error).__name__)


def _json(attributes):
    if _encode is None:
        _import_json()
    text = "{%s}" % ", ".join([_quote(name) + ": " + _value(value)
                               for name, value in attributes.items()])
    if len(text) * 4 > ATTRIBUTES and len(text.encode("utf-8", "replace")) > ATTRIBUTES:
        return _encode({"cut": text[:ATTRIBUTES // 6]})  # six bytes a character at most
    return text


class Span(object):
    """A piece of time with a name; use it in a `with`, one at a time."""

    __slots__ = ("name", "attributes", "record", "_before", "_text")

    def __init__(self, name, attributes):
        self.name, self.attributes, self.record, self._text = name, attributes, None, None

    def set(self, **attributes):
        """More attributes: they are told when the span ends."""
        self.attributes, self._text = dict(self.attributes or (), **attributes), None
        return self

    def _told(self):
        if self._text is None and self.attributes:
            self._text = _json(self.attributes)
        return self._text

    # Written out in one piece each: a call of Python's costs more than what they do.

    def __enter__(self):
        begin = _begin
        if begin is None:
            if _arrives is None or not _arrives():
                miss = _miss  # attach() may take it away at any moment
                if miss is not None:
                    miss(2)  # of its begin and its end
                return self
            begin = _begin
        self._before = before = _around(None)
        self.record = begin(self.name, None if before is None else before.record,
                            self._told() if self.attributes else None)
        if self.record is not None:
            _enter(self)
        return self

    def __exit__(self, kind, value, trace):
        record = self.record
        if record is None:
            return
        _enter(self._before)
        self._before = self.record = None
        if kind is not None:
            self.set(exception=_said(kind, value))
        end = _end
        if end is not None:
            end(self.name, record, kind is not None, self._told() if self.attributes else None)

    def _open(self):
        """Without being around what comes."""
        before = _around(None)
        self.record = _begin(self.name, None if before is None else before.record, self._told())

    def _close(self, kind=None, value=None):
        if self.record is not None:
            before = _around(None)
            self._before = before
            self.__exit__(kind, value, None)

    def __call__(self, function):
        """As a decorator: each call is a span of its own."""
        return around(function, lambda: Span(self.name, self.attributes))


def _said(kind, value):
    try:
        return "%s: %s" % (kind.__name__, str(value)[:200])
    except Exception:
        return kind.__name__


def around(function, new):
    """The function with a span of new() around each call."""
    import inspect
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(around(function.__func__, new))
    if isinstance(function, type):
        raise TypeError("a class has no span around it: decorate its methods")
    if inspect.isasyncgenfunction(function):
        raise TypeError("an asynchronous generator has no span around it: use `with` inside it")
    if inspect.iscoroutinefunction(function):
        async def wrapped(*args, **named):
            with new():
                return await function(*args, **named)
    elif inspect.isgeneratorfunction(function):
        def wrapped(*args, **named):
            span = new()
            if _begin is None:
                miss = _miss  # attach() may take it away at any moment
                if miss is not None:
                    miss(2)
                return (yield from function(*args, **named))
            span._open()  # what its caller does between two items is not inside it
            try:
                result = yield from function(*args, **named)
            except BaseException as error:
                span._close(type(error), error)
                raise
            span._close()
            return result
    else:
        def wrapped(*args, **named):
            with new():
                return function(*args, **named)
    return functools.wraps(function)(wrapped)


def span(name, **attributes):
    """A span to be used in a `with`, or as a decorator: @span, @span("name", key=value)."""
    if type(name) is str:
        return Span(name, attributes)
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        inner = getattr(name, "__func__", name)
        title = getattr(inner, "__qualname__", None) or str(name)
        return around(name, lambda: Span(title, attributes))
    return Span(str(name), attributes)


def event(name, **attributes):
    """Something that happens at one moment, inside the span that runs."""
    if _event is not None or _arrives is not None and _arrives():
        around_it = _around(None)
        _event(name, around_it.record if around_it is not None else None,
               _json(attributes) if attributes else None)
    else:
        miss = _miss
        if miss is not None:
            miss(1)


def step(number=None):
    """A step of the loop begins: of this number in the whole job, if one is given.

    As a statement it tells the torch plugin, where that runs: from the first call on only these
    calls end steps, no optimizer does.  In a `with`, or as a decorator of the function that does a
    step, it is a span "step" as well.
    """
    if callable(number):
        return around(number, step)
    tell = getattr(sys, "_probing_step", None) or (getattr(sys, "_probing", None) or {}).get("step")
    if tell is not None:
        tell(number)
    return Span("step", None if number is None else {"number": number})
