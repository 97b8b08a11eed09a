/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/signal_look.c - one look at the Python frames of a thread, safe in signal
 * handlers.
 *
 * Any thread: no lock, no allocation, little stack; every read of the interpreter's memory is the
 * kernel's (safe_read.h), page by page, into the caller's scratch.  Nothing is kept between looks
 * but what the caller keeps for its thread: where the last one found what it read.
 */
#include "inspect/signal_look.h"

#include <errno.h>
#include <pthread.h>

#include "inspect/code_names.h"

#define PAGE UINT64_C(4096)
#define FIRST_BLOCK 1024u /* bytes; most of what is read is cold, so not more than is needed */
#define PAGES 8           /* blocks kept of one look; the frames lie in one to four */
#define STATE_BYTES OFFSETS_STATE
#define GIL_BYTES OFFSETS_GIL
#define ROUND 64         /* code objects read with one system call */
#define LAST_PIECES 16   /* pieces that hold the frames of a thread's last look */
#define LAST_CODES 24    /* and its code objects */
#define LAST_BYTES 8192u /* of all those pieces */
#define LAST_GAP 512u    /* bytes between frames that are kept in one piece */
#define LAST_MORE 256u   /* bytes beyond the innermost one: the next look may be deeper */
#define ROUND_FRAMES 256 /* frames followed at a time */
#define HALF (ROUND_FRAMES / 2)
#define COUNT_READS 512    /* blocks read of a stack's frames that have no room */
#define COUNT_FRAMES 65536 /* and so many frames: a chain that is damaged may have no end */
#define LIKE_MAX 64        /* frames further in that are compared with one that has no number */
#define NO_ROOM UINT32_MAX

struct page {
    uint64_t address;
    uint32_t size; /* 0: none */
    const uint8_t *bytes;
};

/* The places where a thread's last look found what it read: most often the next one finds it
 * there. */
struct last {
    uint64_t state;  /* 0: there was none */
    uint64_t top_at; /* where the pointer to the innermost frame stood; 0: in the state */
    uint32_t n_pieces, n_codes;
    struct piece {
        uint64_t address, size;
    } pieces[LAST_PIECES];
    struct seen { /* a code object: its mark and its number as of then */
        uint64_t code;
        uint32_t mark, known; /* known 0: it had no number */
    } codes[LAST_CODES];
};
_Static_assert(ROUND *CODES_HEAD >= CODES_ROOM, "codes_check() works in the room for heads");
_Static_assert(sizeof(struct last) <= PROBING_PYTHON_LAST, "a thread's last look has no room");

/* The memory and the inputs of a look. */
struct scratch {
    const struct walk *w; /* what it reads with */
    uint64_t gil;         /* address of the main interpreter's GIL, 0: not known */
    /* the one read: a thread state, the GIL, the pointer to the innermost frame, pieces, heads */
    uint8_t first[STATE_BYTES + GIL_BYTES + 8 + LAST_BYTES + LAST_CODES * CODES_HEAD];
    size_t gil_at, top_at, heads_at; /* in `first`; 0: it was not read */
    uint32_t n_heads;                /* of last->codes */
    struct page page[LAST_PIECES + PAGES];
    uint32_t n_pages, next_page;
    uint8_t bytes[PAGES][PAGE];
    struct walk_frame frames[ROUND_FRAMES];
    struct last next_last; /* what is found, for the thread's next look */
    uint8_t heads[ROUND * CODES_HEAD];
    struct iovec from[ROUND];
    uint64_t codes[ROUND];
};
_Static_assert(sizeof(struct scratch) <= LOOK_SCRATCH_BYTES, "a look has no room");

/* ---- reading ---- */

static size_t head_size(const struct scratch *s) /* [signal] */
{
    return (size_t)s->w->o.co_lines + 8;
}

/* The place of an address in its page; it may be any number, also one that `+ size` turns over.
 * [signal] */
static const uint8_t *in_page(const struct page *page, uint64_t address, uint32_t size)
{
    uint64_t at = address - page->address;
    return at < page->size && page->size - at >= size ? page->bytes + at : NULL;
}

