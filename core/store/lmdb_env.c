/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/lmdb_env.c - LMDB's environment: opened, opened again, and emptied.
 *
 * Whoever makes the store; later the drain, under map_lock.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/guest/headroom.h"
#include "core/guest/mmap_guard.h"
#include "core/store/internal.h"
#include "sdk/lib/proc/maps.h"

#define MAP_SLACK \
    (UINT64_C(64) << 20) /* bytes: room for what a transaction copies before it frees */
#define ROOM_PART 16 /* of the address space, where that is limited: the oldest rows go sooner */
#define MAP_LEAST (UINT64_C(32) << 20)
#define READERS_MAX 510

/* ---- files that may not grow ---- */

void quiet_begin(struct quiet *q)
{
    sigset_t pending, one;
    (void)sigemptyset(&one);
    (void)sigaddset(&one, SIGXFSZ);
    (void)pthread_sigmask(SIG_BLOCK, &one, &q->before);
    q->pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
}

void quiet_end(struct quiet *q)
{
    static const struct timespec at_once = {0};
    sigset_t pending, one;
    int saved = errno;
    if (!q->pending && sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1) {
        (void)sigemptyset(&one);
        (void)sigaddset(&one, SIGXFSZ);
        (void)sigtimedwait(&one, /* info= */ NULL, &at_once);
    }
    (void)pthread_sigmask(SIG_SETMASK, &q->before, NULL);
    errno = saved;
}

/* ---- open ---- */

/* Find LMDB's mapping of the file with this number and name, as LMDB does not tell it. */
static void *find_map(ino_t inode, const char *name, size_t *ret_bytes)
{
    char room[PROC_MAPS_ROOM];
    struct proc_lines l;
    struct proc_mapping m;
    void *found = NULL;
    (void)proc_maps_open(&l, 0, room, sizeof(room));
    while (!found && proc_maps_next(&l, &m)) {
        if (m.inode != inode || m.offset != 0 || !strstr(m.path, name))
            continue;
        found = (void *)(uintptr_t)m.start;
        *ret_bytes = m.end - m.start;
    }
    proc_lines_close(&l);
    return found;
}

static void watch_env(struct store *s)
{
    /* A page that LMDB may take for one of its own: no branch, no leaf, no node on it.  (It may be
     * in the midst of one that is lost.)  In order: u64 number, u16, u16 flags, u16 end of the
     * pointers, u16 end of the room, see lmdb_salvage.c. */
    static const uint8_t no_page[MAPPED_HEAD] = {[12] = 16};
    char path[4096];
    struct stat st;
    size_t bytes;
    int fd, n = snprintf(path, sizeof(path), "%s/lock.mdb", s->directory);
    if (mdb_env_get_fd(s->env, &fd) == 0 && fstat(fd, &st) == 0) {
        s->data_dev = st.st_dev;
        s->data_ino = st.st_ino;
        void *at = find_map(st.st_ino, "/data.mdb", &bytes);
        s->map = at && mapped_watch(at, bytes, no_page) == 0 ? at : NULL;
    }
    if (n > 0 && (size_t)n < sizeof(path) && stat(path, &st) == 0) {
        void *at = find_map(st.st_ino, "/lock.mdb", &bytes);
        s->lock_map = at && mapped_watch(at, bytes, /* head= */ NULL) == 0 ? at : NULL;
    }
}

static void unwatch_env(struct store *s)
{
    mapped_forget(s->map);
    mapped_forget(s->lock_map);
    s->map = s->lock_map = NULL;
}

/* Note the state that env_is_ours() compares with. */
static void remember_env(struct store *s)
{
    MDB_envinfo info;
    struct stat st;
    int fd;
    if (mdb_env_get_fd(s->env, &fd) == 0 && fstat(fd, &st) == 0) {
        atomic_store_explicit(&s->file_at, (uint64_t)st.st_size, memory_order_release);
        mapped_there(s->map, (size_t)st.st_size);
    }
    if (mdb_env_info(s->env, &info) == 0)
        atomic_store_explicit(&s->txnid, info.me_last_txnid, memory_order_release);
}

