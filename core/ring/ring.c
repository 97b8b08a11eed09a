/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/ring.c - the rings file: wait-free appends by any thread, and the reader's side.
 *
 * ring_append() runs on any thread and in signal handlers; it takes no lock, allocates nothing and
 * makes system calls only when a thread gets its ring or wakes the drain.  Everything else is the
 * drain's, or control's.  It does not know what the cells mean.
 */
#include "core/ring/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3) /* Linux 4.14 */
#define MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (1 << 4)

#define MAGIC UINT64_C(0x31676e6972627270) /* "prbring1" */
#define VERSION 1
#define SLOTS 512      /* threads that may have a ring at once, nested ones included */
#define SLOTS_FEWEST 8 /* less is no use: better say so */
#define COUNTERS_AT 4096
#define SLOT_HEADS_AT 65536
#define DATA_AT 262144 /* SLOT_HEADS_AT + SLOTS * 256 and some room */
#define SPARES 2       /* rings ready for new threads; each costs 1 MiB */
#define LONGEST_ROW (RING_BYTES / 4)
#define RECORD_HEAD 16 /* bytes before the cells */
#define LEAVE_LIMIT NS_PER_S
#define COUNTERS_PER_TABLE (1 + TABLE_LOSS_REASONS)

_Static_assert(COUNTERS_AT + (TABLES_MAX + 1) * COUNTERS_PER_TABLE * 8 <= SLOT_HEADS_AT,
               "the counters fit before the slot headers");
_Static_assert(SLOT_HEADS_AT + SLOTS * 256 <= DATA_AT, "the slot headers fit before the data");

enum drain_state { AWAKE, ASLEEP, CALLED };
enum slot_state { SLOT_HOLE, SLOT_SPARE, SLOT_TAKEN, SLOT_RESERVING };

struct file_head {
    uint64_t magic;
    uint32_t version, header_bytes;
    int32_t pid;
    uint32_t slots;
    uint64_t start_time; /* of the process, clock ticks */
    int64_t utc_offset;
    uint64_t anchor_ns;           /* CLOCK_MONOTONIC when the file was made */
    _Atomic uint64_t generations; /* given so far */
};

struct slot_head {
    _Atomic uint32_t state;
    _Atomic int32_t tid;
    _Atomic uint64_t start_time; /* of the thread, filled in by rings_tend(); 0: not yet */
    _Atomic uint64_t generation; /* 0: nobody's */
    uint8_t gap0[40];
    _Atomic uint64_t head; /* its thread writes */
    uint8_t gap1[56];
    _Atomic uint64_t tail; /* the drain writes */
    uint8_t gap2[120];
};
_Static_assert(sizeof(struct slot_head) == 256, "as drawn in ring.h");

struct record {
    uint32_t size;
    uint16_t table_id;
    uint8_t n_cells;
    uint8_t padding;
    uint64_t ts;
};
_Static_assert(sizeof(struct record) == RECORD_HEAD, "as drawn in ring.h");

/* What a writer keeps beside the file; belongs to the thread that took the slot. */
struct writer {
    _Atomic uint32_t inside; /* appends under way in this thread: 0, 1, 2 */
    uint32_t slot;
    uint64_t limit;   /* head may come up to here without looking at the tail */
    uint64_t woke_at; /* position at which the drain was last woken */
    struct slot_head *head;
    uint8_t *data;
    uint8_t gap[24];
};
_Static_assert(sizeof(struct writer) == 64, "one cache line a writer");

/* The private pages: emptied by the kernel in a forked child. */
struct gate {
    _Alignas(64) struct rings *_Atomic live; /* NULL: appends do nothing */
    _Atomic uint64_t epoch;    /* which rings: a thread's pointers of another epoch are stale */
    _Atomic uint32_t entering; /* threads that look for a ring */
    _Atomic uint32_t tended;   /* changes when it is worth looking for a ring again */
    _Alignas(64) _Atomic uint32_t asleep; /* futex: AWAKE, ASLEEP or CALLED */
    _Alignas(64) struct writer writers[SLOTS];
};

