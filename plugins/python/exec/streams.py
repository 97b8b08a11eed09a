# SPDX-License-Identifier: Apache-2.0
"""What stands for sys.stdin, sys.stdout and sys.stderr while clients' code runs.

A thread of ours has its text sent to its client and reads the end of the input; every other thread
gets the program's own stream.  Nothing of this is ever freed, and nothing in it is ours in C: to
3.13 print() and input() hold the stream without a reference (bltinmodule.c), and a thread of the
program's may be in one long after the code has ended, and after probing has left.
"""
import sys
from _thread import allocate_lock, get_ident
from _weakref import ref

NAMES = ("stdin", "stdout", "stderr")
sinks = {}  # ident of a thread of ours: what takes its bytes
streams = []  # all that there ever were
lock = allocate_lock()


class Bytes(object):
    """Stands for sys.stdout.buffer."""

    def __init__(self, emit):
        self.emit = emit

    def write(self, data):
        data = bytes(data)
        self.emit(data)
        return len(data)

    def flush(self):
        pass


class Stream(object):
    """The program's stream for its own threads."""

    def __init__(self, original):
        self.__dict__.update(_original=original, _weak=None)

    def _own(self):
        """The program's; None: it has none, or it is gone."""
        if self._weak is not None:
            return self._weak()
        return self._original

    def write(self, text):
        emit = sinks.get(get_ident())
        if emit is None:
            own = self._own()
            return own.write(text) if own is not None else len(text)
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        emit(text.encode("utf-8", "backslashreplace"))
        return len(text)

    def writelines(self, lines):
        for line in lines:
            self.write(line)

    def flush(self):
        if get_ident() not in sinks:
            own = self._own()
            if own is not None:
                own.flush()

    def close(self):  # quit() closes sys.stdin
        if get_ident() not in sinks:
            self._own().close()

    def isatty(self):
        own = None if get_ident() in sinks else self._own()
        return own is not None and own.isatty()

    def readline(self, size=-1):
        return "" if get_ident() in sinks else self._own().readline(size)

    def read(self, size=-1):
        return "" if get_ident() in sinks else self._own().read(size)

    def __iter__(self):
        return iter(()) if get_ident() in sinks else iter(self._own())

    def __next__(self):
        if get_ident() in sinks:
            raise StopIteration
        return next(self._own())

    def __getattr__(self, name):
        if name == "buffer" and get_ident() in sinks:
            return Bytes(sinks[get_ident()])
        return getattr(self._own(), name)

    def __setattr__(self, name, value):
        setattr(self._own(), name, value)


class Input(Stream):
    """sys.stdin: input() asks for the number of its file, and would read that."""

    def fileno(self):
        if get_ident() in sinks:
            raise OSError("code that a client runs has no input")
        return self._own().fileno()


def stand_in(name, original):
    kind = Input if name == "stdin" else Stream
    for one in streams:
        if type(one) is kind and one._own() is original:
            break
    else:
        one = kind(original)
        streams.append(one)
    one.__dict__.update(_original=original, _weak=None)
    return one


def enter(emit):
    """This thread's text goes to `emit` from here on."""
    with lock:
        sinks[get_ident()] = emit
        for name in NAMES:
            there = getattr(sys, name, None)
            if not isinstance(there, Stream):
                setattr(sys, name, stand_in(name, there))


def leave():
    with lock:
        sinks.pop(get_ident(), None)
        if not sinks:
            restore()


def restore():
    """A stream that the program has put there meanwhile stays, and may use ours: ours goes on."""
    for name in NAMES:
        one = getattr(sys, name, None)
        if isinstance(one, Stream):
            own = one._own()
            setattr(sys, name, own)
            try:  # a file that only we hold is never flushed
                one.__dict__.update(_weak=ref(own), _original=None)
            except TypeError:
                pass