static uint64_t map_bytes_for(const struct store *s, uint64_t max_bytes)
{
    uint64_t bytes = (max_bytes > UINT64_MAX / 4 ? UINT64_MAX / 4 : max_bytes) * 2 + MAP_SLACK;
    return (room_share(s->directory, bytes, MAP_LEAST, ROOM_PART) + 65535) & ~UINT64_C(65535);
}

static int open_env(struct store *s, uint64_t max_bytes)
{
    int rc = mdb_env_create(&s->env);
    if (rc)
        return lmdb_failed(rc, "LMDB cannot start");
    s->map_bytes = map_bytes_for(s, max_bytes);
    rc = mdb_env_set_mapsize(s->env, s->map_bytes);
    if (rc == 0)
        rc = mdb_env_set_maxdbs(s->env, 2);
    if (rc == 0)
        rc = mdb_env_set_maxreaders(s->env, READERS_MAX);
    /* Never WRITEMAP: a stray pointer of the host could write to the file, and a full disk would be
     * a SIGBUS.  NOSYNC: the page cache outlives us; the drain syncs now and then.  Not
     * NOMEMINIT: what the host had in its memory before must not come into the file. */
    if (rc == 0)
        rc = mdb_env_open(s->env, s->directory, MDB_NOTLS | MDB_NOSYNC, 0600);
    if (rc)
        return lmdb_failed(rc, s->directory);
    watch_env(s);
    (void)mdb_reader_check(s->env, NULL);
    return 0;
}

static int open_databases(struct store *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, 0, &txn);
    if (rc)
        return lmdb_failed(rc, s->directory);
    rc = mdb_dbi_open(txn, "meta", MDB_CREATE, &s->meta);
    if (rc == 0)
        rc = mdb_dbi_open(txn, "segments", MDB_CREATE, &s->segments);
    if (rc == 0)
        rc = commit_sum_load(s, txn);
    if (rc) {
        mdb_txn_abort(txn);
        return lmdb_failed(rc, s->directory);
    }
    rc = mdb_txn_commit(txn);
    return rc ? lmdb_failed(rc, s->directory) : 0;
}

int env_open(struct store *s, uint64_t max_bytes)
{
    int rc = open_env(s, max_bytes);
    if (rc == 0)
        rc = open_databases(s);
    if (rc == 0)
        remember_env(s);
    return rc;
}

void env_close(struct store *s)
{
    unwatch_env(s);
    if (s->env)
        mdb_env_close(s->env);
    s->env = NULL;
}

void env_grow(struct store *s, uint64_t max_bytes)
{
    uint64_t bytes = map_bytes_for(s, max_bytes);
    if (!s->env || bytes <= s->map_bytes)
        return;
    unwatch_env(s); /* the map moves */
    if (mdb_env_set_mapsize(s->env, bytes) == 0)
        s->map_bytes = bytes;
    watch_env(s);
}

/* ---- transactions ---- */

uint64_t env_lost_pages(const struct store *s)
{
    return mapped_lost(s->map) + mapped_lost(s->lock_map);
}

/* The host may have closed it, and got its number for a file of its own. */
static bool has_fd(struct store *s, struct stat *ret)
{
    int fd;
    return mdb_env_get_fd(s->env, &fd) == 0 && fstat(fd, ret) == 0 && ret->st_dev == s->data_dev &&
           ret->st_ino == s->data_ino;
}

bool env_is_ours(struct store *s)
{
    MDB_envinfo info;
    struct stat st;
    uint64_t known = atomic_load_explicit(&s->txnid, memory_order_acquire);
    if (!s->env)
        return false;
    /* First: the file grows meanwhile, and what is known with it. */
    uint64_t least = atomic_load_explicit(&s->file_at, memory_order_acquire);
    bool whole = has_fd(s, &st) && (uint64_t)st.st_size >= least;
    bool read = whole && mdb_env_info(s->env, &info) == 0 && env_lost_pages(s) == 0;
    /* A commit that is going on beside us is one more than what is known. */
    bool same = read && (info.me_last_txnid == known || info.me_last_txnid == known + 1 ||
                         atomic_load_explicit(&s->txnid, memory_order_acquire) != known);
    if (same)
        return true;
    if (read || (!whole && has_fd(s, &st)))
        atomic_store_explicit(&s->env_lost, true, memory_order_release);
    atomic_store_explicit(&s->env_broken, true, memory_order_release);
    return false;
}