struct rings {
    uint8_t *map;
    size_t size;
    size_t there; /* bytes of it that the file has: less when a copy was cut short */
    uint32_t slots;
    int fd; /* for kernels before 5.14; -1 when opened read-only */
    dev_t dev;
    ino_t ino; /* what fd must still be */
    bool live;
    bool barrier; /* membarrier works */
    struct file_head *head;
    uint64_t epoch;
    struct gate *gate;
    uint64_t tends; /* calls of rings_tend() */
    uint32_t n_bound;
    struct table *bound[TABLES_MAX + 1];
};

/* The one pointer that ring_append() starts from.  Written once, by the first rings_create() under
 * control; never unmapped. */
static struct gate *_Atomic the_gate;
static _Atomic uint64_t last_epoch; /* counts rings_create(), forked children's too */

/* Each thread's own way to its rings.  initial-exec: reached without a call into the loader, which
 * would not be safe in a signal handler. */
static __thread struct {
    uint64_t epoch; /* the pointers below belong to it */
    struct writer *normal;
    struct writer *nested; /* for appends in a signal handler that interrupted an append */
    uint32_t depth;
    uint32_t refused_at; /* gate->tended when no ring was to be had; 0: never */
} mine __attribute__((tls_model("initial-exec")));

static struct slot_head *slot_head(const struct rings *r, uint32_t slot)
{
    return (struct slot_head *)(r->map + SLOT_HEADS_AT) + slot;
}

static uint8_t *slot_data(const struct rings *r, uint32_t slot)
{
    return r->map + DATA_AT + (size_t)slot * RING_BYTES;
}

static void count_loss(struct table *t, enum table_loss why)
{
    _Atomic uint64_t *lost = __atomic_load_n(&t->lost, __ATOMIC_ACQUIRE);
    (void)atomic_fetch_add_explicit(&lost[why], 1, memory_order_relaxed);
}

/* ---- a thread gets a ring ---- */

/* Give a stretch of a file its pages by its descriptor. */
static int reserve_by_fd(int fd, uint64_t at, uint64_t size)
{
    static const uint8_t zeros[16384];
    if (syscall(SYS_fallocate, fd, /* mode: keep size */ 1, at, size) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return -errno;
    /* Some file systems have no such call; writing zeros does the same. */
    for (uint64_t done = 0; done < size;) {
        size_t n = size - done < sizeof(zeros) ? (size_t)(size - done) : sizeof(zeros);
        ssize_t wrote = pwrite(fd, zeros, n, (off_t)(at + done));
        if (wrote == -1 && errno != EINTR)
            return -errno;
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return 0;
}

/* Give a stretch of the mapping its pages now: afterwards a store to it cannot fail.  A full device
 * is an error here and would be a SIGBUS there. */
static int reserve(struct rings *r, uint64_t at, uint64_t size)
{
    struct stat st;
    int saved = errno;
    int rc = madvise(r->map + at, size, MADV_POPULATE_WRITE) == 0 ? 0 : -errno;
    if (rc == -EINVAL || rc == -ENOSYS) {
        /* Linux before 5.14: by the descriptor, if the host has not closed it and got its number
         * for a file of its own. */
        rc = -EBADF;
        if (fstat(r->fd, &st) == 0 && st.st_dev == r->dev && st.st_ino == r->ino)
            rc = reserve_by_fd(r->fd, at, size);
    }
    errno = saved;
    return rc;
}

/* Reserve a slot's pages.  `from` is the state it must be in; it ends as `to` or as a hole. */
static bool reserve_slot(struct rings *r, uint32_t slot, uint32_t to)
{
    struct slot_head *h = slot_head(r, slot);
    uint32_t from = SLOT_HOLE;
    if (!atomic_compare_exchange_strong_explicit(&h->state, &from, SLOT_RESERVING,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    int rc = reserve(r, DATA_AT + (uint64_t)slot * RING_BYTES, RING_BYTES);
    atomic_store_explicit(&h->state, rc ? SLOT_HOLE : to, memory_order_release);
    return rc == 0;
}

/* Find a slot for the calling thread; -1: none. */
static int64_t take_slot(struct rings *r)
{
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        uint32_t state = SLOT_SPARE;
        if (atomic_compare_exchange_strong_explicit(&slot_head(r, slot)->state, &state, SLOT_TAKEN,
                                                    memory_order_acq_rel, memory_order_relaxed))
            return slot;
    }
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) != SLOT_HOLE)
            continue;
        if (reserve_slot(r, slot, SLOT_TAKEN))
            return slot;
        /* Another thread was quicker, or the device is full: only the first is worth going on. */
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_HOLE)
            return -1;
    }
    return -1;
}

