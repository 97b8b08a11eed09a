#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Make offsets_table.h: where CPython keeps what a stack walk reads, asked of its own headers.

usage: cpython_offsets.py INCLUDE_DIR... > plugins/python/inspect/offsets_table.h

INCLUDE_DIR holds Python.h and internal/ of one CPython (3.8 to 3.15), as `python3-config
--includes` names it.  For each one a program is compiled against its headers with Py_BUILD_CORE
and run; rows of several patch releases of one minor must be equal, or this fails.  "DIR,t" asks
the same headers for a free-threaded build (3.13 and later).  From 3.13 on _PyRuntime publishes
offsets itself; where in that table each one stands is what a second row tells.
"""
import os
import subprocess
import sys
import tempfile

FIELDS = [  # name, comment
    ("threaded", "1: a free-threaded build"),
    ("rt_interpreters", "_PyRuntime: first interpreter"),
    ("rt_gil", "_PyRuntime: the GIL's struct, -1: each interpreter points to its own"),
    ("is_next", "interpreter: next"),
    ("is_threads", "interpreter: first thread state"),
    ("is_gil", "interpreter: pointer to the GIL's struct, -1: in _PyRuntime"),
    ("gil_holder", "GIL: last holder"),
    ("gil_locked", "GIL: int, is it held"),
    ("ts_next", "thread state: next"),
    ("ts_interp", "thread state: its interpreter"),
    ("ts_thread_id", "thread state: pthread_t"),
    ("ts_native_id", "thread state: kernel's thread id, -1: not kept"),
    ("ts_frame", "thread state: innermost frame, -1: by way of cframe"),
    ("ts_base", "thread state: frame below the outermost one, no function's; -1: none"),
    ("ts_cframe", "thread state: cframe, -1: none"),
    ("cf_frame", "cframe: innermost frame"),
    ("f_code", "frame: code object"),
    ("f_back", "frame: caller"),
    ("f_instr", "frame: position, an int index before 3.11, then an address"),
    ("f_owner", "frame: byte, who owns it, -1: not kept"),
    ("f_entry", "frame: byte, first frame of a call of the eval function (3.11), -1: not kept"),
    ("f_locals", "frame: first local variable"),
    ("f_dict", "frame: dict of a module's or class body's variables"),
    ("co_first_line", "code: int, line of def"),
    ("co_file", "code: str"),
    ("co_name", "code: str"),
    ("co_qualname", "code: str, -1: not kept"),
    ("co_lines", "code: bytes, the line table"),
    ("co_version", "code: a number that no other one has had, 0: none left; -1: not kept"),
    ("co_bytecode", "code: first instruction, -1: not in the object"),
    ("co_local_names", "code: tuple of str, names of the first locals"),
    ("co_n_locals", "code: int, how many locals have a name"),
    ("co_cell_names", "code: tuple of str, cells that follow the locals, -1: they are among them"),
    ("co_free_names", "code: tuple of str, cells that follow those, -1: as above"),
    ("co_flags", "code: int, the lowest bit: variables are in the frame, not in a dict"),
    ("tuple_items", "tuple: first item"),
    ("list_items", "list: pointer to the first item"),
    ("ob_type", "object: its type"),
    ("ob_head", "object: bytes of what all have; an int's, a float's, a dict's own words follow"),
    ("var_size", "bytes, tuple, list: how many"),
    ("bytes_data", "bytes: first byte"),
    ("str_length", "str: how many characters"),
    ("str_state", "str: word of flags"),
    ("str_kind", "str: lowest of the three bits that tell the width of a character"),
    ("str_is_compact", "str: the bit of one whose characters follow it"),
    ("str_is_ascii", "str: the bit of one of ASCII only"),
    ("str_ascii", "str: first character of an ASCII one"),
    ("str_compact", "str: first character of another one"),
    ("is_modules", "interpreter: sys.modules"),
    ("module_dict", "module: its dict"),
    ("module_name", "module: str"),
    ("function_name", "function: str, its qualified name"),
    ("set_used", "set: how many"),
    ("set_mask", "set: places in its table, less one"),
    ("set_table", "set: pointer to its table of keys and hashes"),
    ("error_args", "exception: tuple"),
    ("dict_keys", "dict: keys object"),
    ("dict_values", "dict: values of a split dict, else NULL"),
    ("type_basic_size", "type: size of an instance"),
    ("type_flags", "type: Py_TPFLAGS_..."),
    ("type_base", "type: what it is derived from first"),
    ("type_dict_offset", "type: where an instance has its dict, 0 or less: elsewhere"),
    ("type_keys", "heap type: keys that instances share"),
    ("managed_dict", "instance: its dict, before it; 0: not kept there"),
    ("co_copies", "code: the threads' own copies of the instructions, -1: none"),
    ("f_copy", "frame: int, which of these it runs, -1: none"),
    ("frame_size", "bytes of a frame that hold the fields above"),
]

PUBLISHED = {  # field: its place in struct _Py_DebugOffsets, and the first minor that has it
    "rt_interpreters": ("runtime_state.interpreters_head", 13),
    "is_next": ("interpreter_state.next", 13),
    "is_threads": ("interpreter_state.threads_head", 13),
    "is_gil": ("interpreter_state.ceval_gil", 13),
    "is_modules": ("interpreter_state.imports_modules", 13),
    "ts_next": ("thread_state.next", 13),
    "ts_interp": ("thread_state.interp", 13),
    "ts_thread_id": ("thread_state.thread_id", 13),
    "ts_native_id": ("thread_state.native_thread_id", 13),
    "ts_frame": ("thread_state.current_frame", 13),
    "ts_base": ("thread_state.base_frame", 15),
    "f_code": ("interpreter_frame.executable", 13),
    "f_back": ("interpreter_frame.previous", 13),
    "f_instr": ("interpreter_frame.instr_ptr", 13),
    "f_owner": ("interpreter_frame.owner", 13),
    "f_locals": ("interpreter_frame.localsplus", 13),
    "frame_size": ("interpreter_frame.localsplus", 13),
    "co_first_line": ("code_object.firstlineno", 13),
    "co_file": ("code_object.filename", 13),
    "co_name": ("code_object.name", 13),
    "co_qualname": ("code_object.qualname", 13),
    "co_lines": ("code_object.linetable", 13),
    "co_bytecode": ("code_object.co_code_adaptive", 13),
    "co_local_names": ("code_object.localsplusnames", 13),
    "tuple_items": ("tuple_object.ob_item", 13),
    "var_size": ("tuple_object.ob_size", 13),
    "list_items": ("list_object.ob_item", 13),
    "ob_type": ("pyobject.ob_type", 13),
    "ob_head": ("pyobject.size", 13),
    "bytes_data": ("bytes_object.ob_sval", 13),
    "str_length": ("unicode_object.length", 13),
    "str_state": ("unicode_object.state", 13),
    "str_ascii": ("unicode_object.asciiobject_size", 13),
    "str_compact": ("unicode_object.compactunicodeobject_size", 15),
    "set_used": ("set_object.used", 14),
    "set_mask": ("set_object.mask", 14),
    "set_table": ("set_object.table", 14),
    "dict_keys": ("dict_object.ma_keys", 13),
    "dict_values": ("dict_object.ma_values", 13),
    "type_flags": ("type_object.tp_flags", 13),
    "type_basic_size": ("type_object.tp_basicsize", 15),
    "type_dict_offset": ("type_object.tp_dictoffset", 15),
    "type_keys": ("heap_type_object.ht_cached_keys", 15),
}

PROGRAM = r"""
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include "frameobject.h"
#define V PY_VERSION_HEX
#if V >= 0x03090000
#include "internal/pycore_runtime.h"
#include "internal/pycore_interp.h"
#endif
#include "internal/pycore_pystate.h"
#if V >= 0x030e0000
#include "internal/pycore_interpframe_structs.h"
#endif
#if V >= 0x030a0000
#include "internal/pycore_moduleobject.h"
#endif
#if V >= 0x030c0000
#include "internal/pycore_object.h"
#endif
#if V >= 0x030b0000
#include "internal/pycore_frame.h"
#include "internal/pycore_code.h"
typedef _PyInterpreterFrame F;
#else
typedef PyFrameObject F;
#endif
typedef PyInterpreterState IS;
typedef PyThreadState TS;
typedef _PyRuntimeState RT;
#define P(name, value) printf(#name " %d\n", (int)(value));
#define O(name, type, field) P(name, offsetof(type, field))
/* the lowest bit of a bit field of a str's state */
#define B(name, field) \
    { \
        PyASCIIObject s; \
        unsigned word = 0; \
        memset(&s, 0, sizeof(s)); \
        s.state.field = 1; \
        memcpy(&word, &s.state, 4); \
        P(name, __builtin_ctz(word)) \
    }
