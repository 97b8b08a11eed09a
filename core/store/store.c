/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/store.c - the live store: its files, its tables, its numbers, its end.
 *
 * Any thread where store.h says so.  Draining is in drain.c, reading in scan.c, the dead in dead.c.
 */
#include "core/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/base/thread.h"
#include "core/store/inside.h"

#define MAP_SLACK \
    (UINT64_C(64) << 20) /* bytes: room for what a transaction copies before it frees */
#define BYTES_LEAST (UINT64_C(8) << 20)
#define READERS_MAX 510
#define LOCK_BYTES 65536 /* of LMDB's lock file: 64 a reader, and its head */
#define DRAIN_STACK ((size_t)512 << 10)

struct segment_key key_of(uint32_t table_id, uint64_t first_row)
{
    struct segment_key k;
    for (int i = 0; i < 4; i++)
        k.bytes[i] = (uint8_t)(table_id >> (24 - 8 * i));
    for (int i = 0; i < 8; i++)
        k.bytes[4 + i] = (uint8_t)(first_row >> (56 - 8 * i));
    return k;
}

bool key_read(const MDB_val *key, uint32_t *ret_table_id, uint64_t *ret_first_row)
{
    const uint8_t *p = key->mv_data;
    uint32_t id = 0;
    uint64_t row = 0;
    if (key->mv_size != sizeof(struct segment_key))
        return false;
    for (int i = 0; i < 4; i++)
        id = id << 8 | p[i];
    for (int i = 4; i < 12; i++)
        row = row << 8 | p[i];
    *ret_table_id = id;
    *ret_first_row = row;
    return id >= 1 && id <= TABLES_MAX;
}