/* A ring of its own for the calling thread, or NULL. */
static struct writer *claim(struct rings *r)
{
    uint32_t tended = atomic_load_explicit(&r->gate->tended, memory_order_relaxed);
    if (mine.refused_at == tended)
        return NULL;
    int64_t slot = take_slot(r);
    if (slot < 0) {
        mine.refused_at = tended;
        return NULL;
    }
    struct slot_head *h = slot_head(r, (uint32_t)slot);
    struct writer *w = &r->gate->writers[slot];
    w->slot = (uint32_t)slot;
    w->limit = 0; /* the first append looks at the tail */
    w->woke_at = 0;
    w->head = h;
    w->data = slot_data(r, (uint32_t)slot);
    atomic_store_explicit(&w->inside, 0, memory_order_relaxed);
    atomic_store_explicit(&h->tid, (int32_t)syscall(SYS_gettid), memory_order_relaxed);
    atomic_store_explicit(&h->start_time, 0, memory_order_relaxed);
    /* Head and tail are 0: whoever freed the slot left them so. */
    uint64_t generation =
        1 + atomic_fetch_add_explicit(&r->head->generations, 1, memory_order_relaxed);
    atomic_store_explicit(&h->generation, generation, memory_order_release);
    return w;
}

/* ---- append ---- */

/* The limit was reached: look at the tail, wake the drain at half.  false: no room for `need`. */
static bool make_room(struct rings *r, struct writer *w, uint64_t head, uint64_t need)
{
    uint64_t tail = atomic_load_explicit(&w->head->tail, memory_order_acquire);
    uint64_t half = tail + RING_BYTES / 2, full = tail + RING_BYTES;
    if (head + need > half) {
        /* Once for each quarter that comes in, and only if somebody sleeps: a system call. */
        if (head - w->woke_at >= RING_BYTES / 4 || head + need > full) {
            w->woke_at = head;
            rings_wake(r);
        }
        w->limit = head + RING_BYTES / 8 < full ? head + RING_BYTES / 8 : full;
    } else {
        w->limit = half;
    }
    if (w->limit < head + need && head + need <= full)
        w->limit = head + need;
    return head + need <= full;
}

/* Write one row into a ring of the calling thread. */
static int append_to(struct rings *r, struct writer *w, struct table *t,
                     const struct record *record, const union probing_cell *cells, const void *tail,
                     uint32_t tail_n)
{
    uint64_t head = atomic_load_explicit(&w->head->head, memory_order_relaxed);
    uint32_t at = (uint32_t)head & (RING_BYTES - 1);
    uint32_t left = RING_BYTES - at;
    uint32_t skip = record->size > left ? left : 0; /* a row is never split */
    if (__builtin_expect(head + skip + record->size > w->limit, 0) &&
        !make_room(r, w, head, skip + record->size)) {
        count_loss(t, TABLE_LOST_RING_FULL);
        return -ENOSPC;
    }
    if (__builtin_expect(skip != 0, 0)) {
        struct record filler = {.size = skip};
        memcpy(w->data + at, &filler, 8); /* all of a filler that has to be there */
        head += skip;
        at = 0;
    }
    uint8_t *out = w->data + at;
    memcpy(out, record, sizeof(*record));
    uint64_t *to = (uint64_t *)(void *)(out + RECORD_HEAD);
    for (uint32_t i = 0; i < record->n_cells; i++)
        to[i] = cells[i].u;
    if (tail_n) {
        uint8_t *end = out + record->size;
        memset(end - 8, 0, 8); /* the padding; the tail comes over it */
        memcpy(to + record->n_cells, tail, tail_n);
    }
    /* Release: whoever sees the new head, now or after we are dead, sees the row. */
    atomic_store_explicit(&w->head->head, head + record->size, memory_order_release);
    return 0;
}

