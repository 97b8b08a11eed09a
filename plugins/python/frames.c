/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/frames.c - the Python frames of a thread for profilers, safe in signal handlers.
 *
 * here() runs in handlers on any thread: no lock, no allocation, little stack; every read of the
 * interpreter's memory is the kernel's (peek.h), page by page, into the caller's scratch.  The
 * others run on workers under one lock.  The functions of an extension carry no context, so what
 * they use is static.
 *
 * Code objects may die, and another one may come to the same address.  So a stack names a code
 * object by what was read of it (its mark), and what names it is copied at the first sight of it;
 * the copies are kept for ever, which bounds how many are.
 */
#include "frames.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

#include "lines.h"
#include "names.h"
#include "native.h"
#include "walk.h"

#define PAGE UINT64_C(4096)
#define FIRST_BLOCK 1024u /* bytes; most of what is read is cold, so not more than is needed */
#define PAGES 8           /* blocks kept of one look; the frames lie in one to four */
#define STATE_BYTES 192   /* of a thread state, up to the ids */
#define GIL_BYTES 24      /* of the GIL's struct */
#define ROUND 64          /* code objects read with one system call */
#define HEAD_BYTES 160    /* of a code object, up to the pointer to its line table */
#define FRAMES_MAX 256    /* of a look */
#define SLOTS (1u << 16)  /* of the table of known code objects, a power of two */
#define KNOWN_MAX (SLOTS / 2)
#define KNOWN_BYTES ((size_t)32 << 20) /* of all their names and line tables */
#define NAME_BYTES 1024                /* of a name's characters, as they lie in memory */
#define FILE_BYTES 2048
#define TABLE_BYTES (8u << 10) /* of a line table copied in a handler */
#define LIST_NS UINT64_C(100000000)
#define NO_ROOM UINT32_MAX

struct page {
    uint64_t address; /* 0: none */
    uint32_t size;
};

/* What a look works in. */
struct scratch {
    struct page page[PAGES];
    uint32_t next_page;
    uint8_t bytes[PAGES][PAGE];
    struct walk_frame frames[FRAMES_MAX];
    uint8_t heads[ROUND][HEAD_BYTES];
    struct iovec to[ROUND], from[ROUND];
    uint64_t codes[ROUND];
    uint8_t state[STATE_BYTES], gil[GIL_BYTES];
};

/* What tells code objects at one address apart. */
struct mark {
    uint64_t file, name, qualname, lines;
    int32_t first_line;
};

struct code {
    uint64_t address;
    struct mark mark;
    uint32_t number;
    uint32_t table_size;
    uint8_t *table; /* NULL: its lines are not known */
    char *func, *file;
};

/* What names a code object, as copied: then the bytes of the name's str object, of the file's and
 * of the line table. */
struct parts {
    struct mark mark;
    uint32_t func_bytes, file_bytes, table_bytes;
    uint32_t has_table;
};

static struct {
    struct plugin *plugin; /* NULL: closed; written on [control] while nobody uses the part */
    _Atomic bool usable;   /* walk is open */
    pthread_mutex_t lock;  /* for all below but `known`'s pointers */
    struct walk walk;      /* its offsets and py are read by handlers, and do not change */
    _Atomic uint64_t gil;  /* address of the main interpreter's GIL, 0: not known */
    char interpreter[256];
    _Atomic(struct code *) *known;     /* SLOTS; set once each, read by handlers */
    _Atomic(struct code *) *by_number; /* KNOWN_MAX + 1 */
    uint32_t n_known;
    size_t known_bytes;
    struct walk_thread *threads; /* WALK_THREADS; as of listed_ns */
    int n_threads;
    uint64_t listed_ns;
    struct walk_frame *frames; /* WALK_FRAMES */
    uint8_t *again;            /* room for the parts of one code object */
} f = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- reading ---- */

