/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/loop.c - the thread "probing/server": what libwebsockets says, deadlines, the end.
 *
 * Loop only, but for server_loop_new().  libwebsockets opens no socket of its own: descriptors are
 * made by us (close-on-exec, counted, remembered for a forked child) and given to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/server/internal.h"

#define HOUSEKEEPING_US 1000000   /* us: deadlines are kept to the second */
#define STOP_LOOK_US 2000         /* us: while the last answers go out */
#define STOP_NS (100 * NS_PER_MS) /* for clients to hang up that have got all */
#define UNSENT_NS (2 * NS_PER_S)  /* for those that take nothing, ... */
#define UNSENT_LOOKS 100          /* ... and turns of ours: a busy machine gives us few */
#define PING_S 60                 /* websocket: is the client still there? */
#define HANGUP_S 150
#define CONTEXTS 4     /* made until we know its pipe */
#define AGAIN_MS 1000  /* until what failed is tried once more */
#define REFUSED_MS 100 /* until we look again where the kernel refuses to wait for us */

static const lws_retry_bo_t pings = {
    .secs_since_valid_ping = PING_S,
    .secs_since_valid_hangup = HANGUP_S,
};

static void drop_fd(struct server *s, int fd)
{
    for (int i = 0; i < SERVER_FDS; i++)
        if (atomic_load_explicit(&s->fds[i], memory_order_relaxed) == fd)
            server_slot_drop(s, i);
}

static void look_at_ready(struct server *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    struct connection *p = s->ready;
    s->ready = NULL;
    (void)pthread_mutex_unlock(&s->mutex);
    while (p) {
        (void)pthread_mutex_lock(&s->mutex);
        struct connection *next = p->ready_next;
        p->ready = false;
        (void)pthread_mutex_unlock(&s->mutex);
        if (p->wsi) {
            if (p->kind == CONNECTION_WS && p->wait != WAIT_SENDING)
                server_connection_wait(p, WAIT_SENDING, s->stuck_s);
            if (p->kind != CONNECTION_WS || !server_ws_send(p))
                (void)lws_callback_on_writable(p->wsi);
        }
        server_connection_unref(p);
        p = next;
    }
}

/* We leave: streams end with a reason, and every connection is closed in the way of its protocol
 * once all that waits for it is sent.  Commands have ended by now, and their answers wait. */
static void say_goodbye(struct server *s)
{
    static const char why[] = SERVER_GOODBYE;
    for (struct connection *p = s->peers; p; p = p->next) {
        for (struct job *j = p->jobs; j; j = j->next)
            if (j->kind != JOB_RUN && !j->over)
                (void)server_connection_push(p, j, CHUNK_DONE, -ESHUTDOWN, why, sizeof(why) - 1,
                                             false);
        if (p->kind == CONNECTION_TEXT)
            (void)server_connection_push(p, NULL, CHUNK_ERROR, 0, why, sizeof(why) - 1, false);
        p->closing = true;
        if (p->wsi)
            (void)lws_callback_on_writable(p->wsi);
    }
}

static bool is_too_slow(struct connection *p, uint64_t now)
{
    (void)pthread_mutex_lock(&p->mutex);
    uint64_t since = p->slow_since_ns, lost = p->lost;
    (void)pthread_mutex_unlock(&p->mutex);
    if (!since || now < since + p->server->stuck_s * NS_PER_S)
        return false;
    host_log(p->server->host, PROBING_WARN,
             "%s was dropped: it lost %llu messages and did not "
             "catch up in %u s",
             p->who, (unsigned long long)lost, p->server->stuck_s);
    return true;
}

/* Streams and commands of a client that may not ask any more end, too. */
static void drop_refused(struct connection *p)
{
    int code;
    p->refused = server_connection_refusal(p);
    if (p->refused)
        server_connection_drop(p, server_connection_why(p, &code));
}

static void keep_house(lws_sorted_usec_list_t *timer)
{
    struct server *s = lws_container_of(timer, struct server, housekeeping);
    uint64_t now = clock_now();
    for (struct connection *p = s->peers, *next; p; p = next) {
        bool late = p->wsi && p->deadline_ns && now > p->deadline_ns;
        int code;
        next = p->next;
        if (late && p->told &&
            p->kind == CONNECTION_GREETING) /* it says nothing, so it is told now */
            server_connection_drop(p, server_connection_why(p, &code));
        else if (late || (p->wsi && is_too_slow(p, now)))
            lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
        else if (p->wsi && !p->told)
            drop_refused(p);
    }
    for (int i = 0; i < 2; i++)
        server_rest_over(s, i);
    bool stopping = atomic_load_explicit(&s->stop, memory_order_acquire);
    if (stopping)
        lws_sul_schedule(s->context, 0, timer, keep_house, STOP_LOOK_US);
    else if (s->peers || s->resting[0] || s->resting[1]) /* else libwebsockets' 30 s are enough */
        lws_sul_schedule(s->context, 0, timer, keep_house, HOUSEKEEPING_US);
}

