# SPDX-License-Identifier: Apache-2.0
"""Values as short text or JSON, without running any code of the user's.

Only objects of exactly the built-in types are looked into; of all others the type is told, and of
tensors and arrays their shape.
"""
import sys
from types import FunctionType

TEXT = 80  # characters of a str
ITEMS = 6  # of a list, tuple, set or dict
DEPTH = 2  # lists in lists
WHOLE = 400  # characters of a whole value

FORMS = {"float64": "d", "float32": "f", "float16": "e", "bfloat16": "bf", "int64": "q",
         "int32": "i", "int16": "h", "int8": "b", "uint8": "B", "bool": "?"}  # of struct

_qualname_of = type.__dict__["__qualname__"].__get__
_function_name_of = FunctionType.__dict__["__qualname__"].__get__
_mro_of = type.__dict__["__mro__"].__get__
_attributes_of = type.__dict__["__dict__"].__get__
_containers = {id(kind) for kind in (list, tuple, set, frozenset, dict)}


def type_name(kind):
    """"dict", "torch.nn.modules.linear.Linear"."""
    name = _qualname_of(kind)
    module = _attributes_of(kind).get("__module__")
    if type(module) is not str or module in ("builtins", "__main__"):
        return name
    return module + "." + name


def tensor_class():
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None) if type(torch) is type(sys) else None
    return kind if is_a(type(kind), type) else None


def is_a(kind, *bases):
    """issubclass() asks the class, isinstance() the object, `in` and == the metaclass' __eq__."""
    return any(one is base for one in _mro_of(kind) for base in bases)


def is_tensor(kind):
    return is_a(kind, tensor_class())


def _array(value, kind):
    numpy = sys.modules.get("numpy")
    if numpy is not None and kind is getattr(numpy, "ndarray", None):
        return "array(shape=%s, %s)" % (value.shape, value.dtype)
    if tensor_class() is not None and is_tensor(kind):
        torch = sys.modules["torch"]
        with torch._C.DisableTorchFunction():
            return "tensor(%sshape=%s, %s, %s)" % (_only_element(torch, value, kind),
                                                   tuple(value.shape), str(value.dtype)[6:],
                                                   _place(value))
    return None


def _place(value):
    device = str(value.device)
    if value.numel() == 1 and device.split(":")[0] not in ("cpu", "meta"):
        return device + ": its value would wait for the device"
    return device


def _only_element(torch, value, kind):
    """"0.25, " of a tensor of one element on the CPU, read where it lies: no operation runs, so
    nobody's hook or profiler sees one.  "": it is none, or not as simple as that."""
    import struct
    plain = kind is tensor_class() or type_name(kind) == "torch.nn.parameter.Parameter"
    if not plain or value.numel() != 1 or value.device.type != "cpu" or \
            value.layout is not torch.strided:
        return ""
    form = FORMS.get(str(value.dtype)[6:])
    try:
        at = value.data_ptr()
        if form is None or not at or value.is_neg():
            return ""
        import ctypes
        raw = ctypes.string_at(at, 2 if form == "bf" else struct.calcsize(form))
    except Exception:  # one that stands for others, as within vmap
        return ""
    if form == "bf":
        raw, form = b"\0\0" + raw if sys.byteorder == "little" else raw + b"\0\0", "f"
    number = struct.unpack("=" + form, raw)[0]
    if form == "f":
        return "%.8g, " % number
    return "%r, " % (number,)


def _number(value):
    return repr(value) if value.bit_length() < 256 else "<int of %d bits>" % value.bit_length()


def show(value, depth=DEPTH):
    """A value as at a prompt, bounded."""
    kind = type(value)
    if kind is int:
        return _number(value)
    if value is None or kind is bool or kind is float or kind is complex:
        return repr(value)
    if kind is str or kind is bytes:
        if len(value) <= TEXT:
            return repr(value)
        return "%r... (%d)" % (value[:TEXT], len(value))
    if id(kind) in _containers:
        return _many(value, kind, depth)
    if kind is FunctionType:
        return "<function %s>" % _function_name_of(value)
    if is_a(kind, type):
        return "<class %s>" % type_name(value)
    return _array(value, kind) or "<%s>" % type_name(kind)


def _many(value, kind, depth):
    size = kind.__len__(value)
    if depth == 0 or kind is set or kind is frozenset:
        return "<%s of %d>" % (kind.__name__, size)
    rest = ", ..." if size > ITEMS else ""
    if kind is dict:
        some = []
        for key in value:
            if len(some) == ITEMS:
                break
            some.append(key)
        pairs = ["%s: %s" % (show(key, 0), show(dict.get(value, key), depth - 1))
                 for key in some if type(key) is str or type(key) is int]  # __hash__ may be theirs
        return "{%s%s}" % (", ".join(pairs), rest)
    text = ", ".join(show(item, depth - 1) for item in value[:ITEMS]) + rest
    return "[%s]" % text if kind is list else "(%s%s)" % (text, "," if size == 1 else "")


def shown(value):
    text = show(value)
    return text if len(text) <= WHOLE else text[:WHOLE] + "..."


def plain(value):
    """A value that JSON has: a number, true, false, null; else text."""
    kind = type(value)
    if value is None or kind is bool or (kind is int and value.bit_length() < 53):
        return value
    if kind is float and value - value == 0:
        return value
    if kind is str and len(value) <= TEXT:
        return value
    return shown(value)