/* `size` bytes at `address` by way of the look's pages; NULL: not readable.         [signal] */
static const uint8_t *page_get(struct scratch *s, uint64_t address, uint32_t size)
{
    for (uint32_t i = 0; i < s->n_pages; i++) {
        const uint8_t *found = in_page(&s->page[i], address, size);
        if (found)
            return found;
    }
    /* a deeper stack is read in larger pieces; none reaches over the end of a page */
    uint32_t i = s->next_page % PAGES;
    uint64_t want = s->next_page < 2 ? FIRST_BLOCK << s->next_page : PAGE;
    uint64_t base = address & ~(want - 1);
    struct page *to =
        s->next_page < PAGES ? &s->page[s->n_pages++] : &s->page[s->n_pages - PAGES + i];
    s->next_page++;
    if (address - base > want - size) {
        base = address; /* it lies in two */
        want = size;
    }
    *to = (struct page){base, (uint32_t)peek_some(&s->w->peek, base, s->bytes[i], (size_t)want),
                        s->bytes[i]};
    return in_page(to, address, size);
}

/* Note what the one read brought, `got` bytes: its pieces as pages, and its heads.   [signal] */
static void take_first(struct scratch *s, const struct last *last, size_t at, size_t got)
{
    for (uint32_t i = 0; last && i < last->n_pieces; i++) {
        const struct piece *piece = &last->pieces[i];
        if (at + piece->size <= got)
            s->page[s->n_pages++] =
                (struct page){piece->address, (uint32_t)piece->size, s->first + at};
        at += (size_t)piece->size;
    }
    s->heads_at = at;
    if (last && got > at)
        s->n_heads = (uint32_t)((got - at) / head_size(s));
    if (last && s->n_heads > last->n_codes)
        s->n_heads = last->n_codes;
}

/* The thread state and the GIL, and what the last look read, with one system call; last: NULL, or
 * of this state.  false: the state is not readable.                                  [signal] */
static bool read_first(struct scratch *s, struct probing_python_look *l, uint64_t state,
                       const struct last *last, bool more)
{
    struct iovec to[2] = {{s->first, 0}, {NULL, 0}};
    size_t n = 0, at = STATE_BYTES;
    s->gil_at = s->top_at = s->n_heads = s->n_pages = s->next_page = 0;
    s->from[n++] = peek_piece(state, STATE_BYTES);
    if (s->gil) {
        s->gil_at = at;
        s->from[n++] = peek_piece(s->gil, GIL_BYTES);
        at += GIL_BYTES;
    }
    if (last && last->top_at) {
        s->top_at = at;
        s->from[n++] = peek_piece(last->top_at, 8);
        at += 8;
    }
    size_t begin = at;
    for (uint32_t i = 0; last && i < last->n_pieces; i++) {
        s->from[n++] = peek_piece(last->pieces[i].address, (size_t)last->pieces[i].size);
        at += (size_t)last->pieces[i].size;
    }
    for (uint32_t i = 0; last && i < last->n_codes; i++) {
        s->from[n++] = peek_piece(last->codes[i].code, head_size(s));
        at += head_size(s);
    }
    to[0].iov_len = at;
    if (more) {
        s->from[n++] = peek_piece(l->more_from, l->more_bytes);
        to[1] = (struct iovec){l->more, l->more_bytes};
    }
    size_t got = peek_both(&s->w->peek, s->from, n, to);
    if (got < STATE_BYTES) /* /proc/PID/mem reads one piece after the other */
        got = peek_pieces(&s->w->peek, s->from, s->gil ? 2 : 1, s->first);
    if (got > at)
        l->more_read = (uint32_t)(got - at);
    got = got < at ? got : at;
    s->gil_at = s->gil_at + GIL_BYTES <= got ? s->gil_at : 0;
    s->top_at = s->top_at + 8 <= got ? s->top_at : 0;
    take_first(s, last, begin, got);
    return got >= STATE_BYTES;
}

/* ---- a look ---- */

struct chain {
    uint64_t next, base; /* the frame to go on with; where the thread's end */
    int32_t end;         /* as in the look */
};

/* Follow the chain for `max` frames, or to its end; how many.                        [signal] */
static uint32_t follow_chain(struct scratch *s, struct chain *c, struct walk_frame *ret,
                             uint32_t max)
{
    uint32_t n = 0;
    for (; c->next && c->next != c->base; n++) {
        c->end = 2;
        if (n == max)
            return n;
        const uint8_t *at = page_get(s, c->next, (uint32_t)s->w->o.frame_size);
        c->end = 1;
        if (!at)
            return n;
        walk_parse(s->w, c->next, at, &ret[n]);
        c->next = ret[n].back;
    }
    c->end = 0;
    return n;
}

