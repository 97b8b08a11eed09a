/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/offsets.c - choose the offsets for the CPython that runs here.
 *
 * Any thread.  It does not guess: a version that is neither known nor proved is refused with its
 * reason.  Whether the offsets are right is checked again at every read, by the type of each object
 * (interpreter.c).
 */
#include "inspect/offsets.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "inspect/offsets_table.h"

/* The first words of _Py_DebugOffsets, in every version; offsets_words[] tells the others. */
enum { WORD_VERSION = 1, WORD_FREE_THREADED = 2, WORDS = 128 };

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define FIELDS (sizeof(struct offsets) / sizeof(int))

_Static_assert(sizeof(struct offsets) == FIELDS * sizeof(int), "take_published() goes over it");

/* The proof of our own process's CPython; OFFSETS_KNOWN: nothing has been tried.  The reason is
 * written before the proof. */
static _Atomic int proof;
static char disproof[160];

static int refuse_python(char *why, size_t size, const struct cpython *py, const char *reason)
{
    (void)snprintf(why, size, "Python stacks cannot be read in CPython %u.%u: %s; eval works",
                   py->version >> 24, py->version >> 16 & 0xff, reason);
    return -ENOTSUP;
}

/* The row of a version, or of the newest one that is known if it is newer; NULL: it is older. */
static const struct offsets *row_of(const struct offsets *rows, size_t n, uint32_t version,
                                    int threaded)
{
    const struct offsets *found = NULL;
    for (size_t i = 0; i < n; i++)
        if (rows[i].minor <= (version >> 16 & 0xff) && rows[i].threaded == threaded)
            found = &rows[i];
    return version >> 24 == 3 ? found : NULL;
}

unsigned offsets_newest(void)
{
    return offsets_table[COUNT(offsets_table) - 1].minor;
}

static bool is_newer(const struct cpython *py)
{
    return py->version >> 24 == 3 && (py->version >> 16 & 0xff) > offsets_newest();
}

/* Take the published words over the table's; false: one of them cannot be true. */
static bool take_published(const uint64_t *word, const struct offsets *words, struct offsets *o)
{
    int place[FIELDS], field[FIELDS];
    memcpy(place, words, sizeof(place));
    memcpy(field, o, sizeof(field));
    for (size_t i = 1; i < FIELDS; i++) { /* the first one is the version */
        if (!place[i])
            continue;
        if (word[place[i]] >= 1u << 20)
            return false;
        field[i] = (int)word[place[i]];
    }
    memcpy(o, field, sizeof(field));
    return true;
}

struct field {
    int at, size, room;
};

static bool lie_inside(const struct field *fields, size_t n, int least)
{
    for (size_t i = 0; i < n; i++)
        if (fields[i].at < least || fields[i].at > fields[i].room - fields[i].size)
            return false;
    return true;
}

bool offsets_possible(const struct offsets *o)
{
    const int lines = o->co_lines + 8, most = OFFSETS_STR;
    const struct field always[] = {
        {o->ts_next, 8, OFFSETS_STATE},
        {o->ts_interp, 8, OFFSETS_STATE},
        {o->ts_thread_id, 8, OFFSETS_STATE},
        {o->gil_holder, 8, OFFSETS_GIL},
        {o->gil_locked, 4, OFFSETS_GIL},
        {o->frame_size, 0, OFFSETS_FRAME},
        {o->f_code, 8, o->frame_size},
        {o->f_back, 8, o->frame_size},
        {o->f_instr, o->co_bytecode < 0 ? 4 : 8, o->frame_size},
        {o->co_lines, 8, OFFSETS_CODE},
        {o->co_file, 8, lines},
        {o->co_name, 8, lines},
        {o->co_first_line, 4, lines},
        {o->ob_type, 8, o->ob_head},
        {o->ob_head, 8, most},
        {o->var_size, 8, OFFSETS_HEAD},
        {o->str_compact, 0, most},
        {o->str_ascii, 0, o->str_compact},
        {o->str_state, 4, o->str_ascii},
        {o->str_length, 8, o->str_state},
        {o->set_used, 8, most},
        {o->set_mask, 8, most},
        {o->set_table, 8, most},
        {o->error_args, 8, most},
        {o->str_kind, 3, 32},
        {o->str_is_compact, 1, 32},
        {o->str_is_ascii, 1, 32},
    };
    const struct field sometimes[] = {
        {o->ts_native_id, 8, OFFSETS_STATE}, {o->ts_frame, 8, OFFSETS_STATE},
        {o->ts_base, 8, OFFSETS_STATE},      {o->ts_cframe, 8, OFFSETS_STATE},
        {o->f_owner, 1, o->frame_size},      {o->f_entry, 1, o->frame_size},
        {o->f_copy, 4, o->frame_size},       {o->co_qualname, 8, lines},
        {o->co_version, 4, lines},
    };
    return lie_inside(always, COUNT(always), 0) && lie_inside(sometimes, COUNT(sometimes), -1);
}