/* `size` bytes at `address` by way of the look's pages; NULL: not readable.         [signal] */
static const uint8_t *page_get(struct scratch *s, uint64_t address, uint32_t size)
{
    for (uint32_t i = 0; i < PAGES; i++)
        if (s->page[i].address && address >= s->page[i].address &&
            address + size <= s->page[i].address + s->page[i].size)
            return s->bytes[i] + (address - s->page[i].address);
    /* a deeper stack is read in larger pieces; none reaches over the end of a page */
    uint32_t i = s->next_page % PAGES;
    uint64_t want = s->next_page < 2 ? FIRST_BLOCK << s->next_page : PAGE;
    uint64_t base = address & ~(want - 1);
    s->next_page++;
    if (address < PAGE || address + size > base + want) {
        base = address; /* it lies in two */
        want = size;
    }
    s->page[i].size = (uint32_t)peek_some(&f.walk.peek, base, s->bytes[i], (size_t)want);
    s->page[i].address = s->page[i].size ? base : 0;
    if (!s->page[i].size || address + size > base + s->page[i].size)
        return NULL;
    return s->bytes[i] + (address - base);
}

static uint64_t u64_at(const uint8_t *p, int offset)
{
    uint64_t value;
    memcpy(&value, p + offset, sizeof(value));
    return value;
}

static int32_t i32_at(const uint8_t *p, int offset)
{
    int32_t value;
    memcpy(&value, p + offset, sizeof(value));
    return value;
}

/* Several pieces at once; how many of the first were read whole.                    [signal] */
static uint32_t read_pieces(struct iovec *to, struct iovec *from, uint32_t n)
{
    const struct peek *peek = &f.walk.peek;
    uint32_t done = 0;
    if (peek->mem == -1) {
        ssize_t got = process_vm_readv(peek->pid, to, n, from, n, 0);
        while (done < n && got >= (ssize_t)to[done].iov_len)
            got -= (ssize_t)to[done++].iov_len;
        return done;
    }
    while (done < n && peek_bytes(peek, (uint64_t)(uintptr_t)from[done].iov_base, to[done].iov_base,
                                  to[done].iov_len) == 0)
        done++;
    return done;
}

/* ---- known code objects ---- */

static void mark_of(const uint8_t *head, struct mark *ret) /* [signal] */
{
    const struct offsets *o = &f.walk.o;
    memset(ret, 0, sizeof(*ret)); /* its padding is compared too */
    ret->file = u64_at(head, o->co_file);
    ret->name = u64_at(head, o->co_name);
    ret->qualname = o->co_qualname >= 0 ? u64_at(head, o->co_qualname) : 0;
    ret->lines = u64_at(head, o->co_lines);
    ret->first_line = i32_at(head, o->co_first_line);
}

static uint32_t mark_hash(const struct mark *m) /* [signal] */
{
    uint64_t hash = (uint64_t)(uint32_t)m->first_line;
    const uint64_t word[] = {m->file, m->name, m->qualname, m->lines};
    for (int i = 0; i < 4; i++)
        hash = (hash ^ word[i]) * UINT64_C(0x9e3779b97f4a7c15) >> 7 ^ hash << 57;
    return (uint32_t)(hash ^ hash >> 32);
}

static uint32_t slot_of(uint64_t address) /* [signal] */
{
    return (uint32_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> 48) & (SLOTS - 1);
}

/* A code object that is known already; NULL: it is not.                             [signal] */
static struct code *code_find(uint64_t address, const struct mark *mark)
{
    for (uint32_t i = slot_of(address), n = 0; n < SLOTS; i = (i + 1) & (SLOTS - 1), n++) {
        struct code *c = atomic_load_explicit(&f.known[i], memory_order_acquire);
        if (!c)
            return NULL;
        if (c->address == address && memcmp(&c->mark, mark, sizeof(*mark)) == 0)
            return c;
    }
    return NULL;
}

/* ---- copying what names a code object ---- */

/* The bytes of a str object with `most` of its characters'; 0: no str, or no room.  [signal] */
static uint32_t copy_str(uint64_t object, uint8_t *to, uint32_t room, uint32_t most)
{
    const struct offsets *o = &f.walk.o;
    uint32_t head = (uint32_t)o->str_compact;
    if (room < head || peek_bytes(&f.walk.peek, object, to, head) ||
        u64_at(to, 8) != (uint64_t)(uintptr_t)f.walk.py->PyUnicode_Type)
        return 0;
    uint32_t state = (uint32_t)i32_at(to, o->str_state), width = state >> 2 & 7;
    uint64_t length = u64_at(to, o->str_length), bytes;
    if (!(state >> 5 & 1) || width == 0 || width > 4 || length > 1u << 30)
        return 0;
    uint32_t begin = state >> 6 & 1 ? (uint32_t)o->str_ascii : head;
    bytes = length * width < most ? length * width : most;
    if (bytes > room - head || peek_bytes(&f.walk.peek, object + begin, to + head, (size_t)bytes))
        return 0;
    return head + (uint32_t)bytes;
}