/* The head of a code object that the one read brought; NULL: it did not.            [signal] */
static const uint8_t *first_head(const struct scratch *s, const struct last *last, uint64_t code)
{
    for (uint32_t i = 0; i < s->n_heads; i++)
        if (last->codes[i].code == code)
            return s->first + s->heads_at + i * head_size(s);
    return NULL;
}

/* Number of a code object; the last look's where it is the same one, which saves a search in
 * memory that nobody has touched for long.                                           [signal] */
static uint32_t number_of(const struct last *last, uint64_t code, const struct codes_mark *mark,
                          uint32_t hash)
{
    for (uint32_t i = 0; last && i < last->n_codes; i++)
        if (last->codes[i].code == code && last->codes[i].mark == hash &&
            codes_is_number(last->codes[i].known, code))
            return last->codes[i].known;
    return codes_find(code, mark);
}

/* Heads of the code objects of frames[from ...), as many frames as fit.  How many frames of them
 * are served; *ret_read: code objects that could be read.                           [signal] */
static uint32_t read_heads(struct scratch *s, const struct last *last,
                           const struct walk_frame *frames, uint32_t n, uint32_t *ret_codes,
                           uint32_t *ret_read)
{
    uint32_t codes = 0, served = 0;
    for (; served < n; served++) {
        uint32_t i = 0;
        if (walk_is_shim(s->w, &frames[served]) || first_head(s, last, frames[served].code))
            continue;
        while (i < codes && s->codes[i] != frames[served].code)
            i++;
        if (i < codes)
            continue;
        if (codes == ROUND)
            break;
        s->codes[codes] = frames[served].code;
        s->from[codes++] = peek_piece(frames[served].code, head_size(s));
    }
    *ret_codes = codes;
    *ret_read =
        codes ? (uint32_t)(peek_pieces(&s->w->peek, s->from, codes, s->heads) / head_size(s)) : 0;
    return served;
}

/* A frame further in with the same code object, which has been copied then; NULL: there is none
 * near by.                                                                           [signal] */
static const struct probing_python_frame *find_like(const struct probing_python_look *l,
                                                    const struct probing_python_frame *f)
{
    uint32_t n = l->n_frames < LIKE_MAX ? l->n_frames : LIKE_MAX;
    for (const struct probing_python_frame *at = f - 1; n > 0; at--, n--)
        if (at->code == f->code && at->mark == f->mark)
            return at;
    return NULL;
}

/* One frame into the look, by the head of its code object.  false: it is none.      [signal] */
static bool add_frame(const struct scratch *s, struct probing_python_look *l,
                      const struct last *last, const struct walk_frame *frame, const uint8_t *head)
{
    struct probing_python_frame *to = &l->frames[l->n_frames];
    struct codes_mark mark;
    *to = (struct probing_python_frame){.code = frame->code, .offset = -1, .copied = NO_ROOM};
    if (walk_is_shim(s->w, frame)) {
        to->code = frame->address;
        to->flags = PROBING_PYTHON_SHIM | PROBING_PYTHON_ENTRY;
        l->n_frames++;
        return true;
    }
    if (!head || u64_at(head, s->w->o.ob_type) != (uint64_t)(uintptr_t)s->w->py->PyCode_Type)
        return false;
    codes_mark(head, &mark);
    if (codes_is_setup(&mark))
        return true; /* no function of the user's: it is left out */
    to->mark = codes_hash(&mark);
    to->offset = walk_offset(s->w, frame);
    to->flags = walk_is_entry(s->w, frame) ? PROBING_PYTHON_ENTRY : 0;
    to->known = number_of(last, frame->code, &mark, to->mark);
    if (!to->known) {
        const struct probing_python_frame *like = find_like(l, to);
        uint32_t size =
            like ? 0 : codes_copy(&mark, l->bytes + l->n_bytes, l->max_bytes - l->n_bytes);
        to->copied = like ? like->copied : NO_ROOM;
        if (size) {
            to->copied = l->n_bytes;
            l->n_bytes += size;
        }
    }
    l->n_frames++;
    return true;
}

