/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/offsets.c - choose the offsets for the CPython that runs here.
 *
 * Any thread.  It does not guess: an unknown version, a free-threaded or a trace-refs build is
 * refused with its reason.  Whether the offsets are right is checked again at every read, by the
 * type of each object (walk.c).
 */
#include "offsets.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "offsets_table.h"

/* _Py_DebugOffsets of 3.13 (Include/internal/pycore_runtime.h): the words we use, by position. */
enum {
    WORD_VERSION = 1,
    WORD_FREE_THREADED = 2,
    WORD_RT_INTERPRETERS = 5,
    WORD_IS_NEXT = 8,
    WORD_IS_THREADS = 9,
    WORD_IS_GIL = 14,
    WORD_TS_NEXT = 21,
    WORD_TS_INTERP = 22,
    WORD_TS_FRAME = 23,
    WORD_TS_THREAD_ID = 24,
    WORD_TS_NATIVE_ID = 25,
    WORD_F_BACK = 29,
    WORD_F_CODE = 30,
    WORD_F_INSTR = 31,
    WORD_F_LOCALS = 32,
    WORD_F_OWNER = 33,
    WORD_CO_FILE = 35,
    WORD_CO_NAME = 36,
    WORD_CO_QUALNAME = 37,
    WORD_CO_LINES = 38,
    WORD_CO_FIRST_LINE = 39,
    WORD_CO_LOCAL_NAMES = 41,
    WORD_CO_BYTECODE = 43,
    WORDS = 75
};

static int refuse(char *why, size_t size, const struct cpython *py, const char *reason)
{
    (void)snprintf(why, size, "Python stacks cannot be read in CPython %u.%u: %s; eval works",
                   py->version >> 24, py->version >> 16 & 0xff, reason);
    return -ENOTSUP;
}

/* Take the published words over the table's; false: one of them cannot be true. */
static bool take_published(const uint64_t *word, struct offsets *o)
{
    const struct {
        int word, *field, limit;
    } wanted[] = {
        {WORD_RT_INTERPRETERS, &o->rt_interpreters, 1 << 20},
        {WORD_IS_NEXT, &o->is_next, 1 << 20},
        {WORD_IS_THREADS, &o->is_threads, 1 << 20},
        {WORD_IS_GIL, &o->is_gil, 1 << 20},
        {WORD_TS_NEXT, &o->ts_next, 1 << 12},
        {WORD_TS_INTERP, &o->ts_interp, 1 << 12},
        {WORD_TS_FRAME, &o->ts_frame, 1 << 12},
        {WORD_TS_THREAD_ID, &o->ts_thread_id, 1 << 12},
        {WORD_TS_NATIVE_ID, &o->ts_native_id, 1 << 12},
        {WORD_F_BACK, &o->f_back, 128},
        {WORD_F_CODE, &o->f_code, 128},
        {WORD_F_INSTR, &o->f_instr, 128},
        {WORD_F_LOCALS, &o->f_locals, 128},
        {WORD_F_OWNER, &o->f_owner, 128},
        {WORD_CO_FILE, &o->co_file, 256},
        {WORD_CO_NAME, &o->co_name, 256},
        {WORD_CO_QUALNAME, &o->co_qualname, 256},
        {WORD_CO_LINES, &o->co_lines, 256},
        {WORD_CO_FIRST_LINE, &o->co_first_line, 256},
        {WORD_CO_LOCAL_NAMES, &o->co_local_names, 256},
        {WORD_CO_BYTECODE, &o->co_bytecode, 256},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (word[wanted[i].word] >= (uint64_t)wanted[i].limit)
            return false;
        *wanted[i].field = (int)word[wanted[i].word];
    }
    o->frame_size = o->f_locals;
    return true;
}

int offsets_find(const struct cpython *py, struct offsets *ret, char *why, size_t why_size)
{
    if (!py->runtime)
        return refuse(why, why_size, py, "it does not export _PyRuntime");
    unsigned minor = py->version >> 16 & 0xff;
    const struct offsets *found = NULL;
    for (size_t i = 0; i < sizeof(offsets_table) / sizeof(offsets_table[0]); i++)
        if (offsets_table[i].minor == minor && py->version >> 24 == 3)
            found = &offsets_table[i];
    if (!found)
        return refuse(why, why_size, py, "its structures are not known here (3.8 to 3.13 are)");
    *ret = *found;
    ret->owner_shim = minor >= 12 ? 3 : -1; /* FRAME_OWNED_BY_CSTACK */
    if (minor < 13)
        return 0;
    uint64_t word[WORDS];
    memcpy(word, py->runtime, sizeof(word));
    if (memcmp(word, "xdebugpy", 8) != 0 || word[WORD_VERSION] != py->version)
        return refuse(why, why_size, py, "_Py_DebugOffsets is not of this version");
    if (word[WORD_FREE_THREADED])
        return refuse(why, why_size, py, "it is a free-threaded build");
    if (!take_published(word, ret))
        return refuse(why, why_size, py, "_Py_DebugOffsets holds values that cannot be");
    return 0;
}
