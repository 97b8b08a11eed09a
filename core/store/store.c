/* SPDX-License-Identifier: Apache-2.0
 *
 * core/store/store.c - the store itself: made, ended, and its settings.
 *
 * Any thread where store.h says so.  Draining is in drain.c, reading in scan.c, the dead in
 * offline.c.
 */
#include "core/store/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/guest/mmap_guard.h"
#include "core/guest/thread.h"
#include "core/store/internal.h"

#define BYTES_LEAST (UINT64_C(8) << 20)
#define DRAIN_STACK ((size_t)512 << 10)

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
    env_close(s);
    interns_free(s->interns);
    if (s->held != -1)
        (void)close(s->held);
    for (uint32_t id = 0; id <= TABLES_STORED_MAX; id++)
        builder_free(s->builders[id]);
    for (struct memory_segment *m = s->memory, *next; m; m = next) {
        next = m->next;
        free(m->owned);
        free(m);
    }
    for (struct retention_rule *k = s->keeps, *next; k; k = next) {
        next = k->next;
        free(k->name);
        free(k);
    }
    mapped_forget(s->file);
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

/* Tables that were there before the store, or came back with it. */
static int bind_tables(struct store *s)
{
    struct table **list = calloc(TABLES_MAX, sizeof(*list));
    if (!list)
        return err_set(-ENOMEM, "no memory for the list of tables");
    uint32_t n = tables_list(s->tables, list, TABLES_MAX);
    int rc = rings_bind_table(s->rings, tables_refused(s->tables));
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
    rc = own_dir_hold(s);
    if (rc == 0)
        rc = own_dir_lock(o);
    if (rc == 0)
        rc = env_open(s, max_bytes);
    if (rc == 0)
        rc = env_resume(s, o);
    if (rc == 0)
        rc = own_dir_files(s, o);
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
    if (s->live)
        env_grow(s, max_bytes);
    (void)pthread_rwlock_unlock(&s->map_lock);
    atomic_store_explicit(&s->limits_changed, true, memory_order_release);
}