/* Copy what names the code object with this mark; how many bytes, 0: no room or not readable.
 *                                                                                   [signal] */
static uint32_t copy_parts(const struct mark *mark, uint8_t *to, uint32_t room, uint32_t table_most)
{
    const struct offsets *o = &f.walk.o;
    struct parts p = {.mark = *mark};
    uint32_t at = sizeof(p);
    uint64_t size;
    if (room < sizeof(p))
        return 0;
    p.func_bytes =
        copy_str(o->co_qualname >= 0 ? mark->qualname : mark->name, to + at, room - at, NAME_BYTES);
    at += p.func_bytes;
    p.file_bytes = p.func_bytes ? copy_str(mark->file, to + at, room - at, FILE_BYTES) : 0;
    at += p.file_bytes;
    if (!p.file_bytes)
        return 0;
    if (peek_u64(&f.walk.peek, mark->lines + (uint64_t)o->var_size, &size) == 0 &&
        size <= table_most && size <= room - at &&
        peek_bytes(&f.walk.peek, mark->lines + (uint64_t)o->bytes_data, to + at, (size_t)size) ==
            0) {
        p.table_bytes = (uint32_t)size;
        p.has_table = 1;
        at += p.table_bytes;
    }
    memcpy(to, &p, sizeof(p));
    at = (at + 15) & ~15u;
    return at <= room ? at : 0;
}

/* ---- a look ---- */

static void frame_parse(struct walk_frame *frame, uint64_t address,
                        const uint8_t *at) /* [signal] */
{
    const struct offsets *o = &f.walk.o;
    *frame = (struct walk_frame){
        .address = address,
        .code = u64_at(at, o->f_code),
        .back = u64_at(at, o->f_back),
        .instr = o->co_bytecode >= 0 ? u64_at(at, o->f_instr)
                                     : (uint64_t)(int64_t)i32_at(at, o->f_instr),
        .owner = o->f_owner >= 0 ? at[o->f_owner] : 0,
        .entry = o->f_entry >= 0 ? at[o->f_entry] : 0,
    };
}

/* Follow the chain from the innermost frame; how many, *ret_end as in the look.     [signal] */
static uint32_t follow(struct scratch *s, uint64_t address, uint32_t max, int32_t *ret_end)
{
    uint32_t n = 0;
    *ret_end = 0;
    while (address) {
        if (n == max) {
            *ret_end = 2;
            break;
        }
        const uint8_t *at = page_get(s, address, (uint32_t)f.walk.o.frame_size);
        if (!at) {
            *ret_end = 1;
            break;
        }
        frame_parse(&s->frames[n], address, at);
        address = s->frames[n++].back;
    }
    return n;
}

static int64_t offset_in(const struct walk_frame *frame) /* [signal] */
{
    const struct offsets *o = &f.walk.o;
    if (o->co_bytecode >= 0)
        return (int64_t)(frame->instr - (frame->code + (uint64_t)o->co_bytecode));
    int64_t offset = (int64_t)frame->instr;
    return o->minor == 10 && offset > 0 ? offset * 2 : offset;
}

/* Heads of the code objects of frames[from ...), as many frames as fit.  How many frames of them
 * are served; *ret_read: code objects that could be read.                           [signal] */
static uint32_t read_heads(struct scratch *s, const struct walk_frame *frames, uint32_t n,
                           uint32_t *ret_codes, uint32_t *ret_read)
{
    uint32_t codes = 0, served = 0;
    for (; served < n; served++) {
        uint32_t i = 0;
        if (walk_is_shim(&f.walk, &frames[served]))
            continue;
        while (i < codes && s->codes[i] != frames[served].code)
            i++;
        if (i < codes)
            continue;
        if (codes == ROUND)
            break;
        s->codes[codes] = frames[served].code;
        s->to[codes] = (struct iovec){s->heads[codes], (size_t)f.walk.o.co_lines + 8};
        s->from[codes] = (struct iovec){(void *)(uintptr_t)frames[served].code, s->to[0].iov_len};
        codes++;
    }
    *ret_codes = codes;
    *ret_read = read_pieces(s->to, s->from, codes);
    return served;
}