struct meta_key meta_key_of(char kind, uint32_t id)
{
    return (struct meta_key){
        {(uint8_t)kind, (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id}};
}

MDB_val value_of(const void *p, size_t n)
{
    return (MDB_val){.mv_size = n, .mv_data = (void *)(uintptr_t)p};
}

uint64_t store_sum(struct meta_key key, const void *p, size_t n)
{
    return segment_checksum(p, n) ^ segment_checksum(&key, sizeof(key));
}

int store_put_record(struct store *s, MDB_txn *txn, char kind, uint32_t id, void *p, size_t n)
{
    struct meta_key k = meta_key_of(kind, id);
    uint64_t sum = store_sum(k, p, n - sizeof(sum));
    memcpy((char *)p + n - sizeof(sum), &sum, sizeof(sum));
    MDB_val key = value_of(&k, sizeof(k)), value = value_of(p, n);
    return mdb_put(txn, s->meta, &key, &value, 0);
}

bool store_read_record(const MDB_val *key, const MDB_val *value, void *ret, size_t n)
{
    struct meta_key k;
    uint64_t sum;
    if (key->mv_size != sizeof(k) || value->mv_size != n)
        return false;
    memcpy(&k, key->mv_data, sizeof(k));
    memcpy(&sum, (const char *)value->mv_data + n - sizeof(sum), sizeof(sum));
    if (sum != store_sum(k, value->mv_data, n - sizeof(sum)))
        return false;
    memcpy(ret, value->mv_data, n);
    return true;
}

int lmdb_failed(int code, const char *what)
{
    int rc = code > 0               ? -code
             : code == MDB_MAP_FULL ? -ENOSPC
             : code == MDB_NOTFOUND ? -ENOENT
                                    : -EIO;
    return rc == -ENOSPC ? err_set(rc, "%s: no room left on its device", what)
                         : err_set(rc, "%s: %s", what, mdb_strerror(code));
}

int store_new(const char *directory, struct tables *tables, bool live, struct store **ret)
{
    struct store *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory for the store");
    s->directory = strdup(directory);
    s->scratch = malloc(sizeof(int64_t) * SEGMENT_ROWS);
    if (!s->directory || !s->scratch) {
        free(s->directory);
        free(s->scratch);
        free(s);
        return err_set(-ENOMEM, "no memory for the store");
    }
    s->tables = tables;
    s->live = live;
    s->held = -1;
    (void)pthread_mutex_init(&s->drain_lock, NULL);
    (void)pthread_rwlock_init(&s->map_lock, NULL);
    buf_init(&s->out, SEGMENT_MAX);
    buf_init(&s->damage, 1 << 16);
    *ret = s;
    return 0;
}

void store_drop(struct store *s)
{
    rings_free(s->rings);
    if (s->env)
        mdb_env_close(s->env);
    interns_free(s->interns);
    if (s->held != -1)
        (void)close(s->held);
    for (uint32_t id = 0; id <= TABLES_MAX; id++)
        builder_free(s->builders[id]);
    for (struct memory_segment *m = s->memory, *next; m; m = next) {
        next = m->next;
        free(m->owned);
        free(m);
    }
    for (struct keep *k = s->keeps, *next; k; k = next) {
        next = k->next;
        free(k->name);
        free(k);
    }
    if (s->file)
        (void)munmap(s->file, s->file_bytes);
    free(s->positions);
    buf_done(&s->out);
    buf_done(&s->damage);
    (void)pthread_mutex_destroy(&s->drain_lock);
    (void)pthread_rwlock_destroy(&s->map_lock);
    free(s->scratch);
    free(s->directory);
    free(s);
}

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

/* ---- making one ---- */

static uint64_t map_bytes_for(uint64_t max_bytes)
{
    uint64_t bytes = (max_bytes > UINT64_MAX / 4 ? UINT64_MAX / 4 : max_bytes) * 2 + MAP_SLACK;
    return (bytes + 65535) & ~UINT64_C(65535);
}

static int open_env(struct store *s, uint64_t max_bytes)
{
    int rc = mdb_env_create(&s->env);
    if (rc)
        return lmdb_failed(rc, "LMDB cannot start");
    s->map_bytes = map_bytes_for(max_bytes);
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

void store_reopen(struct store *s)
{
    (void)pthread_rwlock_wrlock(&s->map_lock);
    if (s->env)
        mdb_env_close(s->env);
    s->env = NULL;
    int rc = open_env(s, atomic_load_explicit(&s->max_bytes, memory_order_relaxed));
    if (rc == 0)
        rc = open_databases(s);
    if (rc && s->env) { /* the next drain that fails tries again */
        mdb_env_close(s->env);
        s->env = NULL;
    }
    (void)pthread_rwlock_unlock(&s->map_lock);
}

/* Everything out of LMDB. */
static int start_afresh(struct store *s)
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
static int adopt(struct store *s, const struct store_options *o)
{
    int rc = store_load(s);
    return rc == 0 || o->resume ? rc : start_afresh(s);
}

/* Path of `name`; in the fast directory, with a link to it, when there is one. */
static int place_file(const struct store_options *o, const char *name, bool fast, char *ret,
                      size_t size)
{
    int n = snprintf(ret, size, "%s/%s", fast ? o->fast_directory : o->directory, name);
    if (n < 0 || (size_t)n >= size)
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", o->directory);
    return 0;
}

static int link_file(const struct store_options *o, const char *name, const char *target)
{
    char link[4096];
    int rc = place_file(o, name, /* fast= */ false, link, sizeof(link));
    if (rc)
        return rc;
    (void)unlink(link);
    if (symlink(target, link) == -1)
        return err_set(-errno, "%s cannot be linked: %s", link, strerror(errno));
    return 0;
}

static int make_files(struct store *s, const struct store_options *o, bool fast)
{
    char rings[4096], strings[4096];
    int rc = place_file(o, "rings", fast, rings, sizeof(rings));
    if (rc == 0)
        rc = place_file(o, "strings", fast, strings, sizeof(strings));
    if (rc == 0)
        rc = interns_create(strings, &s->interns);
    if (!o->resume && (rc == -EPROTO || rc == -EINVAL)) {
        /* Of another version, or damaged: then what has its ids says nothing any more. */
        (void)unlink(strings);
        rc = start_afresh(s);
        if (rc == 0)
            rc = interns_create(strings, &s->interns);
    }
    if (rc == 0)
        rc = rings_create(rings, &s->rings);
    if (rc == 0 && fast)
        rc = link_file(o, "strings", strings);
    if (rc == 0 && fast)
        rc = link_file(o, "rings", rings);
    if (rc) {
        rings_free(s->rings);
        interns_free(s->interns);
        s->rings = NULL;
        s->interns = NULL;
        (void)unlink(rings);
    }
    return rc;
}

/* ---- what must not fail when it is written to ---- */

/* Copy-on-write: a store to a mapped page wants new room each time it was written back, and is a
 * SIGBUS when there is none. */
static bool moves_what_is_written(const char *directory)
{
    static const uint32_t magics[] = {0x9123683e /* btrfs */, 0xca451a4e /* bcachefs */};
    struct statfs fs;
    if (statfs(directory, &fs) == -1)
        return false;
    return (uint32_t)fs.f_type == magics[0] || (uint32_t)fs.f_type == magics[1];
}

static int refuse_to_move(const char *directory)
{
    return err_set(
        -ENOTSUP,
        "%s is on a copy-on-write file system, where a full disk would end this process: "
        "make room for 64 MB in /dev/shm, or name another PROBING_DATA_DIR",
        directory);
}

/* LMDB's lock file with all its bytes, before LMDB maps it and writes to it.  What an earlier life
 * left is nobody's. */
static int make_lock(const struct store_options *o, bool fast)
{
    char path[4096], link[4096];
    int rc = place_file(o, "lock.mdb", fast, path, sizeof(path));
    if (rc == 0)
        rc = place_file(o, "lock.mdb", /* fast= */ false, link, sizeof(link));
    if (rc)
        return rc;
    (void)unlink(link);
    (void)unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    rc = -posix_fallocate(fd, 0, LOCK_BYTES);
    (void)close(fd);
    if (rc == 0 && fast)
        rc = link_file(o, "lock.mdb", path);
    if (rc)
        (void)unlink(path);
    return rc ? err_set(rc, "%s cannot be made: %s", path, strerror(-rc)) : 0;
}

static int make_lock_somewhere(const struct store_options *o)
{
    if (o->fast_directory && make_lock(o, /* fast= */ true) == 0)
        return 0;
    if (moves_what_is_written(o->directory))
        return refuse_to_move(o->directory);
    return make_lock(o, /* fast= */ false);
}

/* By this lock everybody knows that the directory is not a dead one's, whatever number we have
 * where they look.  One more process with the same directory cannot be. */
static int hold(struct store *s)
{
    char path[4096];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int n = snprintf(path, sizeof(path), "%s/held", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", s->directory);
    s->held = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->held == -1)
        return err_set(-errno, "%s cannot be made: %s", path, strerror(errno));
    if (fcntl(s->held, F_SETLK, &lock) == -1 && (errno == EAGAIN || errno == EACCES))
        return err_set(-EBUSY, "another process has the store in %s", s->directory);
    return 0; /* where a file system knows no locks it goes without */
}

/* In the fast directory if that can be.  The memory file system may be too small (64 MB in many
 * containers): then the disk.  An earlier life's names are gone on with where they are. */
static int make_files_somewhere(struct store *s, const struct store_options *o)
{
    char strings[4096];
    struct stat st;
    int rc = place_file(o, "strings", /* fast= */ false, strings, sizeof(strings));
    if (rc)
        return rc;
    bool here = lstat(strings, &st) == 0 && S_ISREG(st.st_mode);
    if (o->fast_directory && !here && make_files(s, o, /* fast= */ true) == 0)
        return 0;
    return moves_what_is_written(o->directory) ? refuse_to_move(o->directory)
                                               : make_files(s, o, /* fast= */ false);
}

/* Tables that were there before the store, or came back with it. */
static int bind_tables(struct store *s)
{
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    uint32_t n = tables_list(s->tables, list, TABLES_MAX);
    int rc = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (!list[i]->scan)
            rc = rings_bind_table(s->rings, list[i]);
    }
    free(list);
    return rc;
}

int store_create(const struct store_options *o, struct tables *tables, struct store **ret)
{
    struct store *s;
    int rc = store_new(o->directory, tables, /* live= */ true, &s);
    if (rc)
        return rc;
    uint64_t max_bytes = o->max_bytes > BYTES_LEAST ? o->max_bytes : BYTES_LEAST;
    atomic_store_explicit(&s->max_bytes, max_bytes, memory_order_relaxed);
    atomic_store_explicit(&s->keep_ns, o->keep_ns, memory_order_relaxed);
    s->utc_offset = clock_utc_offset();
    rc = hold(s);
    if (rc == 0)
        rc = make_lock_somewhere(o);
    if (rc == 0)
        rc = open_env(s, max_bytes);
    if (rc == 0)
        rc = open_databases(s);
    if (rc == 0)
        rc = adopt(s, o);
    if (rc == 0)
        rc = make_files_somewhere(s, o);
    if (rc == 0)
        rc = bind_tables(s);
    if (rc == 0)
        rc = thread_start(&s->thread, "probing/drain", DRAIN_STACK, drain_thread, s);
    if (rc) {
        store_drop(s);
        return rc;
    }
    s->has_thread = true;
    *ret = s;
    return 0;
}

void store_free(struct store *s)
{
    if (!s)
        return;
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return; /* the parent's, not ours */
    if (s->has_thread) {
        atomic_store_explicit(&s->stop, true, memory_order_release);
        rings_wake(s->rings);
        (void)pthread_join(s->thread, NULL);
    }
    if (s->live) {
        struct quiet quiet;
        quiet_begin(&quiet);
        (void)store_drain(s);
        if (s->env)
            (void)mdb_env_sync(s->env, /* force= */ 1);
        quiet_end(&quiet);
    }
    store_drop(s);
}

void store_disable_in_child(struct store *s)
{
    atomic_store_explicit(&s->disabled, true, memory_order_release);
    ring_disable_in_child();
}

/* ---- what to keep of a table ---- */

int store_keep_parse(const char *text, uint64_t *ret_ns, uint64_t *ret_bytes)
{
    char part[64];
    uint64_t ns = 0, bytes = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "|");
        if (n == 0 || n >= sizeof(part))
            return err_set(-EINVAL, "'%.60s' is no retention: 2h, 100MB, 2h|100MB or 0", text);
        (void)snprintf(part, sizeof(part), "%.*s", (int)n, p);
        /* "0" is neither; a number without a unit would be seconds to one and bytes to another. */
        bool unit = part[n - 1] < '0' || part[n - 1] > '9';
        if (strcmp(part, "0") != 0 &&
            (!unit || (parse_ns(part, &ns) != 0 && parse_bytes(part, &bytes) != 0)))
            return err_set(-EINVAL, "'%.60s' is no retention: 2h, 100MB, 2h|100MB or 0", text);
        p += n + (p[n] == '|');
    }
    *ret_ns = ns;
    *ret_bytes = bytes;
    return 0;
}

