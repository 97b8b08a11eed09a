/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/mixed_stack.c - one stack of native and Python frames.
 *
 * One thread only, that of its owner; nothing kept.
 */
#include "mixed_stack.h"

#include "lib/stack/frame_merge.h"

struct merge {
    struct stacks *stacks;
    const struct probing_python_look *look;
    const struct merge_native *native;
    uint32_t *frames;
    uint32_t n;                     /* frames so far */
    uint32_t natives[MERGE_NATIVE]; /* as the stacks number them */
    uint8_t kinds[MERGE_NATIVE];
};

static int frame_kind(void *arg, uint32_t i)
{
    return ((const struct merge *)arg)->kinds[i];
}

static uint64_t frame_sp(void *arg, uint32_t i)
{
    return ((const struct merge *)arg)->native->sps[i];
}

static struct frame_python frame_python_of(void *arg, uint32_t i)
{
    const struct probing_python_frame *f = &((const struct merge *)arg)->look->frames[i];
    bool shim = f->flags & PROBING_PYTHON_SHIM;
    return (struct frame_python){
        .mark = shim ? f->code : 0, .entry = f->flags & PROBING_PYTHON_ENTRY, .shim = shim};
}

static void add_frame(struct merge *m, uint32_t frame)
{
    if (m->n < MERGE_FRAMES - 2)
        m->frames[m->n++] = frame;
}

static void name_native(struct merge *m)
{
    for (uint32_t i = 0; i < m->native->n; i++) {
        int is;
        m->natives[i] = stacks_native(m->stacks, m->native->ips[i] - (i > 0), &is);
        m->kinds[i] = (uint8_t)is;
    }
}

/* Python frames that have others inside of them: all, or those up to where some were left out. */
static uint32_t inner_part(const struct probing_python_look *look)
{
    return look->left_out ? look->gap : look->n_frames;
}

/* How many were left out, and the outermost frames, which have no native ones between them. */
static void add_outer(struct merge *m)
{
    const struct probing_python_look *look = m->look;
    if (look->left_out)
        add_frame(m, stacks_left_out(m->stacks, look->left_out, /* more= */ look->end != 0));
    for (uint32_t i = inner_part(look); i < look->n_frames; i++)
        if (!(look->frames[i].flags & PROBING_PYTHON_SHIM))
            add_frame(m, stacks_python(m->stacks, look, i));
}

uint32_t merge_ready(struct stacks *stacks, const struct probing_python_look *look, uint32_t *ret)
{
    struct merge m = {.stacks = stacks, .look = look, .frames = ret};
    struct frame_merge f = {.arg = &m, .python = frame_python_of, .n_python = inner_part(look)};
    uint32_t i;
    add_frame(&m, stacks_mark(stacks, MARK_READY));
    while (frame_merge_next(&f, &i) != FRAME_END)
        add_frame(&m, stacks_python(stacks, look, i));
    add_outer(&m);
    bool cut = look->end == 1 && look->n_frames;
    ret[m.n++] = stacks_mark(stacks, cut ? MARK_CUT : MARK_BROKEN);
    return m.n;
}

uint32_t merge_stacks(struct stacks *stacks, const struct probing_python_look *look,
                      const struct merge_native *native, enum unwind_end end, uint32_t *ret)
{
    struct merge m = {.stacks = stacks, .look = look, .native = native, .frames = ret};
    struct frame_merge f = {.arg = &m,
                            .kind = frame_kind,
                            .sp = frame_sp,
                            .python = frame_python_of,
                            .n_native = native->n,
                            .n_python = inner_part(look),
                            .native_whole = end == UNWIND_WHOLE,
                            .python_whole = look->end == 0 && !look->left_out};
    bool broken = false, within = false; /* native frames lie inside of those that lack theirs */
    uint32_t i;
    name_native(&m);
    frame_merge_begin(&f);
    f.agree = f.agree || look->n_frames == 0; /* nothing could stand in a wrong place */
    for (enum frame_side side; (side = frame_merge_next(&f, &i)) != FRAME_END;) {
        if (side == FRAME_OF_NATIVE && look->left_out && f.next_python == f.n_python)
            break; /* it lies further out than those that were left out */
        if (side == FRAME_OF_PYTHON && f.apart && !broken) {
            broken = true;
            within = m.n > 0;
            if (within)
                add_frame(&m, stacks_mark(stacks, MARK_BROKEN));
        }
        add_frame(&m, side == FRAME_OF_NATIVE ? m.natives[i] : stacks_python(stacks, look, i));
    }
    add_outer(&m);
    bool cut = look->n_frames ? look->end == 1 : end != UNWIND_WHOLE;
    if (cut || m.n == 0)
        ret[m.n++] = stacks_mark(stacks, MARK_CUT);
    else if (broken && !within)
        ret[m.n++] = stacks_mark(stacks, MARK_BROKEN);
    return m.n;
}
