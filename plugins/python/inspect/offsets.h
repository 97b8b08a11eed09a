/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/offsets.h - where this CPython keeps what a stack walk reads.
 *
 * Any thread.  3.8 to 3.15: a table made from each version's headers; from 3.13 on what the
 * interpreter publishes about itself (_Py_DebugOffsets) goes before the table.  A newer one is
 * taken to publish it as the newest one that is known, and is read only when offsets_proof.c has
 * shown that to be so.
 */
#ifndef PYTHON_INSPECT_OFFSETS_H
#define PYTHON_INSPECT_OFFSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpython.h"

#include "inspect/safe_read.h"

struct offsets { /* bytes; -1: this version does not have it; offsets_table.h says what each is */
    unsigned minor;
    int threaded;
    int rt_interpreters, rt_gil, is_next, is_threads, is_gil, gil_holder, gil_locked;
    int ts_next, ts_interp, ts_thread_id, ts_native_id, ts_frame, ts_base, ts_cframe, cf_frame;
    int f_code, f_back, f_instr, f_owner, f_entry, f_locals, f_dict;
    int co_first_line, co_file, co_name, co_qualname, co_lines, co_bytecode, co_local_names;
    int co_n_locals, co_cell_names, co_free_names, co_flags, co_version;
    int tuple_items, list_items, ob_type, ob_head, var_size, bytes_data;
    int str_length, str_state, str_kind, str_is_compact, str_is_ascii, str_ascii, str_compact;
    int is_modules, module_dict, dict_keys, dict_values, type_basic_size, type_keys;
    int type_flags, type_base, type_dict_offset, module_name, function_name, error_args;
    int set_used, set_mask, set_table;
    int managed_dict, co_copies, f_copy;
    int frame_size;
    int owner_shim; /* f_owner from this value on: no user's frame; -1: none */
};

/* Bytes that are read at once, and hold all fields that are taken out of them. */
#define OFFSETS_STATE 192 /* of a thread state */
#define OFFSETS_GIL 40    /* of the GIL's struct */
#define OFFSETS_FRAME 128
#define OFFSETS_CODE 160 /* of a code object, up to the pointer to its line table */
#define OFFSETS_HEAD 48  /* of an object that has a length */
#define OFFSETS_STR 80   /* of a str, before its characters, and of any other object */

/* From 3.14 on a frame's references carry marks in these bits; before, objects have none there. */
#define OFFSETS_MARKS UINT64_C(3)

/* 0, or -ENOTSUP with one line in `why`.  peek: of the process that py's addresses belong to. */
int offsets_find(const struct cpython *py, const struct peek *peek, struct offsets *ret, char *why,
                 size_t why_size);

/* Does each field lie in what is read of its structure?  Without that nothing may be read. */
bool offsets_possible(const struct offsets *o);

/* The minor version of the newest CPython that is known. */
unsigned offsets_newest(void);

/* The result of offsets_proof.c for our own process's CPython. */
enum offsets_proof {
    OFFSETS_KNOWN = 0, /* it is in the table: no proof is needed */
    OFFSETS_UNPROVED,  /* it waits for one */
    OFFSETS_PROVED,
    OFFSETS_DISPROVED
};
enum offsets_proof offsets_proof(const struct cpython *py);
/* Said by whoever has tried.  why: of a refusal, which offsets_find() gives from now on; NULL: it
 * is proved. */
void offsets_prove(const char *why);
void offsets_prove_again(void); /* nothing has been tried */
/* As offsets_find(), but nothing needs to have been proved. */
int offsets_assume(const struct cpython *py, const struct peek *peek, struct offsets *ret,
                   char *why, size_t why_size);

#endif
