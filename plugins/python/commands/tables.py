# SPDX-License-Identifier: Apache-2.0
"""Rows of the computed tables that need the interpreter: objects, tensors, modules, collector.

Each is a generator, run in slices of a millisecond or two on the runner's thread (tables.c), with
the GIL let go between them: it yields a row, or None where it may be stopped for a while.
No code of the user's runs: only types' own slots in C are asked.
"""
import sys
import types

safe = tool("safe")
SLICE = 256  # objects looked at between two places to stop at
TYPES = 5000  # rows of python.objects; there are more kinds only by mistake
TENSORS = 20000  # rows of python.tensors
NORM_ELEMENTS = 1 << 20  # of a gradient whose norm is taken: some 0.3 ms

# Keys are built-in types: the hash of no class of the user's is asked for.
# Generators and frames say an item size that no count belongs to: object's own __sizeof__ takes
# what lies there for one (7 petabytes, on 3.11).
_sizes = {id(kind): kind.__sizeof__ for kind in (
    dict, list, tuple, set, frozenset, types.GeneratorType, types.CoroutineType,
    types.AsyncGeneratorType, types.FrameType)}
_object_size = object.__sizeof__
_mro_of = type.__dict__["__mro__"].__get__
HEADER = 16  # the collector's, before each object


def live_objects():
    """Lists of up to SLICE objects that the collector tracks, oldest generation first; who has seen
    one leaves in it a few from its end."""
    for generation in (2, 1, 0):
        ends = ()
        while True:
            some = native["gc_slice"](generation, ends, SLICE)
            if some is None:  # this CPython's lists are not those that we know
                for one in whole_generations():
                    yield one
                return
            last = len(some) < SLICE
            if some:
                yield some
            ends = tuple(some)  # those at its end, of what is left in it
            if last:
                break


def whole_generations():
    """Without a way to go on in the middle: one generation at a time, in one go."""
    import gc
    free_threaded = "t" in sys.abiflags  # it has no generations: each would give all objects
    for generation in (None,) if free_threaded else (2, 1, 0):
        found = gc.get_objects(generation)
        while found:
            some = found[-SLICE:]
            del found[-SLICE:]
            yield some


def size_function(kind):
    for base in _mro_of(kind):
        if id(base) in _sizes:
            return _sizes[id(base)]
    return _object_size


def objects():
    seen = {}  # id of type: [type, its size function, count, bytes, an example]
    others = size_of_others = 0
    for some in live_objects():
        for one in some:
            kind = type(one)
            entry = seen.get(id(kind))
            if entry is None:
                if len(seen) == TYPES:
                    others += 1
                    size_of_others += size_function(kind)(one) + HEADER
                    continue
                entry = seen[id(kind)] = [kind, size_function(kind), 0, 0, safe["show"](one)[:200]]
            entry[2] += 1
            entry[3] += entry[1](one) + HEADER
        del some[:-4]
        one = entry = None  # while others run only a place to go on from is held
        yield None
    for kind, _, count, size, example in seen.values():
        yield safe["type_name"](kind), count, size, example
    if others:
        yield "(more than %d classes: of others)" % TYPES, others, size_of_others, None


def modules():
    for name, module in list(sys.modules.items()):
        if type(name) is not str or not safe["is_a"](type(module), types.ModuleType) or \
                name.startswith("<probing>"):  # stdlib.py's
            continue  # isinstance() would ask a stranger for its __class__
        names = types.ModuleType.__getattribute__(module, "__dict__")
        version, path = names.get("__version__"), names.get("__file__")
        yield (name, version if type(version) is str else None,
               path if type(path) is str else None)


def threads():
    """Threads that Python knows; threads of C that never ran Python are not among them."""
    for row in thread_rows():  # all at once: a frame that we held would keep its variables alive
        yield row


def thread_rows():
    import _thread
    frames = sys._current_frames()
    del frames[_thread.get_ident()]  # ours
    known = dict(getattr(sys.modules.get("threading"), "_active", ()))
    known.pop(_thread.get_ident(), None)
    rows = []
    for ident in sorted(set(frames) | set(known)):
        one, code = known.get(ident), frames[ident].f_code if ident in frames else None
        name, native_id = getattr(one, "_name", None), getattr(one, "_native_id", None)
        rows.append((ident, native_id if type(native_id) is int else None,
                     name if type(name) is str else None,
                     None if one is None else int(bool(getattr(one, "_daemonic", False))),
                     int(code is not None),
                     getattr(code, "co_qualname", code.co_name) if code is not None else None))
    return rows


def tensors():
    """Every torch.Tensor that the collector knows: what it is and where."""
    kind = safe["tensor_class"]()
    if kind is None:
        return
    torch = sys.modules["torch"]
    known, found = {}, 0
    for one in [object()]:
        ours = sys.getrefcount(one)  # of the loop: it depends on the CPython
    for some in live_objects():
        for one in some:
            its = type(one)
            known_as = known.get(id(its))
            if known_as is None:
                known_as = known[id(its)] = (its, safe["is_a"](its, kind))
            if known_as[1] and found < TENSORS:
                found += 1
                references = sys.getrefcount(one) - ours
                yield describe_tensor(torch, one, references)
        del some[:-4]
        one = None
        yield None


def describe_tensor(torch, one, references):
    with torch._C.DisableTorchFunction(), torch.no_grad():
        leaf, norm = one.is_leaf, None
        grad = one.grad if leaf else None
        if grad is not None and grad.device.type == "cpu" and grad.layout == torch.strided \
                and 0 < grad.numel() <= NORM_ELEMENTS and grad.is_floating_point():
            norm = float(grad.double().norm())  # on a GPU it would wait for its work
        return (str(tuple(one.shape)), str(one.dtype)[6:], str(one.device),
                one.numel() * one.element_size(), 1 if one.requires_grad else 0, norm, references,
                safe["type_name"](type(one)))


def gc_generations():
    import gc
    counts, limits, stats = gc.get_count(), gc.get_threshold(), gc.get_stats()
    for n, stat in enumerate(stats):
        yield (n, counts[n], limits[n], stat["collections"], stat["collected"],
               stat["uncollectable"],
               gc.get_freeze_count() if n == len(stats) - 1 else None)
