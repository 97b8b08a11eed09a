/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/websocket.c - websocket: JSON messages in and out, frames by libwebsockets.
 *
 * Loop only.  A connection comes here from http.c once Host, Origin and token are right.  The
 * messages are described in docs/protocol.md.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/printable.h"
#include "core/server/internal.h"
#include "core/server/message.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define TOGETHER_BYTES 16384 /* longer messages are sent by themselves, and not copied for it */

/* libwebsockets' own (lib/core-net/output.c), by which lws_write() sends what it has framed: it
 * keeps what the socket does not take. */
int lws_issue_raw(struct lws *wsi, unsigned char *data, size_t size);

int server_ws_handover(struct connection *p, const char *request, size_t size)
{
    struct server *s = p->server;
    int fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 3); /* the old one is closed with its file role */
    if (fd == -1)
        return -1;
    int slot = server_slot_take(s, fd);
    struct lws *old = p->wsi;
    lws_set_opaque_user_data(old, NULL);
    server_slot_drop(s, p->slot);
    p->slot = slot;
    p->fd = -1;
    p->wsi = NULL;
    server_connection_speaks(p, CONNECTION_WS);
    buf_done(&p->in);
    buf_init(&p->in, SERVER_MESSAGE_BYTES);
    s->adopting = p;
    server_connection_ref(p);
    struct lws *wsi = lws_adopt_socket_vhost_readbuf(s->vhost, fd, request, size);
    s->adopting = NULL;
    /* The call serves the request at once, so the client may have come and gone within it: then the
     * peer is off the list already, and ours is the last count of it. */
    if (!wsi && !p->wsi)
        server_connection_lost(p);
    server_connection_unref(p);
    return -1; /* closes the old descriptor only */
}

static int send_error(struct connection *p, const char *why)
{
    (void)pthread_mutex_lock(&p->mutex);
    bool full = p->queued > SERVER_QUEUE_BYTES;
    (void)pthread_mutex_unlock(&p->mutex);
    if (full) /* it talks and does not listen */
        return -1;
    return server_connection_push(p, NULL, CHUNK_ERROR, 0, why, strlen(why), false) < 0 ? -1 : 0;
}

static int start_request(struct connection *p, const struct message *m)
{
    struct job *j = server_job_find(p, m->id);
    if (m->kind == MESSAGE_CANCEL) {
        if (!j) {
            (void)err_set(-ENOENT, "nothing with id %lld is running", (long long)m->id);
            return send_error(p, err_text());
        }
        server_job_cancel(j);
        if (j->kind != JOB_RUN) {
            j->over = true;
            return server_connection_push(p, j, CHUNK_DONE, 0, "", 0, false) < 0 ? -1 : 0;
        }
        return 0;
    }
    if (j) {
        (void)err_set(-EEXIST, "id %lld is in use; choose another", (long long)m->id);
        return send_error(p, err_text());
    }
    if (p->n_jobs >= SERVER_JOBS) {
        (void)err_set(-EAGAIN, "id %lld: %d things run on this connection already",
                      (long long)m->id, SERVER_JOBS);
        return send_error(p, err_text());
    }
    switch (m->kind) {
    case MESSAGE_RUN:
        server_job_run(p, &(struct job_request){.argc = m->argc,
                                                .argv = m->argv,
                                                .id = m->id,
                                                .timeout_ns = m->timeout_ns,
                                                .bytes = m->bytes});
        break;
    case MESSAGE_WATCH:
        server_watch_start(p, m);
        break;
    case MESSAGE_FOLLOW:
        server_follow_start(p, m);
        break;
    case MESSAGE_CANCEL:
        break;
    }
    return 0;
}

