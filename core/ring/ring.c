/* SPDX-License-Identifier: Apache-2.0
 *
 * core/ring/ring.c - the rings file of this process: made, tended and given back.
 *
 * Control makes and frees it; everything else is the drain's, but for ring_reserve_slot(), which an
 * append may need.  Appending is in append.c, reading in reader.c.
 */
#include "core/ring/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
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
#include "core/guest/headroom.h"
#include "core/guest/mmap_guard.h"
#include "core/ring/internal.h"
#include "sdk/lib/sparse_map.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18 /* Linux 4.14 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define MEMBARRIER_CMD_PRIVATE_EXPEDITED (1 << 3) /* Linux 4.14 */
#define MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED (1 << 4)

#define SLOTS_FEWEST 8 /* less is no use: better say so */
#define ROOM_PART 32   /* of the address space, where that is limited: one ring for each thread */
#define SPARES 2       /* rings ready for new threads; each costs 1 MiB */
#define LEAVE_LIMIT NS_PER_S

enum drain_state { AWAKE, ASLEEP, CALLED };

static _Atomic uint64_t last_epoch; /* counts rings_create(), forked children's too */

/* ---- pages ---- */

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
static int reserve_pages(struct rings *r, uint64_t at, uint64_t size)
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

bool ring_reserve_slot(struct rings *r, uint32_t slot, uint32_t to)
{
    struct slot_head *h = slot_head(r, slot);
    uint32_t from = SLOT_HOLE;
    if (!atomic_compare_exchange_strong_explicit(&h->state, &from, SLOT_RESERVING,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return false;
    int rc = reserve_pages(r, DATA_AT + (uint64_t)slot * RING_BYTES, RING_BYTES);
    atomic_store_explicit(&h->state, rc ? SLOT_HOLE : to, memory_order_release);
    return rc == 0;
}

/* ---- life ---- */

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

/* The private pages, made once in a process's life. */
static int make_gate(struct gate **ret)
{
    struct gate *g = atomic_load_explicit(&ring_gate, memory_order_acquire);
    if (!g) {
        g = mmap(NULL, sizeof(*g), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (g == MAP_FAILED)
            return err_set(-errno, "no memory for the rings' marks: %s", strerror(errno));
        /* On a kernel that is too old for this, ring_disable_in_child() does it. */
        (void)madvise(g, sizeof(*g), MADV_WIPEONFORK);
        struct gate *none = NULL;
        if (!atomic_compare_exchange_strong_explicit(&ring_gate, &none, g, memory_order_acq_rel,
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
    r->slots = (uint32_t)(room_share(path, (uint64_t)SLOTS * RING_BYTES, SLOTS_FEWEST * RING_BYTES,
                                     ROOM_PART) /
                          RING_BYTES);
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        uint64_t room = limit.rlim_cur > DATA_AT ? (limit.rlim_cur - DATA_AT) / RING_BYTES : 0;
        r->slots = room < r->slots ? (uint32_t)room : r->slots;
    }
    for (; r->slots >= SLOTS_FEWEST; r->slots /= 2) {
        r->size = DATA_AT + (size_t)r->slots * RING_BYTES;
        if (ftruncate(r->fd, (off_t)r->size) == -1)
            return err_set(-errno, "%s cannot be made %zu bytes long: %s", path, r->size,
                           strerror(errno));
        r->map = sparse_map_file(r->fd, r->size, PROT_READ | PROT_WRITE);
        if (r->map)
            break;
    }
    if (!r->map)
        return err_set(-ENOMEM,
                       "%s: the limits on file size or address space leave no room: prlimit --pid "
                       "%d --fsize=unlimited --as=unlimited",
                       path, (int)getpid());
    if (fstat(r->fd, &st) == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    r->there = r->size;
    r->dev = st.st_dev;
    r->ino = st.st_ino;
    (void)mapped_watch(r->map, r->size, /* head= */ NULL);
    int rc = reserve_pages(r, 0, DATA_AT);
    return rc ? err_set(rc, "%s: no room on its device for the first %d bytes", path, DATA_AT) : 0;
}

static void fill_head(struct rings *r)
{
    uint64_t start_time = 0;
    (void)proc_start_time(getpid(), &start_time);
    r->fixed = (struct file_head){.magic = RINGS_MAGIC,
                                  .version = RINGS_VERSION,
                                  .header_bytes = DATA_AT,
                                  .pid = getpid(),
                                  .slots = r->slots,
                                  .start_time = start_time,
                                  .utc_offset = clock_utc_offset(),
                                  .anchor_ns = clock_monotonic()};
    r->fixed.check = rings_head_check(&r->fixed);
    r->head = (struct file_head *)(void *)r->map;
    memcpy(r->map + HEAD_COPY_AT, &r->fixed, sizeof(r->fixed));
    /* The magic last: a file without it was never used. */
    memcpy(&r->head->version, &r->fixed.version,
           sizeof(r->fixed) - offsetof(struct file_head, version));
    __atomic_store_n(&r->head->magic, RINGS_MAGIC, __ATOMIC_RELEASE);
}

void rings_drop(struct rings *r)
{
    mapped_forget(r->map);
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

/* A file of zeros becomes rings, of an epoch of their own. */
static void prepare_rings(struct rings *r)
{
    struct gate *g = r->gate;
    fill_head(r);
    r->epoch = 1 + atomic_fetch_add_explicit(&last_epoch, 1, memory_order_relaxed);
    atomic_store_explicit(&g->tended, 1, memory_order_relaxed);
    atomic_store_explicit(&g->given, 0, memory_order_relaxed);
    atomic_store_explicit(&g->asleep, AWAKE, memory_order_relaxed);
    rings_maintain(r);
}

/* From now on rows are taken. */
static void hook_rings(struct rings *r)
{
    atomic_store_explicit(&r->gate->live, r, memory_order_release);
    atomic_store_explicit(&r->gate->epoch, r->epoch, memory_order_seq_cst);
}

int rings_create(const char *path, struct rings **ret)
{
    struct gate *g = NULL;
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
        rings_drop(r);
        (void)unlink(path);
        return rc;
    }
    r->live = true; /* for rings_maintain() */
    r->barrier = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0;
    prepare_rings(r);
    if (!has_spare(r)) {
        rings_drop(r);
        (void)unlink(path);
        return err_set(-ENOSPC, "%s: no room on its device for one ring of 1 MiB", path);
    }
    hook_rings(r);
    *ret = r;
    return 0;
}

static bool anybody_inside(const struct rings *r)
{
    struct gate *g = r->gate;
    if (atomic_load_explicit(&g->entering, memory_order_seq_cst))
        return true;
    for (uint32_t slot = 0; slot < r->slots; slot++) {
        if (atomic_load_explicit(&g->writers[r->epoch % EPOCHS][slot].inside, memory_order_acquire))
            return true;
    }
    return false;
}

/* No more rows are taken.  true: and nobody is in the middle of one. */
static bool unhook_rings(struct rings *r)
{
    atomic_store_explicit(&r->gate->live, NULL, memory_order_seq_cst);
    atomic_store_explicit(&r->gate->epoch, 0, memory_order_seq_cst);
    /* Now every writer either sees that, or its mark can be seen here. */
    bool barrier = r->barrier && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    uint64_t until = clock_monotonic() + LEAVE_LIMIT;
    bool inside = anybody_inside(r);
    while (inside && clock_monotonic() < until) {
        (void)poll(NULL, 0, /* ms: writers do not signal; they leave within a microsecond */ 1);
        inside = anybody_inside(r);
    }
    return barrier && !inside;
}

void rings_free(struct rings *r)
{
    if (!r)
        return;
    if (!r->live) {
        rings_drop(r);
        return;
    }
    bool alone = unhook_rings(r);
    for (uint32_t i = 0; i < r->n_bound; i++)
        table_own_counters(r->bound[i]);
    (void)close(r->fd);
    r->fd = -1;
    if (alone)
        rings_drop(r);
    else
        mapped_forget(r->map); /* the mapping stays: see ring.h */
}

bool rings_lost(struct rings *r)
{
    struct stat st;
    bool cut = fstat(r->fd, &st) == 0 && st.st_dev == r->dev && st.st_ino == r->ino &&
               (size_t)st.st_size < r->size;
    return cut || mapped_lost(r->map) ||
           memcmp(&r->head->version, &r->fixed.version,
                  offsetof(struct file_head, generations) - offsetof(struct file_head, version)) !=
               0;
}

/* The file with all its bytes again, empty; in memory alone where that cannot be. */
static void map_again(struct rings *r)
{
    struct stat st;
    mapped_forget(r->map);
    bool ours = fstat(r->fd, &st) == 0 && st.st_dev == r->dev && st.st_ino == r->ino;
    if (ours && ftruncate(r->fd, 0) == 0 && ftruncate(r->fd, (off_t)r->size) == 0 &&
        sparse_map_again(r->map, r->size, r->fd) == 0) {
        (void)mapped_watch(r->map, r->size, /* head= */ NULL);
        if (reserve_pages(r, 0, DATA_AT) == 0)
            return;
        mapped_forget(r->map);
    }
    (void)sparse_map_again(r->map, r->size, -1);
}

void rings_renew(struct rings *r)
{
    (void)unhook_rings(r); /* what somebody inside still writes is no row: it has no check */
    map_again(r);
    prepare_rings(r);
    hook_rings(r); /* the tables' counters lie where they did; what they said was lost, too */
}

int rings_bind_table(struct rings *r, struct table *t)
{
    if (t->id > TABLES_STORED_MAX)
        return err_set(-EINVAL, "table %s.%s has the id %u", t->schema, t->name, t->id);
    for (uint32_t i = 0; i < r->n_bound; i++) {
        if (r->bound[i] == t)
            return 0;
    }
    if (r->n_bound > TABLES_STORED_MAX)
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

/* ---- the drain's side ---- */

static int64_t futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, timeout, NULL, 0);
}

void ring_wake_drain(struct gate *g)
{
    _Atomic uint32_t *word = &g->asleep;
    if (atomic_load_explicit(word, memory_order_relaxed) == CALLED)
        return;
    int saved = errno;
    if (atomic_exchange_explicit(word, CALLED, memory_order_acq_rel) == ASLEEP)
        (void)futex(word, FUTEX_WAKE, 1, /* timeout= */ NULL);
    errno = saved;
}

void rings_wake(struct rings *r)
{
    ring_wake_drain(r->gate);
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
    int32_t tid = atomic_load_explicit(&h->owner.tid, memory_order_relaxed);
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

static void forget_owner(struct slot_owner *o)
{
    atomic_store_explicit(&o->generation, 0, memory_order_release);
    atomic_store_explicit(&o->check, 0, memory_order_relaxed);
    atomic_store_explicit(&o->tid, 0, memory_order_relaxed);
}

static void free_slot(struct rings *r, uint32_t slot, bool keep)
{
    struct slot_head *h = slot_head(r, slot);
    forget_owner(&h->owner_again);
    forget_owner(&h->owner);
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

void rings_maintain(struct rings *r)
{
    uint32_t spares = 0, given = rings_count(r);
    uint32_t end = given + SPARES < r->slots ? given + SPARES : r->slots; /* no spare is behind */
    bool fully = r->tends++ % 16 == 0;
    for (uint32_t slot = 0; slot < end; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_SPARE)
            spares++;
    }
    for (uint32_t slot = 0; slot < given; slot++) {
        struct slot_head *h = slot_head(r, slot);
        if (atomic_load_explicit(&h->state, memory_order_acquire) != SLOT_TAKEN ||
            atomic_load_explicit(&h->owner.generation, memory_order_acquire) == 0 ||
            owner_lives(h, fully) || !is_drained(h))
            continue;
        free_slot(r, slot, /* keep= */ spares < SPARES);
        spares += spares < SPARES;
    }
    for (uint32_t slot = 0; slot < end && spares < SPARES; slot++) {
        if (atomic_load_explicit(&slot_head(r, slot)->state, memory_order_relaxed) == SLOT_HOLE) {
            if (!ring_reserve_slot(r, slot, SLOT_SPARE))
                break; /* the device is full */
            spares++;
        }
    }
    /* Threads that were refused may try again.  Never 0: that means "never refused". */
    uint32_t tended = atomic_load_explicit(&r->gate->tended, memory_order_relaxed) + 1;
    atomic_store_explicit(&r->gate->tended, tended ? tended : 1, memory_order_relaxed);
}

void rings_note_drain(struct rings *r, uint64_t drains)
{
    atomic_store_explicit(&r->head->drains, drains, memory_order_release);
}

double rings_fill(struct rings *r)
{
    uint64_t most = 0;
    for (uint32_t slot = 0; slot < rings_count(r); slot++) {
        struct slot_head *h = slot_head(r, slot);
        uint64_t used = atomic_load_explicit(&h->head, memory_order_relaxed) -
                        atomic_load_explicit(&h->tail, memory_order_relaxed);
        most = used > most && used <= RING_BYTES ? used : most;
    }
    return (double)most / RING_BYTES;
}