/* The ring for this append: the thread's own, or its second when it interrupted itself. */
static struct writer *find_writer(struct rings *r, struct table *t)
{
    if (mine.depth > 2) {
        count_loss(t, TABLE_LOST_NESTED);
        return NULL;
    }
    struct writer **w = mine.depth == 1 ? &mine.normal : &mine.nested;
    if (!*w)
        *w = claim(r);
    if (!*w)
        count_loss(t, TABLE_LOST_NO_RING);
    return *w;
}

static int append_inside(struct rings *r, struct table *t, uint64_t ts,
                         const union probing_cell *cells, uint32_t n, const void *tail,
                         uint32_t tail_n)
{
    struct writer *w = mine.depth == 1 ? mine.normal : NULL;
    if (__builtin_expect(w == NULL, 0)) {
        w = find_writer(r, t);
        if (!w)
            return -ENOSPC;
    }
    if (n > t->n_cells)
        n = t->n_cells;
    if (!t->has_tail || !tail)
        tail_n = 0;
    uint64_t whole = RECORD_HEAD + (uint64_t)n * 8 + tail_n;
    if (__builtin_expect(whole > LONGEST_ROW - 8, 0)) {
        count_loss(t, TABLE_LOST_TOO_LONG);
        return -ENOSPC;
    }
    uint32_t size = (uint32_t)(whole + 7) & ~UINT32_C(7);
    struct record record = {.size = size,
                            .table_id = (uint16_t)t->id,
                            .n_cells = (uint8_t)n,
                            .padding = (uint8_t)(size - whole),
                            .ts = ts};
    return append_to(r, w, t, &record, cells, tail, tail_n);
}

/* First append of a thread, of a new epoch, or nested: the slower way in. */
static int append_slowly(struct gate *g, struct table *t, uint64_t ts,
                         const union probing_cell *cells, uint32_t n, const void *tail,
                         uint32_t tail_n)
{
    int rc = -ESHUTDOWN;
    if (!atomic_load_explicit(&g->live, memory_order_relaxed))
        return rc;
    /* No mark of our own yet, so everybody shares this one.  Sequentially consistent: rings_free()
     * either sees it, or we see that there is nothing any more. */
    (void)atomic_fetch_add_explicit(&g->entering, 1, memory_order_seq_cst);
    struct rings *r = atomic_load_explicit(&g->live, memory_order_seq_cst);
    if (r) {
        if (mine.epoch != r->epoch) {
            mine.normal = mine.nested = NULL;
            mine.refused_at = 0;
            mine.depth = 0;
            mine.epoch = r->epoch;
        }
        mine.depth++;
        atomic_signal_fence(memory_order_seq_cst);
        rc = append_inside(r, t, ts, cells, n, tail, tail_n);
        atomic_signal_fence(memory_order_seq_cst);
        mine.depth--;
    }
    (void)atomic_fetch_sub_explicit(&g->entering, 1, memory_order_seq_cst);
    return rc;
}