/* A client that asks too often is answered where its message has an id, and stays connected. */
static int take_message(struct connection *p)
{
    struct message m;
    struct arena a;
    int64_t id;
    arena_init(&a, 8 * SERVER_MESSAGE_BYTES);
    err_clear();
    int rc = server_message_parse(&a, p->in.data ? p->in.data : "", p->in.size, &m, &id);
    /* Also what is no request: reading it costs as much. */
    bool cancels = rc == 0 && m.kind == MESSAGE_CANCEL;
    int may = server_connection_may_ask(p);
    if (may < 0 && !cancels)
        rc = may;
    if (rc == 0) {
        rc = start_request(p, &m);
    } else if (id >= 0) {
        rc = server_job_find(p, id) || p->n_jobs >= SERVER_JOBS ? send_error(p, err_why(rc))
                                                                : server_job_refuse(p, id, rc);
    } else {
        rc = send_error(p, err_why(rc));
    }
    arena_done(&a);
    server_raw_used(p, p->in.size);
    return rc;
}

static int receive_frame(struct lws *wsi, struct connection *p, const char *data, size_t size)
{
    static const char too_long[] = "a message is at most 4 MiB";
    if (lws_frame_is_binary(wsi)) {
        lws_close_reason(wsi, LWS_CLOSE_STATUS_UNACCEPTABLE_OPCODE, NULL, 0);
        return -1;
    }
    if (buf_add(&p->in, data, size) != 0) {
        lws_close_reason(wsi, LWS_CLOSE_STATUS_MESSAGE_TOO_LARGE, (unsigned char *)too_long,
                         sizeof(too_long) - 1);
        return -1;
    }
    if (lws_remaining_packet_payload(wsi) > 0 || !lws_is_final_fragment(wsi))
        return 0;
    return take_message(p);
}

/* Adds a piece of an answer behind the bytes that were held back, and holds back the bytes of a
 * character whose rest may come with the next piece. */
static void add_whole(struct buf *to, struct job *j, const char *data, size_t size, bool last)
{
    size_t before = to->size;
    (void)buf_add(to, j->tail, j->tail_size);
    j->tail_size = 0;
    if (buf_add(to, data, size) != 0 || last || to->size == before)
        return;
    j->tail_size = (uint32_t)printable_open_end(to->data + before, to->size - before);
    to->size -= j->tail_size;
    memcpy(j->tail, to->data + to->size, j->tail_size);
}

static void add_data(struct connection *p, struct job *j, const char *data, size_t size, bool last)
{
    struct buf text;
    buf_init(&text, size + sizeof(j->tail) + 1);
    add_whole(&text, j, data, size, last);
    (void)buf_addf(&p->out, "{\"id\":%lld,\"data\":", (long long)j->id);
    (void)json_add_text(&p->out, buf_text(&text), text.size);
    (void)buf_addc(&p->out, '}');
    if (text.failed)
        p->out.failed = text.failed;
    buf_done(&text);
}

/* Adds a binary message: the id as 8 bytes, least first, then the piece. */
static void add_bytes(struct connection *p, struct job *j, const char *data, size_t size, bool last)
{
    (void)buf_add(&p->out, &j->id, sizeof(j->id));
    if (j->reply.media_type) /* no text */
        (void)buf_add(&p->out, data, size);
    else
        add_whole(&p->out, j, data, size, last);
}

static void add_shared(struct connection *p, const struct job *j, const struct shared *text)
{
    (void)buf_addf(&p->out, "{\"id\":%lld,%s\"data\":", (long long)j->id,
                   text->whole ? "\"snapshot\":true," : "");
    (void)buf_add(&p->out, text->data, text->size);
    (void)buf_addc(&p->out, '}');
}

static void begin_message(struct connection *p)
{
    static const char room[LWS_PRE];
    buf_reset(&p->out);
    (void)buf_add(&p->out, room, sizeof(room));
}

static int send_together(struct lws *wsi, struct connection *p)
{
    if (p->together.failed)
        return -1;
    if (p->together.size == 0)
        return 0;
    int sent = lws_issue_raw(wsi, (unsigned char *)p->together.data, p->together.size);
    buf_reset(&p->together);
    return sent < 0 ? -1 : 0;
}