/* One frame into the look, by the head of its code object.  false: it is none.      [signal] */
static bool add_frame(struct probing_python_look *l, const struct walk_frame *frame,
                      const uint8_t *head)
{
    struct probing_python_frame *to = &l->frames[l->n_frames];
    struct mark mark;
    *to = (struct probing_python_frame){.code = frame->code, .offset = -1, .copied = NO_ROOM};
    if (walk_is_shim(&f.walk, frame)) {
        to->flags = PROBING_PYTHON_SHIM | PROBING_PYTHON_ENTRY;
        l->n_frames++;
        return true;
    }
    if (!head || u64_at(head, 8) != (uint64_t)(uintptr_t)f.walk.py->PyCode_Type)
        return false;
    mark_of(head, &mark);
    to->mark = mark_hash(&mark);
    to->offset = offset_in(frame);
    to->flags = walk_is_entry(&f.walk, frame) ? PROBING_PYTHON_ENTRY : 0;
    const struct code *known = code_find(frame->code, &mark);
    if (known) {
        to->known = known->number;
    } else {
        for (uint32_t i = 0; i < l->n_frames; i++) /* twice in one stack: copy it once */
            if (l->frames[i].code == frame->code && l->frames[i].mark == to->mark)
                to->copied = l->frames[i].copied;
        uint32_t size = to->copied != NO_ROOM ? 0
                                              : copy_parts(&mark, l->bytes + l->n_bytes,
                                                           l->max_bytes - l->n_bytes, TABLE_BYTES);
        if (size) {
            to->copied = l->n_bytes;
            l->n_bytes += size;
        }
    }
    l->n_frames++;
    return true;
}

/* Frames into the look; what is behind one that cannot be is left out.              [signal] */
static void add_frames(struct probing_python_look *l, struct scratch *s,
                       const struct walk_frame *frames, uint32_t n)
{
    for (uint32_t begin = 0; begin < n;) {
        uint32_t codes, read, served = read_heads(s, frames + begin, n - begin, &codes, &read);
        for (uint32_t i = begin; i < begin + served; i++) {
            uint32_t c = 0;
            while (c < codes && s->codes[c] != frames[i].code)
                c++;
            if (!add_frame(l, &frames[i], c < read ? s->heads[c] : NULL)) {
                l->end = 1;
                return;
            }
        }
        begin += served;
    }
}

/* The thread state and the GIL with one system call; false: the state is not readable.  [signal] */
static bool read_state(struct scratch *s, uint64_t state)
{
    uint64_t gil = atomic_load_explicit(&f.gil, memory_order_relaxed);
    s->to[0] = (struct iovec){s->state, STATE_BYTES};
    s->to[1] = (struct iovec){s->gil, GIL_BYTES};
    s->from[0] = (struct iovec){(void *)(uintptr_t)state, STATE_BYTES};
    s->from[1] = (struct iovec){(void *)(uintptr_t)gil, GIL_BYTES};
    memset(s->gil, 0, GIL_BYTES);
    memset(s->page, 0, sizeof(s->page));
    s->next_page = 0;
    return read_pieces(s->to, s->from, gil ? 2 : 1) >= 1;
}

static bool holds_gil(const struct scratch *s, uint64_t state) /* [signal] */
{
    const struct offsets *o = &f.walk.o;
    return i32_at(s->gil, o->gil_locked) == 1 && u64_at(s->gil, o->gil_holder) == state;
}

