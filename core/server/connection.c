/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/connection.c - one connection and the bounded queue of answers that waits for it.
 *
 * The loop makes, reads and ends a peer; workers and control put pieces in.  A command waits when
 * the queue is full (it is asked to be slow, not to be wrong); a stream loses its oldest pieces and
 * the client is told how many.  Does not know any protocol.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/server/internal.h"

#define CHUNK_MIN_BYTES 1024     /* first room of a piece of text: many writes are short */
#define WAIT_NS (20 * NS_PER_MS) /* between looks at reply.cancelled, which rings no bell */

static int init_locks(struct connection *p)
{
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);
    if (rc != 0)
        return -rc;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    rc = pthread_cond_init(&p->space, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (rc != 0)
        return -rc;
    rc = pthread_mutex_init(&p->mutex, NULL);
    if (rc != 0)
        (void)pthread_cond_destroy(&p->space);
    return -rc;
}

struct connection *server_connection_new(struct server *s, int fd, bool local)
{
    struct connection *p = calloc(1, sizeof(*p));
    if (!p || init_locks(p) != 0) {
        free(p);
        return NULL;
    }
    atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
    p->server = s;
    p->since_ns = clock_now();
    server_ref(s);
    p->fd = fd;
    p->slot = -1;
    p->local = local;
    p->access = local ? ACCESS_FULL : ACCESS_NONE;
    buf_init(&p->in, SERVER_HEADER_BYTES + SERVER_BODY_BYTES + 1);
    buf_init(&p->out, 8 * SERVER_MESSAGE_BYTES);
    buf_init(&p->together, SERVER_MESSAGE_BYTES);
    return p;
}

void server_connection_ref(struct connection *p)
{
    (void)atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void server_connection_unref(struct connection *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    buf_done(&p->in);
    buf_done(&p->out);
    buf_done(&p->together);
    (void)pthread_mutex_destroy(&p->mutex);
    (void)pthread_cond_destroy(&p->space);
    server_unref(p->server);
    free(p);
}

struct shared *server_shared_new(struct server *owner, const char *text, size_t size)
{
    struct shared *s = malloc(sizeof(*s) + size);
    if (!s)
        return NULL;
    *s = (struct shared){.refs = 1, .server = owner, .size = size};
    memcpy(s->data, text, size);
    (void)atomic_fetch_add_explicit(&owner->queued, size, memory_order_relaxed);
    return s;
}

void server_shared_unref(struct shared *text)
{
    if (!text || atomic_fetch_sub_explicit(&text->refs, 1, memory_order_acq_rel) != 1)
        return;
    (void)atomic_fetch_sub_explicit(&text->server->queued, text->size, memory_order_relaxed);
    free(text);
}

void server_chunk_free(struct chunk *piece)
{
    if (!piece)
        return;
    server_shared_unref(piece->shared);
    server_job_unref(piece->job);
    free(piece);
}

/* A piece comes (sign 1) or goes (-1).  What a hundred clients share waits for each of them, and is
 * in memory once: counted so, a stream is not short of memory that is there.  lock: p->mutex */
static void count_queued(struct connection *p, const struct chunk *piece, int sign)
{
    size_t own = sizeof(*piece) + (piece->shared ? 0 : piece->capacity);
    p->queued += (size_t)sign * (sizeof(*piece) + piece->capacity);
    (void)atomic_fetch_add_explicit(&p->server->queued, (size_t)sign * own, memory_order_relaxed);
}

/* The bytes that may wait for one peer.  When much waits for all of them together it is little for
 * each: the memory is the host's. */
static size_t queue_limit(const struct connection *p)
{
    size_t all = atomic_load_explicit(&p->server->queued, memory_order_relaxed);
    return all < SERVER_QUEUES_BYTES ? SERVER_QUEUE_BYTES : SERVER_QUEUE_BYTES / 16;
}

void server_connection_gone(struct connection *p)
{
    p->wsi = NULL;
    (void)pthread_mutex_lock(&p->mutex);
    struct chunk *all = p->head;
    p->head = p->tail = NULL;
    for (const struct chunk *piece = all; piece; piece = piece->next)
        count_queued(p, piece, -1);
    p->slow_since_ns = 0;
    p->gone = true;
    (void)pthread_cond_broadcast(&p->space);
    (void)pthread_mutex_unlock(&p->mutex);
    while (all) {
        struct chunk *next = all->next;
        server_chunk_free(all);
        all = next;
    }
    while (p->jobs) {
        server_job_cancel(p->jobs); /* a command ends by itself; what it says finds nobody */
        server_job_remove(p->jobs);
    }
}

void server_connection_ready(struct connection *p)
{
    struct server *s = p->server;
    (void)pthread_mutex_lock(&s->mutex);
    bool wake = !s->ready; /* else the loop has been woken and has not looked yet */
    if (!p->ready) {
        p->ready = true;
        p->ready_next = s->ready;
        s->ready = p;
        server_connection_ref(p);
    }
    (void)pthread_mutex_unlock(&s->mutex);
    if (wake)
        server_wake(s);
}

static struct chunk *new_chunk(struct job *j, enum chunk_kind kind, size_t capacity)
{
    struct chunk *piece = malloc(sizeof(*piece) + capacity);
    if (!piece)
        return NULL;
    *piece = (struct chunk){.job = j, .kind = kind, .capacity = capacity};
    if (j)
        server_job_ref(j);
    return piece;
}

/* lock: p->mutex */
static void append_piece(struct connection *p, struct chunk *piece)
{
    if (p->tail)
        p->tail->next = piece;
    else
        p->head = piece;
    p->tail = piece;
    count_queued(p, piece, 1);
}

/* lock: p->mutex */
static bool is_full(const struct job *j, size_t size)
{
    const struct connection *p = j->peer;
    return !p->gone && p->queued > 0 && p->queued + size > queue_limit(p);
}

static void look_in_a_while(struct connection *p)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (int64_t)WAIT_NS;
    if (until.tv_nsec >= (int64_t)NS_PER_S) {
        until.tv_nsec -= (int64_t)NS_PER_S;
        until.tv_sec++;
    }
    (void)pthread_cond_timedwait(&p->space, &p->mutex, &until);
}