/* A whole message as a server's frame: RFC 6455, 5.2. */
static void add_frame(struct buf *to, enum lws_write_protocol as, const char *data, size_t n)
{
    const unsigned char head[] = {as == LWS_WRITE_BINARY ? 0x82 : 0x81,
                                  n < 126 ? (unsigned char)n : 126, (unsigned char)(n >> 8),
                                  (unsigned char)n};
    (void)buf_add(to, head, n < 126 ? 2 : 4);
    (void)buf_add(to, data, n);
}

static int flush_message(struct lws *wsi, struct connection *p, enum lws_write_protocol as)
{
    if (p->out.failed)
        return -1;
    size_t n = p->out.size - LWS_PRE;
    int rc = 0;
    if (n == 0)
        return 0;
    if (n <= TOGETHER_BYTES) {
        add_frame(&p->together, as, p->out.data + LWS_PRE, n);
    } else {
        rc = send_together(wsi, p);
        if (rc == 0 && lws_write(wsi, (unsigned char *)p->out.data + LWS_PRE, n, as) < 0)
            rc = -1;
    }
    begin_message(p);
    server_add(p->bytes_out, rc < 0 ? 0 : n);
    return rc;
}

static int send_data(struct lws *wsi, struct connection *p, struct job *j,
                     const struct chunk *piece)
{
    bool last = piece->kind == CHUNK_DONE;
    const char *data = last ? "" : piece->data;
    size_t size = last ? 0 : piece->size;
    if (j->bytes || j->reply.media_type) {
        add_bytes(p, j, data, size, last);
        return flush_message(wsi, p, LWS_WRITE_BINARY);
    }
    if (piece->shared)
        add_shared(p, j, piece->shared);
    else
        add_data(p, j, data, size, last);
    return flush_message(wsi, p, LWS_WRITE_TEXT);
}

static int encode_piece(struct lws *wsi, struct connection *p, struct chunk *piece)
{
    struct job *j = piece->job;
    switch (piece->kind) {
    case CHUNK_DATA:
        return send_data(wsi, p, j, piece);
    case CHUNK_EVENT:
        (void)buf_addf(&p->out, "{\"id\":%lld,", (long long)j->id);
        (void)buf_add(&p->out, piece->data, piece->size);
        (void)buf_addc(&p->out, '}');
        break;
    case CHUNK_ERROR:
        (void)buf_adds(&p->out, "{\"error\":");
        (void)json_add_text(&p->out, piece->data, piece->size);
        (void)buf_addc(&p->out, '}');
        break;
    case CHUNK_DONE:
        if (j->tail_size > 0 && send_data(wsi, p, j, piece) < 0)
            return -1;
        (void)buf_addf(&p->out, "{\"id\":%lld,\"done\":%d", (long long)j->id, piece->status);
        if (piece->status < 0 || piece->size > 0) {
            (void)buf_adds(&p->out, piece->status < 0 ? ",\"error\":" : ",\"note\":");
            (void)json_add_text(&p->out, piece->data, piece->size);
        }
        if (piece->status < 0 && j->hint > 0 && j->hint < piece->size) {
            (void)buf_adds(&p->out, ",\"hint\":");
            (void)json_add_text(&p->out, piece->data + j->hint, piece->size - j->hint);
        }
        (void)buf_addc(&p->out, '}');
        server_job_cancel(j); /* of a stream that ended by itself: its timer, its subscription */
        server_job_remove(j);
        break;
    }
    return flush_message(wsi, p, LWS_WRITE_TEXT);
}

static int hang_up(struct lws *wsi)
{
    static const char why[] = SERVER_GOODBYE;
    lws_close_reason(wsi, LWS_CLOSE_STATUS_GOINGAWAY, (unsigned char *)why, sizeof(why) - 1);
    return -1;
}