int ring_append(struct table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                const void *tail, uint32_t tail_n)
{
    struct gate *g = atomic_load_explicit(&the_gate, memory_order_acquire);
    if (!g)
        return -ESHUTDOWN;
    if (!atomic_load_explicit(&t->wanted, memory_order_relaxed))
        return 0;
    struct writer *w = mine.normal;
    /* The epoch is read through the gate, never through a pointer that may be stale. */
    if (!w || mine.depth != 0 ||
        mine.epoch != atomic_load_explicit(&g->epoch, memory_order_acquire))
        return append_slowly(g, t, ts, cells, n, tail, tail_n);

    /* First the mark, then the pointer: see rings_free().  The compiler must not swap them; the
     * processor's own reordering is ruled out by membarrier on the other side. */
    mine.depth = 1; /* before the mark: a handler in between must not take the mark away */
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&w->inside, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    struct rings *r = atomic_load_explicit(&g->live, memory_order_acquire);
    int rc = -ESHUTDOWN;
    if (r && r->epoch == mine.epoch)
        rc = append_inside(r, t, ts, cells, n, tail, tail_n);
    atomic_signal_fence(memory_order_seq_cst);
    atomic_store_explicit(&w->inside, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    mine.depth = 0;
    return rc;
}

/* ---- life ---- */

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* The private pages, made once in a process's life. */
static int make_gate(struct gate **ret)
{
    struct gate *g = atomic_load_explicit(&the_gate, memory_order_acquire);
    if (!g) {
        g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (g == MAP_FAILED)
            return err_set(-errno, "no memory for the rings' marks: %s", strerror(errno));
        /* Where the kernel is too old for this, ring_disable_in_child() does it. */
        (void)madvise(g, sizeof(*g), MADV_WIPEONFORK);
        struct gate *none = NULL;
        if (!atomic_compare_exchange_strong_explicit(&the_gate, &none, g, memory_order_acq_rel,
                                                     memory_order_acquire)) {
            (void)munmap(g, sizeof(*g));
            g = none;
        }
    }
    if (atomic_load_explicit(&g->live, memory_order_acquire))
        return err_set(-EBUSY, "this process has its rings already");
    *ret = g;
    return 0;
}

/* As many slots as the limits of this process allow. */
static int map_new(struct rings *r, const char *path)
{
    struct rlimit limit;
    struct stat st;
    r->slots = SLOTS;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t room = limit.rlim_cur > DATA_AT ? (limit.rlim_cur - DATA_AT) / RING_BYTES : 0;
        r->slots = room < SLOTS ? (uint32_t)room : SLOTS;
    }
    for (; r->slots >= SLOTS_FEWEST; r->slots /= 2) {
        r->size = DATA_AT + (size_t)r->slots * RING_BYTES;
        if (ftruncate(r->fd, (off_t)r->size) == -1)
            return err_set(-errno, "%s cannot be made %zu bytes long: %s", path, r->size,
                           strerror(errno));
        void *map =
            mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, r->fd, 0);
        if (map != MAP_FAILED) {
            r->map = map;
            break;
        }
    }
    if (!r->map)
        return err_set(-ENOMEM, "%s: the limits on file size or address space leave no room", path);
    if (fstat(r->fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    r->there = r->size;
    r->dev = st.st_dev;
    r->ino = st.st_ino;
    int rc = reserve(r, 0, DATA_AT);
    return rc ? err_set(rc, "%s: no room on its device for the first %d bytes", path, DATA_AT) : 0;
}

static void fill_head(struct rings *r)
{
    uint64_t start_time = 0;
    (void)proc_start_time(getpid(), &start_time);
    r->head = (struct file_head *)r->map;
    *r->head = (struct file_head){.version = VERSION,
                                  .header_bytes = DATA_AT,
                                  .pid = getpid(),
                                  .slots = r->slots,
                                  .start_time = start_time,
                                  .utc_offset = clock_utc_offset(),
                                  .anchor_ns = clock_monotonic()};
    /* The magic last: a file without it was never used. */
    __atomic_store_n(&r->head->magic, MAGIC, __ATOMIC_RELEASE);
}

static void drop(struct rings *r)
{
    if (r->map)
        (void)munmap(r->map, r->size);
    if (r->fd != -1)
        (void)close(r->fd);
    free(r);
}

static bool has_spare(const struct rings *r)
{
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_SPARE)
            return true;
    }
    return false;
}

int rings_create(const char *path, struct rings **ret)
{
    struct gate *g;
    int rc = make_gate(&g);
    if (rc)
        return rc;
    struct rings *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(-ENOMEM, "no memory for the rings");
    r->gate = g;
    /* A new file, never the old one cut short: somebody may have that mapped. */
    (void)unlink(path);
    r->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (r->fd == -1)
        rc = err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    else
        rc = map_new(r, path);
    if (rc) {
        drop(r);
        (void)unlink(path);
        return rc;
    }
    fill_head(r);
    r->live = true;
    r->barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    r->epoch = 1 + atomic_fetch_add_explicit(&last_epoch, 1, memory_order_relaxed);
    atomic_store_explicit(&g->tended, 1, memory_order_relaxed);
    atomic_store_explicit(&g->asleep, AWAKE, memory_order_relaxed);
    rings_tend(r);
    if (!has_spare(r)) {
        drop(r);
        (void)unlink(path);
        return err_set(-ENOSPC, "%s: no room on its device for one ring of 1 MiB", path);
    }
    atomic_store_explicit(&g->epoch, r->epoch, memory_order_release);
    atomic_store_explicit(&g->live, r, memory_order_seq_cst);
    *ret = r;
    return 0;
}

/* Map a file that may be cut short at its whole length: what is missing reads as zeros, which are
 * no rows. */