int env_begin(struct store *s, uint32_t flags, MDB_txn **ret)
{
    MDB_txn *txn;
    mapped_inspect();
    if (!env_is_ours(s))
        return EIO;
    int rc = mdb_txn_begin(s->env, NULL, flags, &txn);
    if (rc)
        return rc;
    if (env_lost_pages(s)) { /* of lock.mdb, where LMDB's locks are */
        mdb_txn_abort(txn);
        return EIO;
    }
    if (!(flags & MDB_RDONLY))
        s->seal = s->sealed;
    *ret = txn;
    return 0;
}

int env_commit(struct store *s, MDB_txn *txn)
{
    if (env_lost_pages(s)) {
        mdb_txn_abort(txn);
        atomic_store_explicit(&s->env_broken, true, memory_order_release);
        return EIO;
    }
    int rc = commit_sum_write(s, txn);
    if (rc) {
        mdb_txn_abort(txn);
        return rc;
    }
    rc = mdb_txn_commit(txn);
    if (rc == 0) {
        s->sealed = s->seal;
        remember_env(s);
        atomic_store_explicit(&s->unsynced, true, memory_order_release);
    }
    return rc;
}

int env_end(struct store *s, MDB_txn *txn)
{
    mdb_txn_abort(txn);
    if (env_lost_pages(s) == 0)
        return 0;
    atomic_store_explicit(&s->env_broken, true, memory_order_release);
    return EIO;
}

/* Everything out of LMDB. */
int env_start_afresh(struct store *s)
{
    MDB_txn *txn;
    int rc = env_begin(s, 0, &txn);
    if (rc)
        return lmdb_failed(rc, s->directory);
    rc = mdb_drop(txn, s->meta, 0);
    if (rc == 0)
        rc = mdb_drop(txn, s->segments, 0);
    if (rc) {
        mdb_txn_abort(txn);
        return lmdb_failed(rc, s->directory);
    }
    s->seal = (struct commit_sum){.records = 0};
    s->has_commit_sum = true;
    rc = env_commit(s, txn);
    memset(s->state, 0, sizeof(s->state));
    return rc ? lmdb_failed(rc, s->directory) : 0;
}

/* Keep the data of an earlier life of this directory when it fits: the same format, and tables that
 * are new or the same.  Otherwise it makes room: two lives of one process are not told apart
 * later. */
int env_resume(struct store *s, const struct store_options *o)
{
    int rc = store_load(s);
    return rc == 0 || o->resume ? rc : env_start_afresh(s);
}

/* Whoever writes to it may still be at it: the next is another file under the name. */
static void remove_data(const struct store *s)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/data.mdb", s->directory);
    if (n > 0 && (size_t)n < sizeof(path))
        (void)unlink(path);
}

void store_reopen(struct store *s, uint64_t seen)
{
    uint64_t max_bytes = atomic_load_explicit(&s->max_bytes, memory_order_relaxed);
    struct stat st;
    int rc = 0;
    (void)pthread_rwlock_wrlock(&s->map_lock);
    if (s->opens != seen) { /* somebody was quicker */
        (void)pthread_rwlock_unlock(&s->map_lock);
        return;
    }
    s->opens++;
    uint64_t known = atomic_load_explicit(&s->txnid, memory_order_relaxed), found = known;
    if (s->env && !has_fd(s, &st)) { /* to close it would close the host's file; its memory stays */
        unwatch_env(s);
        s->env = NULL;
    }
    env_close(s);
    bool lost = atomic_exchange_explicit(&s->env_lost, false, memory_order_acq_rel);
    if (!lost) {
        rc = env_open(s, max_bytes);
        found = atomic_load_explicit(&s->txnid, memory_order_relaxed);
        lost = rc == 0 && found != known && found != known + 1; /* a commit may half have failed */
    }
    if (lost) {
        env_close(s);
        remove_data(s);
        rc = env_open(s, max_bytes);
        if (rc == 0)
            rc = store_begin_anew(s);
    }
    if (rc) { /* the next drain that fails tries again */
        env_close(s);
        atomic_store_explicit(&s->env_lost, lost, memory_order_release);
    }
    (void)pthread_rwlock_unlock(&s->map_lock);
}