static int send_piece(struct lws *wsi, struct connection *p, struct chunk *piece, uint64_t dropped)
{
    int rc = 0;
    if (dropped > 0) {
        (void)buf_addf(&p->out, "{\"id\":%lld,\"dropped\":%llu}", (long long)piece->job->id,
                       (unsigned long long)dropped);
        rc = flush_message(wsi, p, LWS_WRITE_TEXT);
    }
    if (rc == 0 && (!piece->job || !piece->job->over || piece->kind == CHUNK_DONE))
        rc = encode_piece(wsi, p, piece);
    return rc;
}

/* A message of a stream, or an answer and its end: one call of the kernel, and a client that is
 * woken up once. */
static int send_waiting(struct lws *wsi, struct connection *p)
{
    struct chunk *piece;
    uint64_t dropped;
    size_t turn = 0;
    int rc = 0;
    server_connection_wait(p, WAIT_NOTHING, 0);
    if (!server_connection_waiting(p))
        return p->closing ? hang_up(wsi) : 0;
    begin_message(p);
    while (rc == 0 && turn < SERVER_CHUNK_BYTES && !lws_partial_buffered(wsi) &&
           (piece = server_connection_take(p, &dropped)) != NULL) {
        turn += piece->droppable ? SERVER_CHUNK_BYTES : sizeof(*piece) + piece->capacity;
        rc = send_piece(wsi, p, piece, dropped);
        server_chunk_free(piece);
    }
    if (rc == 0)
        rc = send_together(wsi, p);
    buf_done(&p->out);
    buf_init(&p->out, 8 * SERVER_MESSAGE_BYTES);
    buf_done(&p->together);
    buf_init(&p->together, SERVER_MESSAGE_BYTES);
    if (rc == 0 && (server_connection_waiting(p) || p->closing || lws_partial_buffered(wsi))) {
        server_connection_wait(p, WAIT_SENDING, p->server->stuck_s);
        (void)lws_callback_on_writable(wsi);
    }
    return rc;
}

bool server_ws_send(struct connection *p)
{
    struct lws *wsi = p->wsi;
    if (!p->open || p->closing || lws_partial_buffered(wsi))
        return false;
    if (send_waiting(wsi, p) < 0)
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
    return true;
}

/* Bytes that libwebsockets has read and not yet used.  It closes without a word what we refuse, so
 * the word is ours, when it cannot fall into the middle of a frame. */
static int check_arrived(struct lws *wsi, struct connection *p, const void *data, size_t size)
{
    int code = server_frames_arrived(&p->frames, data, size, clock_now());
    const unsigned char goodbye[] = {0x88, 2, (unsigned char)(code >> 8), (unsigned char)code};
    if (code == 0)
        return 0;
    server_log_refusal(p, code == 1008   ? "too many pings or empty frames"
                          : code == 1009 ? "a frame longer than 4 MiB"
                                         : "no websocket client's frame");
    if (!lws_partial_buffered(wsi))
        (void)send(lws_get_socket_fd(wsi), goodbye, sizeof(goodbye), MSG_NOSIGNAL | MSG_DONTWAIT);
    return -1;
}

/* Name our build in the handshake, so that a client of another one can say so. */
int server_ws_headers(struct server *s, struct lws *wsi, struct lws_process_html_args *args)
{
    char text[128];
    unsigned char *end = (unsigned char *)args->p + args->max_len;
    int n = snprintf(text, sizeof(text), "probing/%s", s->version);
    return n < 0 || n >= (int)sizeof(text)
               ? 0
               : lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_SERVER,
                                              (const unsigned char *)text, n,
                                              (unsigned char **)&args->p, end);
}

int server_ws_event(struct lws *wsi, enum lws_callback_reasons reason, struct connection *p,
                    void *in, size_t size)
{
    if (reason == LWS_CALLBACK_RECEIVE) {
        server_add(p->bytes_in, size);
        return receive_frame(wsi, p, in, size);
    }
    if (reason == LWS_CALLBACK_SERVER_WRITEABLE)
        return send_waiting(wsi, p);
    if (reason == LWS_CALLBACK_USER) /* core/compat/lws_inspect.c */
        return check_arrived(wsi, p, in, size);
    return 0;
}