static int map_old(struct rings *r, const char *path)
{
    struct stat st;
    r->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (r->fd == -1 || fstat(r->fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    if (st.st_size < DATA_AT || !S_ISREG(st.st_mode))
        return err_set(-EINVAL, "%s is too short to be a rings file", path);
    r->slots = SLOTS;
    r->size = DATA_AT + (size_t)SLOTS * RING_BYTES;
    r->there = (size_t)st.st_size < r->size ? (size_t)st.st_size : r->size;
    void *map = mmap(NULL, r->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map != MAP_FAILED) {
        r->map = map;
        map = mmap(map, r->there, PROT_READ, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, r->fd, 0);
    }
    if (map == MAP_FAILED)
        return err_set(-errno, "%s cannot be mapped: %s", path, strerror(errno));
    r->head = map;
    if (r->head->magic != MAGIC || r->head->version != VERSION || r->head->header_bytes != DATA_AT)
        return err_set(-EINVAL, "%s is not a rings file of this version", path);
    return 0;
}

int rings_open(const char *path, struct rings **ret)
{
    struct rings *r = calloc(1, sizeof(*r));
    if (!r)
        return err_set(-ENOMEM, "no memory for the rings");
    int rc = map_old(r, path);
    if (rc) {
        drop(r);
        return rc;
    }
    (void)close(r->fd);
    r->fd = -1;
    *ret = r;
    return 0;
}

static bool anybody_inside(const struct rings *r)
{
    struct gate *g = r->gate;
    if (atomic_load_explicit(&g->entering, memory_order_seq_cst))
        return true;
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&g->writers[slot].inside, memory_order_acquire))
            return true;
    }
    return false;
}

void rings_free(struct rings *r)
{
    if (!r)
        return;
    if (!r->live) {
        drop(r);
        return;
    }
    atomic_store_explicit(&r->gate->live, NULL, memory_order_seq_cst);
    /* Now every writer either sees that, or its mark can be seen here. */
    bool barrier = r->barrier && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    uint64_t until = clock_monotonic() + LEAVE_LIMIT;
    bool inside = anybody_inside(r);
    while (inside && clock_monotonic() < until) {
        (void)poll(NULL, 0, /* ms: writers do not signal; they leave within a microsecond */ 1);
        inside = anybody_inside(r);
    }
    for (uint32_t i = 0; i < r->n_bound; i++)
        table_own_counters(r->bound[i]);
    (void)close(r->fd);
    r->fd = -1;
    if (barrier && !inside)
        drop(r);
    /* Else the mapping stays: see ring.h. */
}

int rings_bind_table(struct rings *r, struct table *t)
{
    if (t->id == 0 || t->id > TABLES_MAX)
        return err_set(-EINVAL, "table %s.%s has the id %u", t->schema, t->name, t->id);
    for (uint32_t i = 0; i < r->n_bound; i++) {
        if (r->bound[i] == t)
            return 0;
    }
    if (r->n_bound > TABLES_MAX)
        return err_set(-ENOSPC, "no room for the counters of table %s.%s", t->schema, t->name);
    _Atomic uint64_t *counters = rings_counters(r, t->id);
    for (uint32_t i = 0; i < COUNTERS_PER_TABLE; i++) {
        _Atomic uint64_t *old = i ? &t->lost[i - 1] : t->appended;
        atomic_store_explicit(&counters[i], atomic_load_explicit(old, memory_order_relaxed),
                              memory_order_relaxed);
    }
    __atomic_store_n(&t->appended, &counters[0], __ATOMIC_RELEASE);
    __atomic_store_n(&t->lost, &counters[1], __ATOMIC_RELEASE);
    r->bound[r->n_bound++] = t;
    return 0;
}

void ring_disable_in_child(void)
{
    struct gate *g = atomic_load_explicit(&the_gate, memory_order_acquire);
    if (g)
        atomic_store_explicit(&g->live, NULL, memory_order_release);
}

/* ---- the drain's side ---- */

static int64_t futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void rings_wake(struct rings *r)
{
    _Atomic uint32_t *word = &r->gate->asleep;
    if (atomic_load_explicit(word, memory_order_relaxed) == CALLED)
        return;
    int saved = errno;
    if (atomic_exchange_explicit(word, CALLED, memory_order_acq_rel) == ASLEEP)
        (void)futex(word, FUTEX_WAKE, 1, /* timeout= */ NULL);
    errno = saved;
}