int main(void)
{
    printf("%x\n", PY_VERSION_HEX);
#if V >= 0x030c0000
    O(co_version, PyCodeObject, co_version)
#else
    P(co_version, -1)
#endif
#ifdef Py_GIL_DISABLED
    P(threaded, 1)
    P(managed_dict, MANAGED_DICT_OFFSET)
#else
    P(threaded, 0)
#if V >= 0x030d0000
    P(managed_dict, MANAGED_DICT_OFFSET)
#elif V >= 0x030b0000
    P(managed_dict, -3 * (int)sizeof(void *)) /* _PyObject_ManagedDictPointer() */
#else
    P(managed_dict, 0)
#endif
#endif
#if defined(Py_GIL_DISABLED) && V >= 0x030e0000
    O(co_copies, PyCodeObject, co_tlbc) O(f_copy, F, tlbc_index)
#else
    P(co_copies, -1) P(f_copy, -1)
#endif
    O(list_items, PyListObject, ob_item)
    O(ob_type, PyObject, ob_type)
    P(ob_head, sizeof(PyObject))
    B(str_kind, kind) B(str_is_compact, compact) B(str_is_ascii, ascii)
    O(rt_interpreters, RT, interpreters.head)
    O(is_next, IS, next)
#if V >= 0x030b0000
    O(is_threads, IS, threads.head)
#else
    O(is_threads, IS, tstate_head)
#endif
#if V >= 0x030c0000
    P(rt_gil, -1)
    O(is_gil, IS, ceval.gil)
#else
    O(rt_gil, RT, ceval.gil)
    P(is_gil, -1)
#endif
    O(gil_holder, struct _gil_runtime_state, last_holder)
    O(gil_locked, struct _gil_runtime_state, locked)
    O(ts_next, TS, next)
    O(ts_interp, TS, interp)
    O(ts_thread_id, TS, thread_id)
#if V >= 0x030b0000
    O(ts_native_id, TS, native_thread_id)
#else
    P(ts_native_id, -1)
#endif
#if V >= 0x030d0000
    O(ts_frame, TS, current_frame) P(ts_cframe, -1) P(cf_frame, -1)
#elif V >= 0x030b0000
    P(ts_frame, -1) O(ts_cframe, TS, cframe) O(cf_frame, _PyCFrame, current_frame)
#else
    O(ts_frame, TS, frame) P(ts_cframe, -1) P(cf_frame, -1)
#endif
#if V >= 0x030f0000
    O(ts_base, TS, base_frame)
#else
    P(ts_base, -1)
#endif
#if V >= 0x030b0000
#if V >= 0x030d0000
    O(f_code, F, f_executable) O(f_instr, F, instr_ptr)
#else
    O(f_code, F, f_code) O(f_instr, F, prev_instr)
#endif
    O(f_back, F, previous)
    O(f_owner, F, owner)
    O(f_locals, F, localsplus) O(f_dict, F, f_locals)
    P(frame_size, offsetof(F, localsplus))
    O(co_lines, PyCodeObject, co_linetable)
    O(co_bytecode, PyCodeObject, co_code_adaptive)
    O(co_qualname, PyCodeObject, co_qualname)
    O(co_local_names, PyCodeObject, co_localsplusnames)
    O(co_n_locals, PyCodeObject, co_nlocalsplus)
    P(co_cell_names, -1) P(co_free_names, -1)
#else
    O(f_code, F, f_code) O(f_instr, F, f_lasti)
    O(f_back, F, f_back)
    P(f_owner, -1)
    O(f_locals, F, f_localsplus) O(f_dict, F, f_locals)
    P(frame_size, offsetof(F, f_lasti) + sizeof(int))
#if V >= 0x030a0000
    O(co_lines, PyCodeObject, co_linetable)
#else
    O(co_lines, PyCodeObject, co_lnotab)
#endif
    P(co_bytecode, -1)
    P(co_qualname, -1)
    O(co_local_names, PyCodeObject, co_varnames)
    O(co_n_locals, PyCodeObject, co_nlocals)
    O(co_cell_names, PyCodeObject, co_cellvars) O(co_free_names, PyCodeObject, co_freevars)
#endif
#if V >= 0x030b0000 && V < 0x030c0000
    O(f_entry, F, is_entry)
#else
    P(f_entry, -1)
#endif
    O(co_first_line, PyCodeObject, co_firstlineno)
    O(co_file, PyCodeObject, co_filename)
    O(co_name, PyCodeObject, co_name)
    O(co_flags, PyCodeObject, co_flags)
    O(tuple_items, PyTupleObject, ob_item)
    O(var_size, PyVarObject, ob_size)
    O(bytes_data, PyBytesObject, ob_sval)
    O(str_length, PyASCIIObject, length)
    O(str_state, PyASCIIObject, state)
    P(str_ascii, sizeof(PyASCIIObject))
#if V >= 0x030c0000
    O(is_modules, IS, imports.modules)
#else
    O(is_modules, IS, modules)
#endif
#if V >= 0x030a0000
    O(module_dict, PyModuleObject, md_dict) O(module_name, PyModuleObject, md_name)
#else /* in no header */
    P(module_dict, sizeof(PyObject))
    P(module_name, sizeof(PyObject) + 4 * sizeof(void *)) /* behind definition, state, weak list */
#endif
    O(dict_keys, PyDictObject, ma_keys)
    O(dict_values, PyDictObject, ma_values)
    O(type_basic_size, PyTypeObject, tp_basicsize)
    O(type_keys, PyHeapTypeObject, ht_cached_keys)
    O(type_flags, PyTypeObject, tp_flags)
    O(type_base, PyTypeObject, tp_base)
    O(type_dict_offset, PyTypeObject, tp_dictoffset)
    O(function_name, PyFunctionObject, func_qualname)
    O(set_used, PySetObject, used) O(set_mask, PySetObject, mask) O(set_table, PySetObject, table)
    O(error_args, PyBaseExceptionObject, args)
    P(str_compact, sizeof(PyCompactUnicodeObject))
    PUBLISHED
    return 0;
}
"""


def published():
    """C that prints at which word of the table that CPython publishes each field stands."""
    lines = []
    for since in sorted({minor for _, minor in PUBLISHED.values()}):
        lines.append("#if V >= 0x03%02x0000" % since)
        lines += ["P(words.%s, offsetof(_Py_DebugOffsets, %s) / 8)" % (field, place)
                  for field, (place, minor) in PUBLISHED.items() if minor == since]
        lines.append("#endif")
    return "\n".join(lines)


def ask(include):
    """(version, {field: offset}) of the CPython whose headers are in `include`."""
    include, _, threaded = include.partition(",")
    options = ["-DPy_GIL_DISABLED=1"] if threaded else []
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "ask.c"), os.path.join(folder, "ask")
        with open(source, "w") as out:
            out.write(PROGRAM.replace("PUBLISHED", published()))
        subprocess.run(["gcc", "-w", "-I" + include, "-I" + include + "/internal", *options, "-o",
                        program, source], check=True)
        answer = subprocess.run([program], check=True, stdout=subprocess.PIPE)
    words = answer.stdout.decode().split()
    fields = dict(zip(words[1::2], map(int, words[2::2])))
    places = {name[6:]: fields.pop(name) for name in list(fields) if name.startswith("words.")}
    assert sorted(fields) == sorted(name for name, _ in FIELDS), "a field is missing"
    return int(words[0], 16), fields, places


def print_rows(name, rows):
    """rows: {(minor, threaded): (comment, {field: number})}"""
    print("static const struct offsets %s[] = {" % name)
    for minor, threaded in sorted(rows):
        comment, fields = rows[minor, threaded]
        print("    { /* %s */\n        .minor = %d," % (comment, minor))
        items = [".%s = %d," % (field, fields[field]) for field, _ in FIELDS if field in fields]
        for i in range(0, len(items), 4):
            print("        " + " ".join(items[i:i + 4]))
        print("    },")
    print("};")


def main(includes):
    rows, words = {}, {}
    for include in includes:
        version, fields, places = ask(include)
        minor = version >> 16 & 0xff
        kind = (minor, fields["threaded"])
        micro = "3.%d.%d%s" % (minor, version >> 8 & 0xff, "t" if fields["threaded"] else "")
        if kind in rows and rows[kind][1] != fields:
            sys.exit("%s and %s differ" % (micro, rows[kind][0]))
        if words.setdefault((minor, 0), ("3.%d" % minor, places))[1] != places:
            sys.exit("what %s publishes stands elsewhere in another 3.%d" % (micro, minor))
        rows[kind] = (rows[kind][0] + ", " + micro if kind in rows else micro, fields)
    print("/* SPDX-License-Identifier: Apache-2.0\n *\n"
          " * Offsets in CPython's structures, made by cpython_offsets.py: do not edit.\n"
          " * From the headers of x86-64 builds; any thread reads it.\n */")
    for name, comment in FIELDS:
        print("/* %s: %s */" % (name, comment))
    print("\n/* clang-format off */")
    print_rows("offsets_table", rows)
    print("\n/* At which word of _Py_DebugOffsets each is published; 0: it is not. */")
    print_rows("offsets_words", {kind: row for kind, row in words.items() if row[1]})
    print("/* clang-format on */")


if __name__ == "__main__":
    main(sys.argv[1:])
