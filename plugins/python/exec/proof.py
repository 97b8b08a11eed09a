# SPDX-License-Identifier: Apache-2.0
"""A stack whose every frame is known: what offsets_proof.c reads, and what is true of it.

It has frames of all kinds: of a class body, of functions that C calls, of a generator.  Nothing is
imported but sys, and nothing of the program's runs.
"""
import sys


class Pair:
    def __init__(self):
        self.first, self.second = 1, "zwei"


class Level(int):
    pass


VARIABLES = {
    "innermost": '{"number":12345,"text":"\u0436","large":1180591620717411303424,"ratio":0.5,'
                 '"yes":true,"nothing":null,"row":{"type":"list","len":2,"items":[1,"b"]},'
                 '"both":{"type":"tuple","len":2,"items":["x",-2]},'
                 '"table":{"type":"dict","len":1,"items":{"k":2.5}},'
                 '"pair":{"type":"Pair","attributes":{"first":1,"second":"zwei"}},'
                 '"wide":"\U0001d11e","few":{"type":"set","len":1,"items":[3]},'
                 '"error":{"type":"KeyError","items":["e"]},'
                 '"module":{"type":"module","name":"sys"},"kind":{"type":"type","name":"Pair"},'
                 '"call":{"type":"function","name":"Pair.__init__"},'
                 '"level":{"type":"Level","value":5}}',
    "yields": '{"number":12345,"shared":12345}',
    "Body": '{"plain":7}',
}


def column(frame):
    """The column of the code in its line, from 1; 0: the interpreter does not tell."""
    positions = getattr(frame.f_code, "co_positions", None)
    for i, position in enumerate(positions() if positions else ()):
        if 2 * i == frame.f_lasti:
            return (position[2] or -1) + 1 if position[0] == position[1] else 0
    return 0


def truth(frame):
    """[(function, file, line, column, variables or "")], innermost first, and the threads that run
    Python code."""
    told = []
    while frame is not None:
        code = frame.f_code
        told.append((getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno,
                     column(frame) if told else 0, VARIABLES.get(code.co_name, "")))
        frame = frame.f_back
    return told, list(sys._current_frames())


def innermost(number, text="\u0436"):
    large, ratio, yes, nothing = 1 << 70, 0.5, True, None
    row, both, table, pair = [1, "b"], ("x", -2), {"k": 2.5}, Pair()
    wide, few, error, module = "\U0001d11e", {3}, KeyError("e"), sys
    kind, call, level = Pair, Pair.__init__, Level(5)
    return read(truth(sys._getframe()))


def yields(number):
    shared = number
    yield innermost((lambda: shared)())


def between(number):
    for _ in yields(number):
        return 0


def outer():
    class Body:
        plain = 7
        sorted([12345], key=between)


outer()