void rings_wait(struct rings *r, uint64_t timeout_ns)
{
    _Atomic uint32_t *word = &r->gate->asleep;
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (int32_t)(timeout_ns % NS_PER_S)};
    uint32_t state = AWAKE;
    if (atomic_compare_exchange_strong_explicit(word, &state, ASLEEP, memory_order_seq_cst,
                                                memory_order_relaxed) &&
        rings_fill(r) < 0.5)
        (void)futex(word, FUTEX_WAIT, ASLEEP, &timeout);
    atomic_store_explicit(word, AWAKE, memory_order_release);
}

/* Is the thread that took a slot still there?  `fully`: also ask whether its number went to
 * another one meanwhile. */
static bool owner_lives(struct slot_head *h, bool fully)
{
    int32_t tid = atomic_load_explicit(&h->tid, memory_order_relaxed);
    uint64_t known = atomic_load_explicit(&h->start_time, memory_order_relaxed);
    if (tid <= 0 || (syscall(SYS_tgkill, getpid(), tid, 0) == -1 && errno == ESRCH))
        return tid <= 0; /* not yet written: just being taken */
    if (known && !fully)
        return true;
    /* The tasks of a process are in /proc under their own numbers too. */
    uint64_t start_time;
    if (proc_start_time(tid, &start_time) != 0)
        return true;
    if (known)
        return known == start_time;
    atomic_store_explicit(&h->start_time, start_time, memory_order_relaxed);
    return true;
}

static void free_slot(struct rings *r, uint32_t slot, bool keep)
{
    struct slot_head *h = slot_head(r, slot);
    atomic_store_explicit(&h->generation, 0, memory_order_release);
    atomic_store_explicit(&h->tid, 0, memory_order_relaxed);
    atomic_store_explicit(&h->start_time, 0, memory_order_relaxed);
    atomic_store_explicit(&h->head, 0, memory_order_relaxed);
    atomic_store_explicit(&h->tail, 0, memory_order_relaxed);
    if (!keep && madvise(slot_data(r, slot), RING_BYTES, MADV_REMOVE) == -1)
        keep = true; /* no holes on this file system: then it stays ready */
    atomic_store_explicit(&h->state, keep ? SLOT_SPARE : SLOT_HOLE, memory_order_release);
}

static bool is_drained(const struct slot_head *h)
{
    return atomic_load_explicit(&h->head, memory_order_acquire) ==
           atomic_load_explicit(&h->tail, memory_order_relaxed);
}

void rings_tend(struct rings *r)
{
    uint32_t spares = 0;
    bool fully = r->tends++ % 16 == 0;
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_SPARE)
            spares++;
    }
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        struct slot_head *h = slot_head(r, slot);
        if (atomic_load_explicit(&h->state, memory_order_acquire) != SLOT_TAKEN ||
            atomic_load_explicit(&h->generation, memory_order_acquire) == 0 ||
            owner_lives(h, fully) || !is_drained(h))
            continue;
        free_slot(r, slot, /* keep= */ spares < SPARES);
        spares += spares < SPARES;
    }
    for (uint32_t slot = 0; slot < r->slots && spares < SPARES; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_HOLE) {
            if (!reserve_slot(r, slot, SLOT_SPARE))
                break; /* the device is full */
            spares++;
        }
    }
    /* Threads that were refused may try again.  Never 0: that means "never refused". */
    uint32_t tended = atomic_load_explicit(&r->gate->tended, memory_order_relaxed) + 1;
    atomic_store_explicit(&r->gate->tended, tended ? tended : 1, memory_order_relaxed);
}

double rings_fill(struct rings *r)
{
    uint64_t most = 0;
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        struct slot_head *h = slot_head(r, slot);
        uint64_t used = atomic_load_explicit(&h->head, memory_order_relaxed) -
                        atomic_load_explicit(&h->tail, memory_order_relaxed);
        most = used > most && used <= RING_BYTES ? used : most;
    }
    return (double)most / RING_BYTES;
}

/* ---- the reader's side ---- */

