/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/event_stream.c - followed events: what scripts publish, handed on to websocket
 * clients.
 *
 * Starts and stops on the loop; events come on control and go into the peer's queue, which drops
 * the oldest when the client is slow.
 */
#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/redact.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "sdk/lib/arena.h"

static void on_event(void *arg, const char *topic, const void *payload, uint32_t size)
{
    struct job *j = arg;
    const char *text = (const char *)payload + sizeof(uint32_t);
    size_t n = size > sizeof(uint32_t) ? size - sizeof(uint32_t) : 0;
    struct arena a;
    struct buf b, shown;
    struct json *value;
    while (n > 0 && text[n - 1] == 0)
        n--;
    arena_init(&a, SERVER_MESSAGE_BYTES);
    buf_init(&b, SERVER_MESSAGE_BYTES);
    (void)buf_adds(&b, "\"event\":");
    (void)json_add_text(&b, topic, strlen(topic));
    (void)buf_adds(&b, ",\"data\":");
    buf_init(&shown, SERVER_MESSAGE_BYTES);
    if (j->peer->access != ACCESS_FULL && secret_text(text, n, &shown) > 0) {
        text = shown.data;
        n = shown.size;
    }
    if (shown.failed)
        b.failed = shown.failed;
    else if (json_parse(&a, text, n, &value) == 0)
        (void)buf_add(&b, text, n);
    else /* not what it should be: shown as it is rather than not at all */
        (void)json_add_text(&b, text, n);
    if (!b.failed)
        (void)server_connection_push(j->peer, j, CHUNK_EVENT, 0, b.data, b.size, true);
    buf_done(&shown);
    buf_done(&b);
    arena_done(&a);
}

void server_follow_start(struct connection *p, const struct message *m)
{
    if (strncmp(m->text, "script.", 7) != 0) {
        (void)server_job_refuse(p, m->id,
                                err_set(-EINVAL,
                                        "'%s' cannot be followed; topics that carry text "
                                        "are named script.NAME",
                                        m->text));
        return;
    }
    struct job *j = server_job_new(p, JOB_FOLLOW, m->id);
    if (!j) {
        (void)server_job_refuse(p, m->id, -ENOMEM);
        return;
    }
    server_job_ref(j); /* of the subscription */
    int id = host_subscribe(p->server->host, m->text, on_event, j);
    if (id <= 0) {
        server_job_unref(j);
        server_job_remove(j);
        (void)server_job_refuse(p, m->id, id < 0 ? id : -EINVAL);
        return;
    }
    j->subscription = id;
}

void server_follow_stop(struct job *j)
{
    if (j->subscription <= 0)
        return;
    host_unsubscribe(j->peer->server->host, j->subscription);
    j->subscription = 0;
    server_job_unref(j);
}