/* Frames into the look; what is behind one that cannot be is left out.              [signal] */
static void add_frames(struct probing_python_look *l, struct scratch *s, const struct last *last,
                       const struct walk_frame *frames, uint32_t n)
{
    for (uint32_t begin = 0; begin < n;) {
        uint32_t codes, read,
            served = read_heads(s, last, frames + begin, n - begin, &codes, &read);
        for (uint32_t i = begin; i < begin + served; i++) {
            const uint8_t *head = first_head(s, last, frames[i].code);
            uint32_t c = 0;
            while (!head && c < codes && s->codes[c] != frames[i].code)
                c++;
            if (!head && c < read)
                head = s->heads + c * head_size(s);
            if (!add_frame(s, l, last, &frames[i], head)) {
                l->end = 1;
                return;
            }
        }
        begin += served;
    }
}

/* This frame lies in a piece, or one is made longer for it, or it is one more.      [signal] */
static void add_piece(struct last *last, uint64_t *bytes, uint64_t address, uint64_t size)
{
    for (uint32_t i = last->n_pieces; i-- > 0;) {
        struct piece *p = &last->pieces[i];
        uint64_t low = address < p->address ? address : p->address;
        uint64_t high = address + size, end = p->address + p->size;
        high = high > end ? high : end;
        uint64_t grown = high - low - p->size;
        if (high - low <= PAGE && grown <= size + LAST_GAP && *bytes + grown <= LAST_BYTES) {
            *p = (struct piece){low, high - low};
            *bytes += grown;
            return;
        }
    }
    if (last->n_pieces < LAST_PIECES && *bytes + size <= LAST_BYTES) {
        last->pieces[last->n_pieces++] = (struct piece){address, size};
        *bytes += size;
    }
}

/* Keep the places of the innermost n frames for the next look.   [signal] */
static void remember_frames(struct scratch *s, uint32_t n)
{
    const struct walk_frame *frames = s->frames;
    struct last *last = &s->next_last;
    uint64_t size = (uint64_t)s->w->o.frame_size, bytes = 0;
    last->n_pieces = last->n_codes = 0;
    if (n && s->w->o.minor >= 11) { /* frames lie side by side, the next one behind this */
        uint64_t end = frames[0].address + size, left = PAGE - end % PAGE;
        add_piece(last, &bytes, frames[0].address, size + (left < LAST_MORE ? left : LAST_MORE));
    }
    for (uint32_t i = 0; i < n; i++)
        add_piece(last, &bytes, frames[i].address, size);
}

/* And the code objects of the frames that the look has.                              [signal] */
static void remember_codes(struct last *last, const struct probing_python_look *l)
{
    for (uint32_t i = 0; i < l->n_frames && last->n_codes < LAST_CODES; i++) {
        const struct probing_python_frame *at = &l->frames[i];
        uint32_t c = 0;
        while (c < last->n_codes && last->codes[c].code != at->code)
            c++;
        if (c == last->n_codes && !(at->flags & PROBING_PYTHON_SHIM))
            last->codes[last->n_codes++] = (struct seen){at->code, at->mark, at->known};
    }
}

static bool holds_gil(const struct scratch *s, uint64_t state) /* [signal] */
{
    const struct offsets *o = &s->w->o;
    const uint8_t *gil = s->first + s->gil_at;
    return s->gil_at && i32_at(gil, o->gil_locked) == 1 && u64_at(gil, o->gil_holder) == state;
}

/* Address of the innermost frame; *ret_at: where that pointer stands, 0: in the state.  false: not
 * readable.                                                                          [signal] */
static bool innermost_frame(const struct scratch *s, const struct last *last, uint64_t *ret_at,
                            uint64_t *ret)
{
    const struct offsets *o = &s->w->o;
    *ret_at = 0;
    *ret = u64_at(s->first, o->ts_frame >= 0 ? o->ts_frame : 0);
    if (o->ts_cframe < 0)
        return true;
    uint64_t cframe = u64_at(s->first, o->ts_cframe);
    *ret_at = cframe + (uint64_t)o->cf_frame;
    if (s->top_at && last->top_at == *ret_at) {
        *ret = u64_at(s->first, (int)s->top_at);
        return true;
    }
    return cframe && peek_u64(&s->w->peek, *ret_at, ret) == 0;
}

void look_empty(struct probing_python_look *l)
{
    l->n_frames = l->n_bytes = 0;
    l->gil = -1;
    l->end = 0;
    l->left_out = 0;
    if (l->size >= sizeof(*l))
        l->more_read = l->gap = 0;
}

/* How many frames from the innermost one are kept of a stack for which there is no room.  The rest
 * is for its outermost ones.                                                         [signal] */
static uint32_t inner_room(const struct probing_python_look *l)
{
    bool both = l->size >= sizeof(*l) && l->max_frames >= PROBING_PYTHON_DEEP;
    return both ? l->max_frames - ROUND_FRAMES : l->max_frames;
}