static int part_here(struct probing_python_look *l)
{
    struct scratch *s = l->scratch;
    const struct offsets *o = &f.walk.o;
    l->n_frames = l->n_bytes = 0;
    l->gil = -1;
    l->end = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOTSUP;
    uint64_t state = (uint64_t)(uintptr_t)f.walk.py->PyGILState_GetThisThreadState();
    if (!state)
        return 0;
    if (!read_state(s, state) || u64_at(s->state, o->ts_thread_id) != (uint64_t)pthread_self())
        return 0; /* it comes or goes */
    l->gil = holds_gil(s, state);
    uint64_t top = 0;
    bool found = true;
    if (o->ts_cframe >= 0) {
        uint64_t cframe = u64_at(s->state, o->ts_cframe);
        found = cframe && peek_u64(&f.walk.peek, cframe + (uint64_t)o->cf_frame, &top) == 0;
    } else {
        top = u64_at(s->state, o->ts_frame);
    }
    if (!found) {
        l->end = 1;
        return 0;
    }
    uint32_t max = l->max_frames < FRAMES_MAX ? l->max_frames : FRAMES_MAX;
    int32_t end;
    uint32_t n = follow(s, top, max, &end);
    l->end = end;
    add_frames(l, s, s->frames, n);
    return 0;
}

/* ---- from outside ---- */

static uint64_t now_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static const struct walk_thread *listed(int32_t tid)
{
    for (int i = 0; i < f.n_threads; i++)
        if (f.threads[i].tid == tid)
            return &f.threads[i];
    return NULL;
}

/* A thread's state; the list of them is read again now and then.  Locked. */
static const struct walk_thread *state_of(int32_t tid)
{
    const struct walk_thread *t = listed(tid);
    uint64_t now = now_ns();
    if (now - f.listed_ns < LIST_NS || cpython_gone(f.walk.py))
        return t;
    int n = walk_threads(&f.walk, f.threads, WALK_THREADS);
    f.n_threads = n > 0 ? n : 0;
    f.listed_ns = now;
    return listed(tid);
}

/* Is it still the thread's own?  It may have ended and been freed since the list was read. */
static bool state_stands(const struct walk_thread *t)
{
    const struct offsets *o = &f.walk.o;
    uint64_t interpreter, id;
    return peek_u64(&f.walk.peek, t->state + (uint64_t)o->ts_interp, &interpreter) == 0 &&
           interpreter == t->interpreter &&
           peek_u64(&f.walk.peek, t->state + (uint64_t)o->ts_thread_id, &id) == 0 &&
           id == t->thread_id;
}

static int look_of(int32_t tid, struct probing_python_look *l)
{
    struct scratch *s = l->scratch;
    const struct walk_thread *t = state_of(tid);
    enum walk_end end;
    if (!t || !state_stands(t))
        return -ESRCH;
    if (!read_state(s, t->state))
        return -ESRCH;
    l->gil = holds_gil(s, t->state);
    uint32_t max = l->max_frames < FRAMES_MAX ? l->max_frames : FRAMES_MAX;
    int n = walk_stack(&f.walk, t, f.frames, max, &end);
    l->end = end == WALK_WHOLE ? 0 : end == WALK_LIMIT ? 2 : 1;
    add_frames(l, s, f.frames, (uint32_t)n);
    return 0;
}

static int part_of(int32_t tid, struct probing_python_look *l)
{
    l->n_frames = l->n_bytes = 0;
    l->gil = -1;
    l->end = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOTSUP;
    (void)pthread_mutex_lock(&f.lock);
    int r = look_of(tid, l);
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

static int32_t part_holder(void)
{
    const struct offsets *o = &f.walk.o;
    uint64_t gil = atomic_load_explicit(&f.gil, memory_order_relaxed), holder;
    int32_t locked, tid = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire) || !gil ||
        peek_i32(&f.walk.peek, gil + (uint64_t)o->gil_locked, &locked) || locked != 1 ||
        peek_u64(&f.walk.peek, gil + (uint64_t)o->gil_holder, &holder))
        return 0;
    (void)pthread_mutex_lock(&f.lock);
    (void)state_of(0); /* the list is fresh enough then */
    for (int i = 0; i < f.n_threads; i++)
        if (f.threads[i].state == holder)
            tid = f.threads[i].tid;
    (void)pthread_mutex_unlock(&f.lock);
    return tid;
}

static int part_thread_name(int32_t tid, char *ret, uint32_t size)
{
    int r = -ENOENT;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire))
        return -ENOENT;
    (void)pthread_mutex_lock(&f.lock);
    const struct walk_thread *t = state_of(tid);
    if (t && state_stands(t) && names_thread(&f.walk, t, ret, size))
        r = 0;
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

/* ---- names ---- */