/* Is the table called `name`, with or without its schema?  "schema_name", too: a variable of the
 * environment can have no dot. */
static bool is_called(const struct table *t, const char *name)
{
    size_t n = strlen(t->schema);
    return strcmp(t->name, name) == 0 ||
           (strncmp(name, t->schema, n) == 0 && (name[n] == '.' || name[n] == '_') &&
            strcmp(name + n + 1, t->name) == 0);
}

/* What was asked for before the table came.  lock: drain_lock */
static void wanted_keep(struct store *s, struct table *t)
{
    for (const struct keep *k = s->keeps; k; k = k->next) { /* the one set last is the last */
        if (is_called(t, k->name)) {
            atomic_store_explicit(&t->keep_ns, k->ns, memory_order_relaxed);
            atomic_store_explicit(&t->keep_bytes, k->bytes, memory_order_relaxed);
        }
    }
}

/* At the end of the list, whether it was in it or not. */
static int remember_keep(struct store *s, const char *name, uint64_t ns, uint64_t bytes)
{
    struct keep *k = NULL, **at = &s->keeps;
    uint32_t n = 0;
    while (*at) {
        if (strcmp((*at)->name, name) == 0) {
            k = *at;
            *at = k->next;
        } else {
            at = &(*at)->next;
            n++;
        }
    }
    if (!k) {
        k = n < TABLES_MAX ? calloc(1, sizeof(*k)) : NULL;
        char *copy = k ? strdup(name) : NULL;
        if (!copy) {
            free(k);
            return err_set(-ENOMEM, "no memory for the retention of %.80s", name);
        }
        k->name = copy;
    }
    k->next = NULL;
    k->ns = ns;
    k->bytes = bytes;
    *at = k;
    return 0;
}