/* Tell the host that a worker waits for a client, since when it would have done so without a break
 * (0: no longer).  lock: p->mutex, which is given up meanwhile */
static void tell_host(struct job *j, uint64_t since_ns)
{
    struct connection *p = j->peer;
    int none = 0;
    (void)pthread_mutex_unlock(&p->mutex);
    if (host_waits_for_client(p->server->host, &j->reply, since_ns))
        (void)atomic_compare_exchange_strong_explicit(&j->reply.cancelled, &none, HOST_CROWDED,
                                                      memory_order_release, memory_order_relaxed);
    (void)pthread_mutex_lock(&p->mutex);
}

/* Wait for room for `size` bytes.  What is urgent never waits: it is short, and the number of its
 * requests is limited.  lock: p->mutex */
static int wait_for_room(struct job *j, size_t size)
{
    struct connection *p = j->peer;
    uint64_t began = 0;
    while (is_full(j, size) && !j->reply.urgent &&
           !atomic_load_explicit(&j->reply.cancelled, memory_order_relaxed)) {
        began = began ? began : clock_now();
        look_in_a_while(p);
        if (is_full(j, size))
            tell_host(j, began - j->blocked_ns);
    }
    if (began) {
        j->blocked_ns += clock_now() - began;
        tell_host(j, 0);
    }
    return p->gone || atomic_load_explicit(&j->reply.cancelled, memory_order_relaxed) ? -ECANCELED
                                                                                      : 0;
}

/* Add to the last piece when it is of the same job and has room: many short writes, one message. */
static size_t merge_piece(struct connection *p, struct job *j, const char *data, size_t size)
{
    struct chunk *last = p->tail;
    if (!last || last->job != j || last->kind != CHUNK_DATA || last->droppable)
        return 0;
    size_t room = last->capacity - last->size;
    size_t n = size < room ? size : room;
    memcpy(last->data + last->size, data, n);
    last->size += n;
    return n;
}

/* ret_wake: the loop is to be told; a little that is followed by done() at once can wait for it. */
static int write_piece(struct job *j, const char *data, size_t size, size_t *ret_used,
                       bool *ret_wake)
{
    struct connection *p = j->peer;
    int rc = 0;
    (void)pthread_mutex_lock(&p->mutex);
    size_t used = merge_piece(p, j, data, size);
    if (used < size) {
        size_t n = size - used < SERVER_CHUNK_BYTES ? size - used : SERVER_CHUNK_BYTES;
        size_t room = p->tail && p->tail->job == j ? SERVER_CHUNK_BYTES : CHUNK_MIN_BYTES;
        room = n > room ? n : room;
        rc = wait_for_room(j, sizeof(struct chunk) + room);
        struct chunk *piece = rc == 0 ? new_chunk(j, CHUNK_DATA, room) : NULL;
        if (piece) {
            memcpy(piece->data, data + used, n);
            piece->size = n;
            append_piece(p, piece);
            used += n;
        } else if (rc == 0) {
            rc = -ENOMEM;
        }
    }
    *ret_wake = !j->reply.ending || p->queued > SERVER_CHUNK_BYTES;
    (void)pthread_mutex_unlock(&p->mutex);
    *ret_used = used;
    return rc;
}