uint32_t rings_count(struct rings *r)
{
    return r->slots;
}

uint64_t ring_generation(struct rings *r, uint32_t slot)
{
    return atomic_load_explicit(&slot_head(r, slot)->generation, memory_order_acquire);
}

uint64_t ring_tail(struct rings *r, uint32_t slot)
{
    return atomic_load_explicit(&slot_head(r, slot)->tail, memory_order_relaxed);
}

uint64_t ring_head(struct rings *r, uint32_t slot)
{
    return atomic_load_explicit(&slot_head(r, slot)->head, memory_order_acquire);
}

/* Bytes of a slot that the file has. */
static uint32_t slot_there(const struct rings *r, uint32_t slot)
{
    uint64_t begin = DATA_AT + (uint64_t)slot * RING_BYTES;
    uint64_t n = r->there > begin ? r->there - begin : 0;
    return n < RING_BYTES ? (uint32_t)n : RING_BYTES;
}

int ring_read(struct rings *r, uint32_t slot, uint64_t position, struct ring_reader *ret)
{
    uint64_t head = ring_head(r, slot);
    if (head % 8 || position % 8 || position > head || head - position > RING_BYTES)
        return err_set(-EINVAL, "ring %u: positions %llu to %llu cannot be", slot,
                       (unsigned long long)position, (unsigned long long)head);
    *ret = (struct ring_reader){
        .data = slot_data(r, slot),
        .position = position,
        .head = head,
        .there = slot_there(r, slot),
        .tid = atomic_load_explicit(&slot_head(r, slot)->tid, memory_order_relaxed)};
    return 0;
}

/* One record, filler or row.  Nothing in it is trusted: the file may be damaged. */
static bool look_at_record(const struct ring_reader *reader, struct record *ret)
{
    uint32_t at = (uint32_t)reader->position & (RING_BYTES - 1);
    uint64_t left = reader->head - reader->position;
    memcpy(ret, reader->data + at, 8);
    if (ret->size < 8 || ret->size % 8 || ret->size > left || at + ret->size > reader->there)
        return false;
    if (ret->table_id == 0)
        return true;
    if (ret->size < RECORD_HEAD + 8 * (uint32_t)ret->n_cells + ret->padding || ret->padding > 7)
        return false;
    memcpy(&ret->ts, reader->data + at + 8, 8);
    return true;
}

int ring_next(struct ring_reader *reader, struct ring_row *ret)
{
    struct record record = {0};
    while (reader->position < reader->head) {
        if (!look_at_record(reader, &record))
            return -EBADMSG;
        const uint8_t *bytes = reader->data + ((uint32_t)reader->position & (RING_BYTES - 1));
        reader->position += record.size;
        if (record.table_id == 0)
            continue;
        ret->table_id = record.table_id;
        ret->tid = reader->tid;
        ret->ts = record.ts;
        ret->n_cells = record.n_cells;
        ret->cells = (const union probing_cell *)(const void *)(bytes + RECORD_HEAD);
        ret->tail = bytes + RECORD_HEAD + 8 * (uint32_t)record.n_cells;
        ret->tail_n = record.size - RECORD_HEAD - 8 * (uint32_t)record.n_cells - record.padding;
        return 1;
    }
    return 0;
}

uint64_t ring_row(struct rings *r, uint32_t slot, uint64_t position, struct ring_row *ret)
{
    struct ring_reader reader;
    if (ring_read(r, slot, position, &reader) != 0 || ring_next(&reader, ret) != 1)
        return 0;
    return reader.position;
}

void ring_release(struct rings *r, uint32_t slot, uint64_t position)
{
    atomic_store_explicit(&slot_head(r, slot)->tail, position, memory_order_release);
}

_Atomic uint64_t *rings_counters(struct rings *r, uint32_t table_id)
{
    return (_Atomic uint64_t *)(void *)(r->map + COUNTERS_AT) +
           (size_t)table_id * COUNTERS_PER_TABLE;
}

int64_t rings_utc_offset(struct rings *r)
{
    return r->head->utc_offset;
}

uint64_t rings_identity(struct rings *r)
{
    return r->head->anchor_ns ^ r->head->start_time << 20 ^ (uint64_t)(uint32_t)r->head->pid << 40;
}