static void leave_out(struct probing_python_look *l, uint32_t n) /* [signal] */
{
    l->left_out = n;
    if (l->size >= sizeof(*l))
        l->gap = l->n_frames;
}

/* Count the frames for which there is no room, and keep the outermost ones: the last two halves of
 * what is followed.                                                                  [signal] */
static void follow_rest(struct probing_python_look *l, struct scratch *s, const struct last *last,
                        struct chain *c)
{
    uint32_t until = s->next_page + COUNT_READS, total = 0, n = 0, before = 0;
    struct walk_frame *half = s->frames, *other = s->frames + HALF;
    do {
        struct walk_frame *swap = half;
        half = other, other = swap;
        before = n;
        n = follow_chain(s, c, half, HALF);
        total += n;
    } while (c->end == 2 && s->next_page < until && total < COUNT_FRAMES);
    bool outermost = c->end == 0 && l->max_frames - l->n_frames >= ROUND_FRAMES;
    uint32_t kept = outermost ? before + n : 0;
    if (total > kept)
        leave_out(l, total - kept);
    if (!outermost)
        return;
    add_frames(l, s, last, other, before);
    add_frames(l, s, last, half, n);
}

/* The chain's frames into the look.                                                  [signal] */
static void add_chain(struct probing_python_look *l, struct scratch *s, const struct last *last,
                      struct chain *c)
{
    uint32_t inner = inner_room(l), walked = 0;
    do {
        uint32_t max = inner - walked < ROUND_FRAMES ? inner - walked : ROUND_FRAMES;
        uint32_t n = follow_chain(s, c, s->frames, max);
        if (walked == 0)
            remember_frames(s, n);
        walked += n;
        add_frames(l, s, last, s->frames, n);
    } while (l->end == 0 && c->end == 2 && walked < inner);
    if (l->end == 0 && c->end == 2)
        follow_rest(l, s, last, c);
    if (l->end == 0)
        l->end = c->end;
}

void look_here(struct probing_python_look *l, const struct walk *w, uint64_t gil)
{
    struct scratch *s = l->scratch;
    struct last *last = l->size >= sizeof(*l) ? l->last : NULL;
    uint64_t state = (uint64_t)(uintptr_t)w->py->PyGILState_GetThisThreadState();
    s->w = w;
    s->gil = gil;
    if (!state)
        return;
    const struct last *known = last && last->state == state ? last : NULL;
    if (!read_first(s, l, state, known, l->size >= sizeof(*l) && l->more) ||
        u64_at(s->first, w->o.ts_thread_id) != (uint64_t)pthread_self())
        return; /* it comes or goes */
    l->gil = holds_gil(s, state);
    uint64_t top = 0, top_at = 0;
    if (!innermost_frame(s, known, &top_at, &top)) {
        l->end = 1;
        return;
    }
    struct chain c = {top, w->o.ts_base >= 0 ? u64_at(s->first, w->o.ts_base) : 0, 0};
    s->next_last.state = state;
    s->next_last.top_at = top_at;
    add_chain(l, s, known, &c);
    codes_check(l, s->from, s->heads);
    if (!last)
        return;
    remember_codes(&s->next_last, l);
    *last = s->next_last;
}

int look_at(struct probing_python_look *l, struct walk *w, uint64_t gil,
            const struct walk_thread *t, struct walk_frame *frames)
{
    struct scratch *s = l->scratch;
    enum walk_end end;
    s->w = w;
    s->gil = gil;
    if (!read_first(s, l, t->state, /* last= */ NULL, /* more= */ false))
        return -ESRCH;
    l->gil = holds_gil(s, t->state);
    uint32_t n = (uint32_t)walk_stack(w, t, frames, WALK_FRAMES, &end);
    uint32_t inner = n > l->max_frames ? inner_room(l) : n;
    uint32_t outer = end == WALK_LIMIT ? 0 : n > inner ? l->max_frames - inner : 0;
    l->end = end == WALK_WHOLE ? 0 : end == WALK_LIMIT ? 2 : 1;
    add_frames(l, s, /* last= */ NULL, frames, inner);
    if (n > inner + outer)
        leave_out(l, n - inner - outer);
    add_frames(l, s, /* last= */ NULL, frames + n - outer, outer);
    codes_check(l, s->from, s->heads);
    return 0;
}
