/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/offsets.c - choose the offsets for the CPython that runs here.
 *
 * Any thread.  It does not guess: an unknown version is refused with its reason.  Whether the
 * offsets are right is checked again at every read, by the type of each object (walk.c).
 */
#include "offsets.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "offsets_table.h"

/* Words of _Py_DebugOffsets, by position: Include/internal/pycore_runtime.h of 3.13,
 * pycore_debug_offsets.h of 3.14. */
enum { WORD_VERSION = 1, WORD_FREE_THREADED = 2, WORDS = 56 };

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
        int since_13, since_14, *field, limit;
    } wanted[] = {
        {5, 5, &o->rt_interpreters, 1 << 20},
        {8, 8, &o->is_next, 1 << 20},
        {9, 9, &o->is_threads, 1 << 20},
        {11, 12, &o->is_modules, 1 << 20},
        {14, 15, &o->is_gil, 1 << 20},
        {21, 24, &o->ts_next, 1 << 12},
        {22, 25, &o->ts_interp, 1 << 12},
        {23, 26, &o->ts_frame, 1 << 12},
        {24, 27, &o->ts_thread_id, 1 << 12},
        {25, 28, &o->ts_native_id, 1 << 12},
        {29, 32, &o->f_back, 128},
        {30, 33, &o->f_code, 128},
        {31, 34, &o->f_instr, 128},
        {32, 35, &o->f_locals, 128},
        {33, 36, &o->f_owner, 128},
        {35, 40, &o->co_file, 256},
        {36, 41, &o->co_name, 256},
        {37, 42, &o->co_qualname, 256},
        {38, 43, &o->co_lines, 256},
        {39, 44, &o->co_first_line, 256},
        {41, 46, &o->co_local_names, 256},
        {43, 48, &o->co_bytecode, 256},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        uint64_t value = word[o->minor >= 14 ? wanted[i].since_14 : wanted[i].since_13];
        if (value >= (uint64_t)wanted[i].limit)
            return false;
        *wanted[i].field = (int)value;
    }
    o->frame_size = o->f_locals;
    return true;
}

static const struct offsets *in_table(uint32_t version, int threaded)
{
    for (size_t i = 0; i < sizeof(offsets_table) / sizeof(offsets_table[0]); i++)
        if (version >> 24 == 3 && offsets_table[i].minor == (version >> 16 & 0xff) &&
            offsets_table[i].threaded == threaded)
            return &offsets_table[i];
    return NULL;
}

int offsets_find(const struct cpython *py, const struct peek *peek, struct offsets *ret, char *why,
                 size_t why_size)
{
    uint64_t word[WORDS] = {0};
    if (!py->runtime)
        return refuse(why, why_size, py, "it does not export _PyRuntime");
    const struct offsets *found = in_table(py->version, 0);
    if (!found)
        return refuse(why, why_size, py, "its structures are not known here (3.8 to 3.14 are)");
    *ret = *found;
    ret->owner_shim = found->minor >= 12 ? 3 : -1; /* FRAME_OWNED_BY_CSTACK, _INTERPRETER */
    if (found->minor < 13)
        return 0;
    if (peek_bytes(peek, (uint64_t)(uintptr_t)py->runtime, word, sizeof(word)) ||
        memcmp(word, "xdebugpy", 8) != 0 || word[WORD_VERSION] != py->version)
        return refuse(why, why_size, py, "_Py_DebugOffsets is not of this version");
    if (word[WORD_FREE_THREADED]) {
        *ret = *in_table(py->version, 1);
        ret->owner_shim = 3;
    }
    if (!take_published(word, ret))
        return refuse(why, why_size, py, "_Py_DebugOffsets holds values that cannot be");
    return 0;
}