int store_keep(struct store *s, const char *name, const char *text)
{
    uint64_t ns, bytes;
    int rc = store_keep_parse(text, &ns, &bytes);
    if (rc)
        return rc;
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    const struct table *one = NULL;
    uint32_t n = tables_list(s->tables, list, TABLES_MAX), called = 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (!is_called(list[i], name))
            continue;
        if (list[i]->scan)
            rc = err_set(-EINVAL, "%s.%s is computed when asked: nothing of it is kept",
                         list[i]->schema, list[i]->name);
        else if (one)
            rc = err_set(-EINVAL, "'%.80s' may be %s.%s or %s.%s: say which", name, one->schema,
                         one->name, list[i]->schema, list[i]->name);
        one = list[i];
    }
    (void)pthread_mutex_lock(&s->drain_lock);
    rc = rc ? rc : remember_keep(s, name, ns, bytes);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        if (is_called(list[i], name)) {
            wanted_keep(s, list[i]);
            called++;
        }
    }
    (void)pthread_mutex_unlock(&s->drain_lock);
    free(list);
    atomic_store_explicit(&s->limits_changed, true, memory_order_release);
    return rc ? rc : called == 0;
}

/* ---- tables ---- */

/* One line for each table beside LMDB, so that rows in the rings can be read when LMDB cannot. */
static int note_schema(const struct store *s, struct buf *json)
{
    char path[4096];
    int n = snprintf(path, sizeof(path), "%s/tables", s->directory);
    if (n < 0 || (size_t)n >= sizeof(path))
        return err_set(-ENAMETOOLONG, "the path '%.60s...' is too long", s->directory);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd == -1)
        return err_set(-errno, "%s: %s", path, strerror(errno));
    int rc = buf_addc(json, '\n');
    /* One write: a kill leaves a whole line or none. */
    if (rc == 0 && write(fd, json->data, json->size) != (ssize_t)json->size)
        rc = err_set(-EIO, "%s cannot be written", path);
    (void)close(fd);
    return rc;
}