int offsets_assume(const struct cpython *py, const struct peek *peek, struct offsets *ret,
                   char *why, size_t why_size)
{
    uint64_t word[WORDS] = {0};
    if (!py->runtime)
        return refuse_python(why, why_size, py, "it does not export _PyRuntime");
    const struct offsets *found = row_of(offsets_table, COUNT(offsets_table), py->version, 0);
    if (!found)
        return refuse_python(why, why_size, py,
                             "its structures are not known here (they are known from 3.8 on)");
    *ret = *found;
    ret->owner_shim = found->minor >= 12 ? 3 : -1; /* FRAME_OWNED_BY_CSTACK, _INTERPRETER */
    if (found->minor < 13)
        return 0;
    if (peek_bytes(peek, (uint64_t)(uintptr_t)py->runtime, word, sizeof(word)) ||
        memcmp(word, "xdebugpy", 8) != 0 || word[WORD_VERSION] != py->version)
        return refuse_python(why, why_size, py, "_Py_DebugOffsets is not of this version");
    if (word[WORD_FREE_THREADED]) {
        *ret = *row_of(offsets_table, COUNT(offsets_table), py->version, 1);
        ret->owner_shim = 3;
    }
    if (!take_published(word, row_of(offsets_words, COUNT(offsets_words), py->version, 0), ret) ||
        !offsets_possible(ret))
        return refuse_python(why, why_size, py, "_Py_DebugOffsets holds values that cannot be");
    return 0;
}

int offsets_find(const struct cpython *py, const struct peek *peek, struct offsets *ret, char *why,
                 size_t why_size)
{
    int r = offsets_assume(py, peek, ret, why, why_size);
    if (r < 0 || !is_newer(py))
        return r;
    char reason[240];
    const char *what = "its published offsets have not been tried yet: that waits for the GIL";
    enum offsets_proof state = offsets_proof(py);
    if (peek->pid != getpid())
        what = "only a trial inside the process can show whether it is built like that; inject "
               "probing into it";
    else if (state == OFFSETS_PROVED)
        return 0;
    else if (state == OFFSETS_DISPROVED)
        what = disproof;
    (void)snprintf(reason, sizeof(reason),
                   "it is newer than the versions known here (up to 3.%u), and %s",
                   offsets_newest(), what);
    return refuse_python(why, why_size, py, reason);
}

enum offsets_proof offsets_proof(const struct cpython *py)
{
    int found = atomic_load_explicit(&proof, memory_order_acquire);
    if (found != OFFSETS_KNOWN)
        return (enum offsets_proof)found;
    return is_newer(py) ? OFFSETS_UNPROVED : OFFSETS_KNOWN;
}

void offsets_prove(const char *why)
{
    (void)snprintf(disproof, sizeof(disproof), "%s", why ? why : "");
    atomic_store_explicit(&proof, why ? OFFSETS_DISPROVED : OFFSETS_PROVED, memory_order_release);
}

void offsets_prove_again(void)
{
    atomic_store_explicit(&proof, OFFSETS_KNOWN, memory_order_relaxed);
}