/* A copied str object as UTF-8; to be freed. */
static char *str_text(const uint8_t *str, uint32_t bytes, size_t most)
{
    const struct offsets *o = &f.walk.o;
    uint32_t width = (uint32_t)i32_at(str, o->str_state) >> 2 & 7;
    uint32_t n = (bytes - (uint32_t)o->str_compact) / width;
    char *text = malloc(most);
    if (text)
        walk_utf8(str + o->str_compact, width, n, text, most);
    return text;
}

static void code_free(struct code *c)
{
    if (!c)
        return;
    free(c->func);
    free(c->file);
    free(c->table);
    free(c);
}

static struct code *code_new(uint64_t address, const uint8_t *bytes)
{
    struct parts p;
    memcpy(&p, bytes, sizeof(p));
    const uint8_t *func = bytes + sizeof(p), *file = func + p.func_bytes;
    struct code *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->address = address;
    c->mark = p.mark;
    c->func = str_text(func, p.func_bytes, WALK_NAME);
    c->file = str_text(file, p.file_bytes, WALK_FILE);
    c->table_size = p.table_bytes;
    c->table = p.has_table ? malloc(p.table_bytes + 1u) : NULL;
    if (!c->func || !c->file || (p.has_table && !c->table)) {
        code_free(c);
        return NULL;
    }
    /* they are kept for ever: no more than they need */
    char *less = realloc(c->func, strlen(c->func) + 1);
    c->func = less ? less : c->func;
    less = realloc(c->file, strlen(c->file) + 1);
    c->file = less ? less : c->file;
    if (p.has_table)
        memcpy(c->table, file + p.file_bytes, p.table_bytes);
    return c;
}

static void code_text(const struct code *c, int64_t offset, struct probing_python_text *ret)
{
    (void)snprintf(ret->func, sizeof(ret->func), "%s", c->func);
    (void)snprintf(ret->file, sizeof(ret->file), "%s", c->file);
    ret->line =
        c->table ? lines_find(f.walk.o.minor, c->table, c->table_size, c->mark.first_line, offset)
                 : 0;
}

/* Publish: 0, or -ENOSPC and it stays the caller's.  Locked. */
static int code_keep(struct code *c)
{
    size_t bytes = sizeof(*c) + c->table_size + strlen(c->func) + strlen(c->file) + 64;
    if (f.n_known == KNOWN_MAX || f.known_bytes + bytes > KNOWN_BYTES)
        return -ENOSPC;
    c->number = ++f.n_known;
    f.known_bytes += bytes;
    uint32_t i = slot_of(c->address);
    while (atomic_load_explicit(&f.known[i], memory_order_relaxed))
        i = (i + 1) & (SLOTS - 1);
    atomic_store_explicit(&f.by_number[c->number], c, memory_order_release);
    atomic_store_explicit(&f.known[i], c, memory_order_release);
    return 0;
}

#define AGAIN_BYTES (4u << 20) /* a line table of 100,000 lines has about 500,000 */

/* There was no room in the handler: the code object may be there still.  Locked. */
static const uint8_t *read_again(const struct probing_python_frame *frame)
{
    uint8_t head[HEAD_BYTES], after[HEAD_BYTES];
    struct mark mark, second;
    size_t size = (size_t)f.walk.o.co_lines + 8;
    if (!f.again)
        f.again = malloc(AGAIN_BYTES);
    if (!f.again || peek_bytes(&f.walk.peek, frame->code, head, size))
        return NULL;
    mark_of(head, &mark);
    if (mark_hash(&mark) != frame->mark || !copy_parts(&mark, f.again, AGAIN_BYTES, AGAIN_BYTES) ||
        peek_bytes(&f.walk.peek, frame->code, after, size))
        return NULL;
    mark_of(after, &second);
    return memcmp(&mark, &second, sizeof(mark)) == 0 ? f.again : NULL;
}

/* The line table was too long for the handler: take what the code object has now.  Locked. */
static const uint8_t *complete(const struct probing_python_frame *frame, const uint8_t *bytes)
{
    struct parts p;
    memcpy(&p, bytes, sizeof(p));
    const uint8_t *whole = p.has_table ? NULL : read_again(frame);
    return whole ? whole : bytes;
}