int server_connection_write(struct job *j, const void *data, size_t size)
{
    const char *p = data;
    while (size > 0) {
        size_t used;
        bool wake;
        if (atomic_load_explicit(&j->reply.cancelled, memory_order_relaxed))
            return -ECANCELED;
        int rc = write_piece(j, p, size, &used, &wake);
        if (wake)
            server_connection_ready(j->peer);
        if (rc != 0)
            return rc;
        p += used;
        size -= used;
    }
    return 0;
}

/* lock: p->mutex */
static void count_lost(struct connection *p, struct job *j)
{
    j->dropped++;
    p->lost++;
    p->dropped++;
    server_add(p->server->lost, 1);
    if (!p->slow_since_ns)
        p->slow_since_ns = clock_now();
}

/* Take the oldest droppable pieces out until `size` more fit; they go to *ret_out.
 * lock: p->mutex */
static void drop_oldest(struct connection *p, size_t size, struct chunk **ret_out)
{
    struct chunk **at = &p->head, *before = NULL;
    size_t limit = queue_limit(p);
    while (*at && p->queued + size > limit) {
        struct chunk *piece = *at;
        if (!piece->droppable) {
            before = piece;
            at = &piece->next;
            continue;
        }
        *at = piece->next;
        if (p->tail == piece)
            p->tail = before;
        count_queued(p, piece, -1);
        count_lost(p, piece->job);
        piece->next = *ret_out;
        *ret_out = piece;
    }
}

static int push_piece(struct connection *p, struct chunk *piece)
{
    struct chunk *out = NULL;
    size_t size = sizeof(*piece) + piece->capacity;
    (void)pthread_mutex_lock(&p->mutex);
    bool gone = p->gone;
    if (piece->droppable)
        drop_oldest(p, size, &out);
    if (!gone && piece->droppable && p->queued > 0 && p->queued + size > queue_limit(p)) {
        count_lost(p, piece->job); /* the queue is full of answers that may not be dropped */
        piece->next = out;
        out = piece;
    } else if (!gone) {
        append_piece(p, piece);
    }
    (void)pthread_mutex_unlock(&p->mutex);
    if (gone)
        server_chunk_free(piece);
    else
        server_connection_ready(p);
    while (out) {
        struct chunk *next = out->next;
        server_chunk_free(out);
        out = next;
    }
    return gone ? -ECANCELED : 0;
}

int server_connection_push(struct connection *p, struct job *j, enum chunk_kind kind, int status,
                           const void *data, size_t size, bool droppable)
{
    struct chunk *piece = new_chunk(j, kind, size);
    if (!piece)
        return -ENOMEM;
    if (kind == CHUNK_DONE && status < 0)
        j->hint = err_hint(data);
    memcpy(piece->data, data, size);
    piece->size = size;
    piece->status = status;
    piece->droppable = droppable;
    return push_piece(p, piece);
}

int server_connection_push_shared(struct connection *p, struct job *j, struct shared *text)
{
    struct chunk *piece = new_chunk(j, CHUNK_DATA, 0);
    if (!piece)
        return -ENOMEM;
    (void)atomic_fetch_add_explicit(&text->refs, 1, memory_order_relaxed);
    piece->shared = text;
    piece->capacity = text->size; /* as if it were its own: what others hold may go first */
    piece->droppable = true;
    return push_piece(p, piece);
}

struct chunk *server_connection_take(struct connection *p, uint64_t *ret_dropped)
{
    *ret_dropped = 0;
    (void)pthread_mutex_lock(&p->mutex);
    struct chunk *piece = p->head;
    if (piece) {
        p->head = piece->next;
        if (!p->head)
            p->tail = NULL;
        count_queued(p, piece, -1);
        if (!p->head)
            p->slow_since_ns = p->lost = 0;
        if (piece->job) {
            *ret_dropped = piece->job->dropped;
            piece->job->dropped = 0;
        }
        (void)pthread_cond_broadcast(&p->space);
    }
    (void)pthread_mutex_unlock(&p->mutex);
    return piece;
}

bool server_connection_waiting(struct connection *p)
{
    (void)pthread_mutex_lock(&p->mutex);
    bool waiting = p->head != NULL;
    (void)pthread_mutex_unlock(&p->mutex);
    return waiting;
}