static int keep_schema(struct store *s, const struct table *t)
{
    struct buf json;
    MDB_txn *txn;
    buf_init(&json, 1 << 20);
    int rc = schema_write(t, &json);
    struct meta_key k = meta_key_of('t', t->id);
    MDB_val key = value_of(&k, sizeof(k)), old, value = value_of(json.data, json.size);
    int failed = rc ? 0 : s->env ? mdb_txn_begin(s->env, NULL, 0, &txn) : EIO;
    if (rc == 0 && failed == 0) {
        bool same = mdb_get(txn, s->meta, &key, &old) == 0 && old.mv_size == value.mv_size &&
                    memcmp(old.mv_data, value.mv_data, value.mv_size) == 0;
        if (same) {
            mdb_txn_abort(txn);
            buf_done(&json);
            return 0;
        }
        failed = mdb_put(txn, s->meta, &key, &value, 0);
        if (failed)
            mdb_txn_abort(txn);
        else
            failed = mdb_txn_commit(txn);
    }
    if (failed)
        rc = lmdb_failed(failed, "the table's description cannot be kept");
    if (rc == 0)
        rc = note_schema(s, &json);
    buf_done(&json);
    return rc;
}

int store_table_add(struct store *s, const char *schema, const struct probing_table_desc *d,
                    void *self, struct table **ret)
{
    struct table *t;
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    if (!s->live)
        return err_set(-EROFS, "the store of a dead process takes no tables");
    if (d && d->scan)
        return tables_add(s->tables, schema, d, self, ret);
    struct table *old = NULL;
    int rc = tables_add(s->tables, schema, d, self, &t);
    if (rc == -EEXIST)
        rc = tables_supersede(s->tables, schema, d, &old, &t);
    if (rc)
        return rc;
    struct quiet quiet;
    quiet_begin(&quiet);
    (void)pthread_rwlock_rdlock(&s->map_lock);
    (void)pthread_mutex_lock(&s->drain_lock);
    rc = rings_bind_table(s->rings, t);
    if (rc == 0 && old)
        rc = keep_schema(s, old); /* its new name first: no two tables have one name */
    if (rc == 0)
        rc = keep_schema(s, t);
    if (rc == 0)
        wanted_keep(s, t);
    (void)pthread_mutex_unlock(&s->drain_lock);
    (void)pthread_rwlock_unlock(&s->map_lock);
    quiet_end(&quiet);
    if (rc == 0)
        *ret = t;
    return rc;
}

/* ---- numbers ---- */

struct interns *store_interns(struct store *s)
{
    return s->interns;
}

int64_t store_utc_offset(struct store *s)
{
    return s->utc_offset;
}

const char *store_damage(struct store *s)
{
    return buf_text(&s->damage);
}

