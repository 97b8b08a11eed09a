/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/profile/mixed_stack.c - one stack of native and Python frames.
 *
 * The profiler's thread only; nothing kept.
 */
#include "mixed_stack.h"

struct merge {
    struct stacks *stacks;
    const struct probing_python_look *look;
    const struct merge_native *native;
    uint32_t *frames;
    uint32_t n_native; /* up to where a greenlet begins */
    uint32_t n;        /* frames so far */
    uint32_t next;     /* Python frame */
};

static void add(struct merge *m, uint32_t frame)
{
    if (m->n < MERGE_FRAMES - 1)
        m->frames[m->n++] = frame;
}

/* Python frames up to the outermost one of this native call of the eval function. */
static void add_entry(struct merge *m)
{
    for (bool last = false; !last && m->next < m->look->n_frames; m->next++) {
        uint32_t flags = m->look->frames[m->next].flags;
        last = flags & PROBING_PYTHON_ENTRY;
        if (!(flags & PROBING_PYTHON_SHIM))
            add(m, stacks_python(m->stacks, m->look, m->next));
    }
}

/* Is the mark of an entry a local variable of native frame i?  Then it runs the eval function, even
 * if it has no name: a stripped interpreter whose eval function the compiler has split. */
static bool holds_shim(const struct merge *m, uint32_t i)
{
    const struct merge_native *native = m->native;
    for (uint32_t k = 0; k < m->look->n_frames && i + 1 < native->n; k++)
        if ((m->look->frames[k].flags & PROBING_PYTHON_SHIM) &&
            m->look->frames[k].code >= native->sps[i] &&
            m->look->frames[k].code < native->sps[i + 1])
            return true;
    return false;
}

static uint32_t native_at(struct merge *m, uint32_t i, int *ret_kind)
{
    uint32_t frame = stacks_native(m->stacks, m->native->ips[i] - (i > 0), ret_kind);
    if (*ret_kind != PROBING_PYTHON_EVAL && holds_shim(m, i))
        *ret_kind = PROBING_PYTHON_EVAL;
    return frame;
}

/* How often the eval function was entered, as both sides tell it. */
static void count(struct merge *m, uint32_t *ret_evals, uint32_t *ret_entries)
{
    int kind = PROBING_PYTHON_NATIVE;
    *ret_evals = *ret_entries = 0;
    for (uint32_t i = 0; i < m->look->n_frames; i++)
        *ret_entries += (m->look->frames[i].flags & PROBING_PYTHON_ENTRY) != 0;
    for (m->n_native = 0; m->n_native < m->native->n; m->n_native++) {
        (void)native_at(m, m->n_native, &kind);
        if (kind == PROBING_PYTHON_BASE)
            return;
        *ret_evals += kind == PROBING_PYTHON_EVAL;
    }
}

static void add_native(struct merge *m, uint32_t evals_over)
{
    for (uint32_t i = 0; i < m->n_native; i++) {
        int kind;
        uint32_t frame = native_at(m, i, &kind);
        bool outermost = m->look->n_frames > 0 && m->next == m->look->n_frames;
        if (kind == PROBING_PYTHON_EVAL && evals_over > 0)
            evals_over--; /* it has just been entered: its frame is not there yet */
        else if (kind == PROBING_PYTHON_EVAL)
            add_entry(m);
        else if (kind != PROBING_PYTHON_PLUMBING && !(kind == PROBING_PYTHON_BEGIN && outermost))
            add(m, frame);
    }
}

uint32_t merge_ready(struct stacks *stacks, const struct probing_python_look *look, uint32_t *ret)
{
    struct merge m = {.stacks = stacks, .look = look, .frames = ret};
    add(&m, stacks_mark(stacks, MARK_READY));
    while (m.next < look->n_frames)
        add_entry(&m);
    bool cut = look->end != 0 && look->n_frames;
    ret[m.n++] = stacks_mark(stacks, cut ? MARK_CUT : MARK_BROKEN);
    return m.n;
}

uint32_t merge(struct stacks *stacks, const struct probing_python_look *look,
               const struct merge_native *native, enum unwind_end end, uint32_t *ret)
{
    struct merge m = {.stacks = stacks, .look = look, .native = native, .frames = ret};
    uint32_t evals, entries;
    count(&m, &evals, &entries);
    bool based = m.n_native < native->n;
    bool whole = (end == UNWIND_WHOLE || based) && look->end == 0;
    bool agree = evals == entries || evals == entries + 1;
    if (!whole)
        agree = evals <= entries || look->end != 0;
    if (agree || look->n_frames == 0)
        add_native(&m, whole && evals == entries + 1 ? 1 : 0);
    bool broken = m.next < look->n_frames, within = broken && m.n > 0;
    if (within)
        add(&m, stacks_mark(stacks, MARK_BROKEN));
    while (m.next < look->n_frames)
        add_entry(&m);
    bool cut = look->n_frames ? look->end != 0 : end != UNWIND_WHOLE;
    if (cut || m.n == 0)
        ret[m.n++] = stacks_mark(stacks, MARK_CUT);
    else if (broken && !within)
        ret[m.n++] = stacks_mark(stacks, MARK_BROKEN);
    return m.n;
}
