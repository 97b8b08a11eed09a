/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/env.c - LMDB's environment: opened, opened again, and emptied.
 *
 * Whoever makes the store; later the drain, under map_lock.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "core/base/err.h"
#include "core/store/inside.h"

#define MAP_SLACK \
    (UINT64_C(64) << 20) /* bytes: room for what a transaction copies before it frees */
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

uint64_t env_map_bytes(uint64_t max_bytes)
{
    uint64_t bytes = (max_bytes > UINT64_MAX / 4 ? UINT64_MAX / 4 : max_bytes) * 2 + MAP_SLACK;
    return (bytes + 65535) & ~UINT64_C(65535);
}

static int open_env(struct store *s, uint64_t max_bytes)
{
    int rc = mdb_env_create(&s->env);
    if (rc)
        return lmdb_failed(rc, "LMDB cannot start");
    s->map_bytes = env_map_bytes(max_bytes);
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
    return rc ? rc : open_databases(s);
}

void store_reopen(struct store *s)
{
    (void)pthread_rwlock_wrlock(&s->map_lock);
    if (s->env)
        mdb_env_close(s->env);
    s->env = NULL;
    int rc = env_open(s, atomic_load_explicit(&s->max_bytes, memory_order_relaxed));
    if (rc && s->env) { /* the next drain that fails tries again */
        mdb_env_close(s->env);
        s->env = NULL;
    }
    (void)pthread_rwlock_unlock(&s->map_lock);
}

/* Everything out of LMDB. */
int env_start_afresh(struct store *s)
{
    MDB_txn *txn;
    int rc = mdb_txn_begin(s->env, NULL, 0, &txn);
    if (rc)
        return lmdb_failed(rc, s->directory);
    rc = mdb_drop(txn, s->meta, 0);
    if (rc == 0)
        rc = mdb_drop(txn, s->segments, 0);
    if (rc) {
        mdb_txn_abort(txn);
        return lmdb_failed(rc, s->directory);
    }
    rc = mdb_txn_commit(txn);
    memset(s->state, 0, sizeof(s->state));
    return rc ? lmdb_failed(rc, s->directory) : 0;
}

/* What an earlier life of this directory left is kept when it fits: the same format, and tables
 * that are new or the same.  Otherwise it makes room: two lives of one process are not told apart
 * later. */
int env_adopt(struct store *s, const struct store_options *o)
{
    int rc = store_load(s);
    return rc == 0 || o->resume ? rc : env_start_afresh(s);
}