void store_set_limits(struct store *s, uint64_t max_bytes, uint64_t keep_ns)
{
    max_bytes = max_bytes > BYTES_LEAST ? max_bytes : BYTES_LEAST;
    atomic_store_explicit(&s->max_bytes, max_bytes, memory_order_relaxed);
    atomic_store_explicit(&s->keep_ns, keep_ns, memory_order_relaxed);
    (void)pthread_rwlock_wrlock(&s->map_lock);
    if (s->live && s->env && map_bytes_for(max_bytes) > s->map_bytes &&
        mdb_env_set_mapsize(s->env, map_bytes_for(max_bytes)) == 0)
        s->map_bytes = map_bytes_for(max_bytes);
    (void)pthread_rwlock_unlock(&s->map_lock);
    atomic_store_explicit(&s->limits_changed, true, memory_order_release);
}

/* Rows of a table that lie in the rings.  lock: drain_lock */
static uint64_t count_waiting(struct store *s, uint32_t table_id)
{
    uint64_t n = 0;
    for (uint32_t slot = 0; s->live && slot < rings_count(s->rings); slot++) {
        struct ring_reader reader;
        struct ring_row row;
        if (ring_generation(s->rings, slot) == 0 ||
            ring_read(s->rings, slot, ring_tail(s->rings, slot), &reader) != 0)
            continue;
        while (ring_next(&reader, &row) == 1)
            n += row.table_id == table_id;
    }
    return n;
}

/* Min (or max) of ts in one segment, 0 when it cannot be said. */
static uint64_t segment_ts(const void *data, size_t size, bool last)
{
    struct segment seg;
    struct segment_column c;
    if (segment_open(data, size, &seg) != 0 || segment_column(&seg, 0, &c) != 0 || !c.has_bounds)
        return 0;
    return last ? c.max.u : c.min.u;
}

static void read_times(struct store *s, uint32_t id, struct store_table_stats *ret)
{
    MDB_txn *txn;
    MDB_cursor *cursor;
    struct segment_key k = key_of(id, 0), after = key_of(id + 1, 0);
    MDB_val key = value_of(&k, sizeof(k)), value;
    uint32_t got_id;
    uint64_t row;
    if (!s->env || mdb_txn_begin(s->env, NULL, MDB_RDONLY, &txn) != 0)
        return;
    if (mdb_cursor_open(txn, s->segments, &cursor) == 0) {
        if (mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE) == 0 &&
            key_read(&key, &got_id, &row) && got_id == id)
            ret->first_ts = segment_ts(value.mv_data, value.mv_size, /* last= */ false);
        key = value_of(&after, sizeof(after));
        int rc = mdb_cursor_get(cursor, &key, &value, MDB_SET_RANGE);
        rc = mdb_cursor_get(cursor, &key, &value, rc == 0 ? MDB_PREV : MDB_LAST);
        if (rc == 0 && key_read(&key, &got_id, &row) && got_id == id)
            ret->last_ts = segment_ts(value.mv_data, value.mv_size, /* last= */ true);
        mdb_cursor_close(cursor);
    }
    mdb_txn_abort(txn);
}

int store_stats(struct store *s, const struct table *t, struct store_table_stats *ret)
{
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return err_set(-ESHUTDOWN, "this is a forked child without a store");
    *ret = (struct store_table_stats){0};
    (void)pthread_rwlock_rdlock(&s->map_lock);
    (void)pthread_mutex_lock(&s->drain_lock);
    const struct table_state *state = &s->state[t->id];
    ret->rows = state->rows;
    ret->bytes = state->bytes;
    ret->segments = state->segments;
    ret->expired = state->expired;
    ret->waiting = count_waiting(s, t->id);
    read_times(s, t->id, ret);
    (void)pthread_mutex_unlock(&s->drain_lock);
    (void)pthread_rwlock_unlock(&s->map_lock);
    for (const struct memory_segment *m = s->memory; m; m = m->next) {
        uint64_t first = segment_ts(m->data, m->size, false);
        uint64_t last = segment_ts(m->data, m->size, true);
        if (m->table_id != t->id)
            continue;
        ret->first_ts = ret->first_ts ? ret->first_ts : first;
        ret->last_ts = last > ret->last_ts ? last : ret->last_ts;
    }
    return 0;
}

uint64_t store_next_row(struct store *s, const struct table *t)
{
    if (atomic_load_explicit(&s->disabled, memory_order_acquire))
        return 0;
    (void)pthread_mutex_lock(&s->drain_lock);
    uint64_t next = s->state[t->id].next_row + (s->live ? count_waiting(s, t->id) : 0);
    (void)pthread_mutex_unlock(&s->drain_lock);
    return next;
}