static int64_t name_new(const struct probing_python_look *l,
                        const struct probing_python_frame *frame, struct probing_python_text *ret)
{
    const uint8_t *bytes =
        frame->copied < l->n_bytes ? complete(frame, l->bytes + frame->copied) : read_again(frame);
    struct mark mark;
    if (!bytes)
        return -ENOENT;
    memcpy(&mark, bytes, sizeof(mark)); /* a struct parts begins with it */
    struct code *c = code_find(frame->code, &mark);
    if (c) {
        code_text(c, frame->offset, ret);
        return c->number;
    }
    c = code_new(frame->code, bytes);
    if (!c)
        return -ENOMEM;
    code_text(c, frame->offset, ret);
    int r = code_keep(c);
    if (r < 0) {
        code_free(c);
        return r;
    }
    return c->number;
}

static int64_t part_name(const struct probing_python_look *l, uint32_t i,
                         struct probing_python_text *ret)
{
    const struct probing_python_frame *frame = &l->frames[i];
    ret->func[0] = ret->file[0] = '\0';
    ret->line = 0;
    if (!atomic_load_explicit(&f.usable, memory_order_acquire) || i >= l->n_frames)
        return -ENOENT;
    if (frame->known && frame->known <= KNOWN_MAX) {
        const struct code *c =
            atomic_load_explicit(&f.by_number[frame->known], memory_order_acquire);
        if (!c)
            return -ENOENT;
        code_text(c, frame->offset, ret);
        return c->number;
    }
    (void)pthread_mutex_lock(&f.lock);
    int64_t r = name_new(l, frame, ret);
    (void)pthread_mutex_unlock(&f.lock);
    return r;
}

static int part_kind(const char *function, const char *module)
{
    return native_kind(f.interpreter, function, module);
}

const struct probing_python_frames_1 frames_part = {
    .size = sizeof(struct probing_python_frames_1),
    .scratch_bytes = sizeof(struct scratch),
    .here = part_here,
    .of = part_of,
    .holder = part_holder,
    .name = part_name,
    .thread_name = part_thread_name,
    .kind = part_kind,
};

/* ---- begin and end ---- */

static uint64_t find_gil(void)
{
    const struct offsets *o = &f.walk.o;
    uint64_t gil = (uint64_t)(uintptr_t)f.walk.py->runtime + (uint64_t)o->rt_gil;
    uint64_t interpreter = (uint64_t)(uintptr_t)f.walk.py->PyInterpreterState_Main();
    if (o->rt_gil >= 0)
        return gil;
    return interpreter && peek_u64(&f.walk.peek, interpreter + (uint64_t)o->is_gil, &gil) == 0 ? gil
                                                                                               : 0;
}

void frames_open(struct plugin *p)
{
    char why[200];
    if (walk_open(&f.walk, &p->py, why, sizeof(why)) < 0)
        return;
    f.plugin = p;
    f.known = calloc(SLOTS, sizeof(*f.known)); /* zero pages until they are used */
    f.by_number = calloc(KNOWN_MAX + 1, sizeof(*f.by_number));
    f.threads = malloc(WALK_THREADS * sizeof(*f.threads));
    f.frames = malloc(WALK_FRAMES * sizeof(*f.frames));
    if (!f.known || !f.by_number || !f.threads || !f.frames) {
        frames_close();
        return;
    }
    native_interpreter(p->host->extension(p->host, PROBING_STACK_1), &p->py, f.interpreter,
                       sizeof(f.interpreter));
    atomic_store_explicit(&f.gil, find_gil(), memory_order_relaxed);
    atomic_store_explicit(&f.usable, true, memory_order_release);
}

void frames_close(void)
{
    atomic_store_explicit(&f.usable, false, memory_order_release);
    for (uint32_t i = 1; f.by_number && i <= f.n_known; i++)
        code_free(atomic_load_explicit(&f.by_number[i], memory_order_relaxed));
    free(f.known);
    free(f.by_number);
    free(f.threads);
    free(f.frames);
    free(f.again);
    f.known = f.by_number = NULL;
    f.threads = NULL;
    f.frames = NULL;
    f.again = NULL;
    f.n_known = 0;
    f.n_threads = 0;
    f.known_bytes = 0;
    f.listed_ns = 0;
    if (f.plugin)
        walk_close(&f.walk);
    f.plugin = NULL;
}
