/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/stack/frame_merge.c - which Python frames a native frame stands for.
 *
 * Any thread; nothing kept.
 */
#include "sdk/lib/stack/frame_merge.h"

#define HALF_WAY_DEPTH 1u /* the eval function itself, or what it calls as it begins or ends */

/* The first entry from Python frame *at on, and where. */
static bool next_entry(const struct frame_merge *m, uint32_t *at, struct frame_python *ret)
{
    for (; *at < m->n_python; (*at)++) {
        *ret = m->python(m->arg, *at);
        if (ret->entry || ret->shim)
            return true;
    }
    return false;
}

/* Does native frame i hold the mark?  Of the outermost that is known nobody knows where it ends. */
static bool holds_mark(const struct frame_merge *m, uint32_t i, uint64_t mark)
{
    return mark >= m->sp(m->arg, i) &&
           (i + 1 < m->n_native ? mark < m->sp(m->arg, i + 1) : m->kind(m->arg, i) == FRAME_EVAL);
}

/* true: native frames from the innermost out hold the marks of the entries, in order, and none is
 * left over that should be there. */
static bool fit_by_mark(const struct frame_merge *m)
{
    struct frame_python entry;
    uint32_t at = 0, found = 0;
    bool more = next_entry(m, &at, &entry);
    for (uint32_t i = 0; i < m->n_native && more; i++) {
        if (!entry.mark || entry.mark < m->sp(m->arg, i))
            return false; /* not known, or passed by */
        if (!holds_mark(m, i, entry.mark))
            continue;
        found++;
        at++;
        more = next_entry(m, &at, &entry);
    }
    return found > 0 && (!more || !m->native_whole);
}

/* How often the eval function was entered, as both sides tell it. */
static bool fit_by_count(struct frame_merge *m)
{
    struct frame_python entry;
    uint32_t evals = 0, entries = 0, innermost = 0;
    for (uint32_t at = 0; next_entry(m, &at, &entry); at++)
        entries++;
    for (uint32_t i = 0; i < m->n_native; i++) {
        if (m->kind(m->arg, i) != FRAME_EVAL)
            continue;
        innermost = evals++ ? innermost : i;
    }
    if (!m->python_whole)
        return true; /* the inner part of it, which is all that is put under native frames */
    if (!m->native_whole)
        return evals <= entries;
    m->skip = evals == entries + 1 && innermost <= HALF_WAY_DEPTH && !m->exact;
    return evals == entries + m->skip;
}

static void find_mark(struct frame_merge *m)
{
    struct frame_python entry;
    uint32_t at = m->next_python;
    m->mark = m->by_mark && next_entry(m, &at, &entry) ? entry.mark : 0;
}

void frame_merge_begin(struct frame_merge *m)
{
    m->based = m->by_mark = false;
    m->next_native = m->next_python = m->skip = 0;
    m->in_entry = m->apart = false;
    for (uint32_t i = 0; i < m->n_native && !m->based; i++) {
        if (m->kind(m->arg, i) != FRAME_BASE)
            continue;
        m->n_native = i;
        m->native_whole = m->based = true;
    }
    m->by_mark = fit_by_mark(m);
    m->agree = m->by_mark || fit_by_count(m);
    find_mark(m);
}

/* Does native frame i run the Python frames that are next? */
static bool runs_next(struct frame_merge *m, uint32_t i, int kind)
{
    if (m->by_mark)
        return m->mark && holds_mark(m, i, m->mark);
    if (kind == FRAME_EVAL && m->skip > 0) {
        m->skip--;
        return false;
    }
    return kind == FRAME_EVAL;
}

/* The next Python frame of this entry, or, where no native ones follow, of any.  false: none. */
static bool give_python(struct frame_merge *m, uint32_t *ret)
{
    bool bound = m->in_entry;
    while (m->next_python < m->n_python && (m->in_entry || !bound)) {
        struct frame_python f = m->python(m->arg, m->next_python);
        *ret = m->next_python++;
        if (f.entry || f.shim) {
            m->in_entry = false;
            find_mark(m);
        }
        if (!f.shim)
            return true;
    }
    m->in_entry = false;
    return false;
}

enum frame_side frame_merge_next(struct frame_merge *m, uint32_t *ret)
{
    for (;;) {
        if (m->in_entry && give_python(m, ret))
            return FRAME_OF_PYTHON;
        if (!m->agree || m->next_native >= m->n_native)
            break;
        uint32_t i = m->next_native++;
        int kind = m->kind(m->arg, i);
        bool outermost = m->n_python > 0 && m->next_python == m->n_python;
        if (runs_next(m, i, kind)) {
            m->in_entry = true;
        } else if (kind != FRAME_EVAL && kind != FRAME_PLUMBING &&
                   !(kind == FRAME_BEGIN && outermost)) {
            *ret = i;
            return FRAME_OF_NATIVE;
        }
    }
    m->apart = true;
    return give_python(m, ret) ? FRAME_OF_PYTHON : FRAME_END;
}