void server_loop_rest(struct server *s)
{
    if (s->context && !s->resting[0] && !s->resting[1] &&
        !atomic_load_explicit(&s->stop, memory_order_acquire))
        lws_sul_schedule(s->context, 0, &s->housekeeping, keep_house, LWS_SET_TIMER_USEC_CANCEL);
}

/* ---- listeners ---- */

int server_loop_adopt(struct server *s, int which, int fd)
{
    lws_sock_file_fd_type desc = {.filefd = fd};
    (void)server_slot_take(s, fd);
    s->listen_fds[which] = fd;
    s->listeners[which] =
        lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, desc, NULL, NULL);
    if (s->listeners[which])
        return 0;
    drop_fd(s, fd);
    s->listen_fds[which] = -1;
    return err_set(-ENOMEM, "no memory for a listener");
}

static void close_listener(struct server *s, int which)
{
    if (!s->listeners[which])
        return;
    lws_set_timeout(s->listeners[which], PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
    s->listeners[which] = NULL;
    s->listen_fds[which] = -1;
    s->resting[which] = false;
}

static void apply_pending(struct server *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    int fd = s->pending_fd;
    bool pending = s->pending;
    s->pending = false;
    s->pending_fd = -1;
    (void)pthread_mutex_unlock(&s->mutex);
    if (!pending)
        return;
    close_listener(s, 1);
    if (fd >= 0)
        (void)server_loop_adopt(s, 1, fd);
    event_raise(&s->applied);
}

/* ---- what libwebsockets says ---- */

static int on_file(struct server *s, struct lws *wsi, enum lws_callback_reasons reason,
                   struct connection *p)
{
    if (reason == LWS_CALLBACK_RAW_RX_FILE) {
        if (p)
            return server_raw_readable(p);
        for (int i = 0; i < 2; i++)
            if (wsi == s->listeners[i])
                server_accept(s, i);
        /* One that is to come stays: who connects all the time would put it off for ever. */
        if ((s->peers || s->resting[0] || s->resting[1]) &&
            lws_dll2_is_detached(&s->housekeeping.list))
            lws_sul_schedule(s->context, 0, &s->housekeeping, keep_house, HOUSEKEEPING_US);
        return 0;
    }
    if (reason == LWS_CALLBACK_RAW_WRITEABLE_FILE)
        return p ? server_raw_writeable(p) : 0;
    for (int i = 0; i < 2; i++) /* LWS_CALLBACK_RAW_CLOSE_FILE */
        if (wsi == s->listeners[i]) {
            drop_fd(s, s->listen_fds[i]);
            s->listeners[i] = NULL;
        }
    if (p) {
        (void)shutdown(p->fd, SHUT_RDWR); /* a forked child may hold a copy */
        server_connection_lost(p);
        lws_set_opaque_user_data(wsi, NULL);
    }
    return 0;
}

static void on_adopted(struct server *s, struct lws *wsi)
{
    if (!s->adopting)
        return;
    lws_set_opaque_user_data(wsi, s->adopting);
    s->adopting->wsi = wsi;
}

static int on_lws(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                  size_t size)
{
    struct lws_context *context = wsi ? lws_get_context(wsi) : NULL;
    struct server *s = context ? lws_context_user(context) : NULL;
    struct connection *p = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    (void)user;
    if (!s)
        return 0;
    s->called = true;
    /* A list of hundreds, of which these matter: libwebsockets wants 0 for the rest. */
    if (reason == LWS_CALLBACK_EVENT_WAIT_CANCELLED) {
        apply_pending(s);
        look_at_ready(s);
    } else if (reason == LWS_CALLBACK_RAW_ADOPT_FILE ||
               reason == LWS_CALLBACK_SERVER_NEW_CLIENT_INSTANTIATED) {
        on_adopted(s, wsi);
    } else if (reason == LWS_CALLBACK_RAW_RX_FILE || reason == LWS_CALLBACK_RAW_CLOSE_FILE ||
               reason == LWS_CALLBACK_RAW_WRITEABLE_FILE) {
        return on_file(s, wsi, reason, p);
    } else if (reason == LWS_CALLBACK_ESTABLISHED) {
        if (p) {
            p->open = true;
            server_connection_wait(p, WAIT_NOTHING, 0);
        }
    } else if (reason == LWS_CALLBACK_CLOSED || reason == LWS_CALLBACK_CLOSED_HTTP ||
               reason == LWS_CALLBACK_WSI_DESTROY) {
        if (p)
            server_connection_lost(p);
        lws_set_opaque_user_data(wsi, NULL);
    } else if (reason == LWS_CALLBACK_ADD_HEADERS) {
        return server_ws_headers(s, wsi, in);
    } else if (reason == LWS_CALLBACK_HTTP) {
        return -1; /* nothing but our own handshake is ever given to it */
    } else if (p && p->kind == CONNECTION_WS) {
        int rc = server_ws_event(wsi, reason, p, in, size);
        p->open = p->open && rc == 0 && reason != LWS_CALLBACK_WS_PEER_INITIATED_CLOSE;
        return rc;
    }
    return 0;
}

static const struct lws_protocols protocols[] = {
    {"probing.1", on_lws, 0, 16384, 0, NULL, 0},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

static const char *const lws_fds[] = {"anon_inode:[eventfd]", "/dev/urandom"};
enum { LWS_FDS = sizeof(lws_fds) / sizeof(lws_fds[0]) };

/* Which of the kinds above a descriptor is, -1: none, or not open. */
static int fd_kind(int fd)
{
    char name[48], target[64];

    (void)snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    ssize_t got = readlink(name, target, sizeof(target) - 1);
    target[got > 0 ? got : 0] = 0;
    for (int kind = 0; kind < LWS_FDS; kind++)
        if (strncmp(target, lws_fds[kind], strlen(lws_fds[kind])) == 0)
            return kind;
    return -1;
}

static bool is_deaf(const struct server *s)
{
    int fd = atomic_load_explicit(&s->pipe_fd, memory_order_relaxed);
    return fd >= 0 && fd_kind(fd) != 0;
}

/* The program has closed descriptors that it did not open, as closefrom(3) does: nobody comes in
 * any more, or poll() comes back at once for ever. */
static bool is_closed(const struct server *s)
{
    if (!s->context)
        return true;
    for (int i = 0; i < 2; i++)
        if (s->listen_fds[i] >= 0 && !s->listeners[i]) /* it is libwebsockets that has closed it */
            return true;
    return !s->called && is_deaf(s);
}

static void close_all(struct server *s)
{
    for (int i = 0; i < 2; i++)
        close_listener(s, i);
    for (struct connection *p = s->peers, *next; p; p = next) {
        next = p->next;
        if (p->wsi)
            lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
    }
}

static void cancel_jobs(struct server *s)
{
    for (struct connection *p = s->peers; p; p = p->next)
        for (struct job *j = p->jobs; j; j = j->next)
            server_job_cancel(j);
}

static void end_loop(struct server *s)
{
    struct lws_context *context = s->context;
    if (!context)
        return;
    bool deaf = is_deaf(s);
    if (deaf)
        close_all(s);
    cancel_jobs(s); /* their timers first, they live in there */
    lws_sul_schedule(context, 0, &s->housekeeping, keep_house, LWS_SET_TIMER_USEC_CANCEL);
    (void)pthread_mutex_lock(&s->waking);
    s->context = NULL; /* from here on nobody wakes it */
    (void)pthread_mutex_unlock(&s->waking);
    /* Its pipe's connection was freed when poll() said that it is closed, and the end of the
     * context would read it (lws_pt_destroy() of libwebsockets 4.1.6, lib/core/context.c): its
     * memory stays.  A program does this once in its life. */
    if (!deaf)
        lws_context_destroy(context);
    look_at_ready(s); /* gives back the counts of those that were to be woken */
}

/* ---- the context ---- */

/* The loop's own descriptors are not told to us.  They are those that appeared, of these two
 * kinds, while the context was made; another thread's at the same moment would be taken for ours,
 * so with more than one of a kind none is remembered. */
static int find_fd(int kind, const unsigned char *before, size_t n)
{
    int found = -1;
    for (int fd = 0; fd < (int)n; fd++) {
        if (before[fd] & 1u << kind || fd_kind(fd) != kind)
            continue;
        if (found >= 0)
            return -1;
        found = fd;
    }
    return found;
}

int server_loop_new(struct server *s)
{
    unsigned char before[1024];
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .user = s,
        .fd_limit_per_thread = SERVER_FDS + 8,
        .max_http_header_pool = SERVER_CONNECTIONS,
        .timeout_secs = SERVER_GREETING_S,
        .retry_and_idle_policy = &pings,
        .pt_serv_buf_size = 16384,
    };
    for (int fd = 0; fd < (int)sizeof(before); fd++) {
        /* The kind, not only that it is open: the host may close it and lws get its number. */
        int kind = fcntl(fd, F_GETFD) != -1 ? fd_kind(fd) : -1;
        before[fd] = kind >= 0 ? (unsigned char)(1u << kind) : 0;
    }
    lws_set_log_level(0, NULL);
    struct lws_context *context = lws_create_context(&info);
    if (!context)
        return err_set(-ENOMEM, "libwebsockets gave no context; is the limit of open files "
                                "reached (ulimit -n)?");
    for (int kind = 0; kind < LWS_FDS; kind++) {
        int fd = find_fd(kind, before, sizeof(before));
        if (fd >= 0)
            (void)server_slot_take(s, fd);
        if (kind == 0)
            atomic_store_explicit(&s->pipe_fd, fd, memory_order_relaxed);
    }
    (void)pthread_mutex_lock(&s->waking);
    s->context = context;
    (void)pthread_mutex_unlock(&s->waking);
    s->vhost = lws_get_vhost_by_name(context, "default");
    return s->vhost ? 0 : err_set(-EIO, "libwebsockets gave no host");
}

/* Does an answer wait that has not gone out? */
static bool has_unsent(const struct server *s)
{
    for (struct connection *p = s->peers; p; p = p->next)
        if (p->wsi && (server_connection_waiting(p) || p->out.size > p->out_sent ||
                       (p->kind == CONNECTION_WS && lws_partial_buffered(p->wsi))))
            return true;
    return false;
}

/* The last answers go out however long the machine takes for it; clients that do not take theirs
 * hold nobody up for long. */
static bool is_stopped(const struct server *s, uint32_t looks)
{
    uint64_t now = clock_now();
    if (!s->peers)
        return true;
    if (has_unsent(s))
        return now > s->stop_ns + UNSENT_NS && looks > UNSENT_LOOKS;
    return now > s->stop_ns;
}

/* poll() takes no more descriptors than RLIMIT_NOFILE, which a process may lower while we wait for
 * more: libwebsockets would ask again at once, for ever, and have nothing to say. */
static void rest_if_refused(struct server *s)
{
    struct rlimit limit;
    uint64_t n = LWS_FDS; /* of its own; and listeners and peers */
    bool called = s->called;
    s->called = false;
    if (called || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        limit.rlim_cur > LWS_FDS + 2 + SERVER_FDS)
        return;
    for (int i = 0; i < 2; i++)
        n += s->listeners[i] != NULL;
    for (const struct connection *p = s->peers; p; p = p->next)
        n++;
    if (limit.rlim_cur < n)
        (void)poll(NULL, 0, REFUSED_MS);
}

/* Its pipe is not found while another thread makes an eventfd, as the control thread does now. */
static int new_context(struct server *s)
{
    int rc = -EAGAIN;
    for (int i = 0; i < CONTEXTS; i++) {
        end_loop(s);
        for (int k = 0; k < SERVER_FDS; k++)
            server_slot_drop(s, k);
        rc = server_loop_new(s);
        if (rc < 0 || atomic_load_explicit(&s->pipe_fd, memory_order_relaxed) >= 0)
            break;
    }
    return rc;
}

static int open_again(struct server *s)
{
    char host[sizeof(s->host_name)], address[sizeof(s->address)];
    int fd = -1;
    memcpy(address, s->address, sizeof(address));
    int rc = new_context(s);
    if (rc == 0 && s->socket_path && (rc = server_listen_unix(s->socket_path, &fd)) == 0)
        rc = server_loop_adopt(s, 0, fd);
    if (rc < 0 || !address[0])
        return rc;
    rc = server_listen_tcp(address, &fd, s->address, sizeof(s->address), host, sizeof(host));
    if (rc == 0)
        rc = server_loop_adopt(s, 1, fd);
    if (rc < 0)
        host_log(s->host, PROBING_ERROR, "%s", err_text());
    return 0; /* the local socket is there */
}

/* Both addresses again; who was connected connects again.  Without memory or descriptors it is
 * tried once more later. */
static void begin_again(struct server *s)
{
    end_loop(s);
    for (int i = 0; i < 2; i++) {
        s->listeners[i] = NULL;
        s->listen_fds[i] = -1;
        s->resting[i] = false;
    }
    s->called = false;
    if (open_again(s) == 0) {
        host_log(s->host, PROBING_WARN,
                 "the program closed descriptors that it had not opened; "
                 "the server has begun again");
        return;
    }
    end_loop(s);
    (void)poll(NULL, 0, AGAIN_MS);
}

void *server_loop(void *arg)
{
    struct server *s = arg;
    uint32_t looks = 0;
    for (;;) {
        if (is_closed(s)) {
            if (atomic_load_explicit(&s->stop, memory_order_acquire))
                break;
            begin_again(s);
            continue;
        }
        rest_if_refused(s);
        if (lws_service(s->context, 0) < 0)
            break;
        if (!atomic_load_explicit(&s->stop, memory_order_acquire))
            continue;
        if (s->stop_ns == 0) {
            s->stop_ns = clock_now() + STOP_NS;
            for (int i = 0; i < 2; i++)
                close_listener(s, i);
            say_goodbye(s);
            keep_house(&s->housekeeping);
        }
        if (is_stopped(s, looks++))
            break;
    }
    end_loop(s);
    return NULL;
}
