/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/request.c - one thing a peer asked for, from asking to its end.
 *
 * Made and removed on the loop; its command runs on a worker, which calls reply_write() and
 * run_done().  The reply is embedded, so the job outlives run_done() by its counts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/gzip.h"
#include "core/server/internal.h"

static int reply_write(struct probing_reply *r, const void *data, size_t size)
{
    return server_shade_write((struct job *)r, data, size); /* reply is the first field */
}

struct job *server_job_new(struct connection *p, enum job_kind kind, int64_t id)
{
    struct job *j = calloc(1, sizeof(*j));
    if (!j)
        return NULL;
    server_add(p->server->requests, 1);
    server_add(p->requests, 1);
    j->reply.write = reply_write;
    j->reply.remote = !p->local;
    j->reply.takes_bytes = p->kind == CONNECTION_HTTP || p->kind == CONNECTION_WS;
    atomic_store_explicit(&j->refs, 1, memory_order_relaxed);
    j->peer = p;
    server_connection_ref(p);
    j->kind = kind;
    j->id = id;
    j->line_start = true;
    buf_init(&j->held, 2 * SERVER_MESSAGE_BYTES);
    buf_init(&j->hold, SERVER_HOLD_BYTES + SERVER_CHUNK_BYTES);
    j->next = p->jobs;
    p->jobs = j;
    p->n_jobs++;
    return j;
}

void server_job_ref(struct job *j)
{
    (void)atomic_fetch_add_explicit(&j->refs, 1, memory_order_relaxed);
}

void server_job_unref(struct job *j)
{
    if (!j || atomic_fetch_sub_explicit(&j->refs, 1, memory_order_acq_rel) != 1)
        return;
    buf_done(&j->held);
    buf_done(&j->hold);
    squeeze_free(j->squeeze);
    server_connection_unref(j->peer);
    free(j);
}

struct job *server_job_find(struct connection *p, int64_t id)
{
    struct job *j = p->jobs;
    while (j && (j->id != id || j->over))
        j = j->next;
    return j;
}

void server_job_remove(struct job *j)
{
    struct job **at = &j->peer->jobs;
    while (*at && *at != j)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = j->next;
    j->peer->n_jobs--;
    server_job_unref(j);
}

void server_job_cancel(struct job *j)
{
    int none = 0; /* a reason that is there stays: the host tells time limits by it */
    (void)atomic_compare_exchange_strong_explicit(&j->reply.cancelled, &none, HOST_GONE,
                                                  memory_order_release, memory_order_relaxed);
    (void)pthread_mutex_lock(&j->peer->mutex);
    (void)pthread_cond_broadcast(&j->peer->space);
    (void)pthread_mutex_unlock(&j->peer->mutex);
    switch (j->kind) {
    case JOB_RUN:
        break;
    case JOB_WATCH:
        server_watch_stop(j);
        break;
    case JOB_FOLLOW:
        server_follow_stop(j);
        break;
    }
}

int server_job_refuse(struct connection *p, int64_t id, int code)
{
    struct job *j = server_job_new(p, JOB_RUN, id);
    const char *why = err_why(code);
    return j && server_connection_push(p, j, CHUNK_DONE, code, why, strlen(why), false) == 0 ? 0
                                                                                             : -1;
}

static void run_done(struct probing_reply *r, int status, const char *error)
{
    struct job *j = (struct job *)r;
    if (atomic_exchange_explicit(&j->ended, true, memory_order_acq_rel))
        return;
    struct buf why;
    buf_init(&why, 2 * ERR_TEXT_BYTES);
    (void)server_shade_text(j, status >= 0 ? r->note : error ? error : "", &why);
    server_shade_end(j);
    (void)server_connection_push(j->peer, j, CHUNK_DONE, status, buf_text(&why), why.size, false);
    buf_done(&why);
    server_job_unref(j);
}

void server_job_run(struct connection *p, const struct job_request *asked)
{
    static const char no_memory[] = "no memory";
    struct job *j = server_job_new(p, JOB_RUN, asked->id);
    if (!j) {
        p->closing = true; /* nobody could be told which request it was */
        (void)server_connection_push(p, NULL, CHUNK_ERROR, -ENOMEM, no_memory,
                                     sizeof(no_memory) - 1, false);
        return;
    }
    struct host_request request = {
        .argc = asked->argc,
        .argv = asked->argv,
        .read_only = p->access != ACCESS_FULL,
        .who = p->who,
        .client = &p->commands,
        .timeout_ns = asked->timeout_ns,
        .reply = &j->reply,
        .done = run_done,
    };
    j->bytes = asked->bytes;
    server_job_ref(j); /* given back by run_done() */
    err_clear();
    int rc = host_submit(p->server->host, &request);
    if (rc < 0)
        run_done(&j->reply, rc, err_why(rc));
}
