/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/server.c - the loop: listeners, new connections, deadlines, and the server's life.
 *
 * server_new(), server_listen() and server_free() are called from outside; everything else here
 * runs on the thread "probing/server".  libwebsockets opens no socket of its own: descriptors are
 * made here (close-on-exec, counted, remembered for a forked child) and given to it.
 */
#include "core/server/server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/text.h"
#include "core/server/inside.h"

#define HOUSEKEEPING_US 1000000        /* us: deadlines are kept to the second */
#define STOP_LOOK_US 2000              /* us: while the last answers go out */
#define STOP_NS (100 * NS_PER_MS)      /* how long they may take, and clients to hang up */
#define APPLY_NS (2 * NS_PER_S)        /* for the loop to take a new listener */
#define PING_S 60                      /* websocket: is the client still there? */
#define HANGUP_S 150

static const lws_retry_bo_t pings = {
    .secs_since_valid_ping = PING_S,
    .secs_since_valid_hangup = HANGUP_S,
};

/* ---- counts and descriptors ---- */

void server_ref(struct server *s)
{
    (void)atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
}

void server_unref(struct server *s)
{
    if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1)
        return;
    event_done(&s->applied);
    (void)pthread_mutex_destroy(&s->mutex);
    free(s->socket_path);
    free(s->token_path);
    free(s->version);
    free(s);
}

int server_slot_take(struct server *s, int fd)
{
    for (int i = 0; i < SERVER_FDS; i++) {
        int none = -1;
        if (atomic_compare_exchange_strong_explicit(&s->fds[i], &none, fd, memory_order_release,
                                                    memory_order_relaxed))
            return i;
    }
    return -EMFILE;
}

void server_slot_drop(struct server *s, int slot)
{
    if (slot >= 0)
        atomic_store_explicit(&s->fds[slot], -1, memory_order_release);
}

static void drop_fd(struct server *s, int fd)
{
    for (int i = 0; i < SERVER_FDS; i++)
        if (atomic_load_explicit(&s->fds[i], memory_order_relaxed) == fd)
            server_slot_drop(s, i);
}

void server_wake(struct server *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    if (s->context)
        lws_cancel_service(s->context);
    (void)pthread_mutex_unlock(&s->mutex);
}

/* ---- connections ---- */

void server_peer_lost(struct peer *p)
{
    struct server *s = p->server;
    struct peer **at = &s->peers;
    while (*at && *at != p)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = p->next;
    server_add(*(p->local ? &s->n_local : &s->n_tcp), -1u);
    server_slot_drop(s, p->slot);
    p->slot = -1;
    server_peer_gone(p);
    server_peer_unref(p);
}

static void turn_away(int fd)
{
    static const char busy[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Connection: close\r\n\r\n{\"error\":{\"code\":\"EAGAIN\",\"message\":\"too many "
        "connections are open already\",\"hint\":\"close one\"}}\n";
    (void)send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)close(fd);
}

static void welcome(struct server *s, int fd, bool local)
{
    char who[sizeof(((struct peer *)0)->who)];
    if (!local) {
        server_peer_name(fd, who, sizeof(who));
        server_keep_alive(fd);
    } else if (!server_peer_allowed(fd, who, sizeof(who))) {
        (void)close(fd);
        return;
    }
    uint32_t most_tcp = s->most_peers * SERVER_PEERS_TCP / SERVER_PEERS;
    uint32_t tcp = server_get(s->n_tcp), all = tcp + server_get(s->n_local);
    bool room = all < s->most_peers && (local || tcp < most_tcp);
    struct peer *p = room ? server_peer_new(s, fd, local) : NULL;
    if (!p) {
        server_add(s->refused, 1);
        turn_away(fd);
        return;
    }
    memcpy(p->who, who, sizeof(who));
    server_add(*(local ? &s->n_local : &s->n_tcp), 1);
    server_add(s->accepted, 1);
    p->slot = server_slot_take(s, fd);
    p->next = s->peers;
    s->peers = p;
    s->adopting = p;
    lws_sock_file_fd_type desc = { .filefd = fd };
    struct lws *wsi = lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, desc, NULL,
                                                 NULL);
    s->adopting = NULL;
    if (!wsi) { /* it has closed the descriptor */
        server_peer_lost(p);
        return;
    }
    server_peer_wait(p, WAIT_REQUEST, SERVER_GREETING_S);
}

static void accept_all(struct server *s, int which)
{
    for (int i = 0; i < 16; i++) { /* then the others have their turn */
        int fd = accept4(s->listen_fds[which], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            welcome(s, fd, which == 0);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            s->resting[which] = true; /* or poll() would come back at once, for ever */
            (void)lws_rx_flow_control(s->listeners[which], 0);
        }
        return;
    }
}

static void look_at_ready(struct server *s)
{
    (void)pthread_mutex_lock(&s->mutex);
    struct peer *p = s->ready;
    s->ready = NULL;
    (void)pthread_mutex_unlock(&s->mutex);
    while (p) {
        (void)pthread_mutex_lock(&s->mutex);
        struct peer *next = p->ready_next;
        p->ready = false;
        (void)pthread_mutex_unlock(&s->mutex);
        if (p->wsi) {
            if (p->kind == PEER_WS && p->wait != WAIT_SENDING)
                server_peer_wait(p, WAIT_SENDING, s->stuck_s);
            (void)lws_callback_on_writable(p->wsi);
        }
        server_peer_unref(p);
        p = next;
    }
}

/* We leave: streams end with a reason, and every connection is closed in the way of its protocol
 * once all that waits for it is sent.  Commands have ended by now, and their answers wait. */
static void say_goodbye(struct server *s)
{
    static const char why[] = SERVER_GOODBYE;
    for (struct peer *p = s->peers; p; p = p->next) {
        for (struct job *j = p->jobs; j; j = j->next)
            if (j->kind != JOB_RUN && !j->over)
                (void)server_peer_push(p, j, PIECE_DONE, -ESHUTDOWN, why, sizeof(why) - 1, false);
        if (p->kind == PEER_TEXT)
            (void)server_peer_push(p, NULL, PIECE_ERROR, 0, why, sizeof(why) - 1, false);
        p->closing = true;
        if (p->wsi)
            (void)lws_callback_on_writable(p->wsi);
    }
}

static bool is_too_slow(struct peer *p, uint64_t now)
{
    (void)pthread_mutex_lock(&p->mutex);
    uint64_t since = p->slow_since_ns, lost = p->lost;
    (void)pthread_mutex_unlock(&p->mutex);
    if (!since || now < since + p->server->stuck_s * NS_PER_S)
        return false;
    host_log(p->server->host, PROBING_WARN, "%s was dropped: it lost %llu messages and did not "
             "catch up in %u s", p->who, (unsigned long long)lost, p->server->stuck_s);
    return true;
}

static void housekeeping(lws_sorted_usec_list_t *timer)
{
    struct server *s = lws_container_of(timer, struct server, housekeeping);
    uint64_t now = clock_now();
    for (struct peer *p = s->peers; p; p = p->next)
        if (p->wsi && ((p->deadline_ns && now > p->deadline_ns) || is_too_slow(p, now)))
            lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
    for (int i = 0; i < 2; i++)
        if (s->resting[i] && s->listeners[i]) {
            s->resting[i] = false;
            (void)lws_rx_flow_control(s->listeners[i], 1);
        }
    bool stopping = atomic_load_explicit(&s->stop, memory_order_acquire);
    if (stopping)
        lws_sul_schedule(s->context, 0, timer, housekeeping, STOP_LOOK_US);
    else if (s->peers || s->resting[0] || s->resting[1]) /* an idle server never wakes up */
        lws_sul_schedule(s->context, 0, timer, housekeeping, HOUSEKEEPING_US);
}

/* ---- listeners ---- */

static int adopt_listener(struct server *s, int which, int fd)
{
    lws_sock_file_fd_type desc = { .filefd = fd };
    (void)server_slot_take(s, fd);
    s->listen_fds[which] = fd;
    s->listeners[which] = lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, desc, NULL,
                                                     NULL);
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
        (void)adopt_listener(s, 1, fd);
    event_raise(&s->applied);
}

/* ---- what libwebsockets says ---- */

static int on_file(struct server *s, struct lws *wsi, enum lws_callback_reasons reason,
                   struct peer *p)
{
    if (reason == LWS_CALLBACK_RAW_RX_FILE) {
        if (p)
            return server_raw_readable(p);
        for (int i = 0; i < 2; i++)
            if (wsi == s->listeners[i])
                accept_all(s, i);
        if (s->peers)
            lws_sul_schedule(s->context, 0, &s->housekeeping, housekeeping, HOUSEKEEPING_US);
        return 0;
    }
    if (reason == LWS_CALLBACK_RAW_WRITEABLE_FILE)
        return p ? server_raw_writeable(p) : 0;
    for (int i = 0; i < 2; i++) /* LWS_CALLBACK_RAW_CLOSE_FILE */
        if (wsi == s->listeners[i])
            drop_fd(s, s->listen_fds[i]);
    if (p) {
        (void)shutdown(p->fd, SHUT_RDWR); /* a forked child may hold a copy */
        server_peer_lost(p);
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
    struct peer *p = wsi ? lws_get_opaque_user_data(wsi) : NULL;
    (void)user;
    if (!s)
        return 0;
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
        if (p)
            server_peer_wait(p, WAIT_NOTHING, 0);
    } else if (reason == LWS_CALLBACK_CLOSED || reason == LWS_CALLBACK_CLOSED_HTTP ||
               reason == LWS_CALLBACK_WSI_DESTROY) {
        if (p)
            server_peer_lost(p);
        lws_set_opaque_user_data(wsi, NULL);
    } else if (reason == LWS_CALLBACK_HTTP) {
        return -1; /* nothing but our own handshake is ever given to it */
    } else if (p && p->kind == PEER_WS) {
        return server_ws_event(wsi, reason, p, in, size);
    }
    return 0;
}

static const struct lws_protocols protocols[] = {
    { "probing.1", on_lws, 0, 16384, 0, NULL, 0 },
    { NULL, NULL, 0, 0, 0, NULL, 0 },
};

static void end(struct server *s)
{
    struct lws_context *context = s->context;
    for (struct peer *p = s->peers; p; p = p->next) /* their timers first, they live in there */
        for (struct job *j = p->jobs; j; j = j->next)
            server_job_cancel(j);
    lws_sul_schedule(context, 0, &s->housekeeping, housekeeping, LWS_SET_TIMER_USEC_CANCEL);
    (void)pthread_mutex_lock(&s->mutex);
    s->context = NULL; /* from here on nobody wakes it */
    (void)pthread_mutex_unlock(&s->mutex);
    lws_context_destroy(context);
    look_at_ready(s); /* gives back the counts of those that were to be woken */
}

static void *run(void *arg)
{
    struct server *s = arg;
    while (lws_service(s->context, 0) >= 0) {
        if (!atomic_load_explicit(&s->stop, memory_order_acquire))
            continue;
        if (s->stop_ns == 0) {
            s->stop_ns = clock_now() + STOP_NS;
            for (int i = 0; i < 2; i++)
                close_listener(s, i);
            say_goodbye(s);
            housekeeping(&s->housekeeping);
        }
        if (!s->peers || clock_now() > s->stop_ns)
            break;
    }
    end(s);
    return NULL;
}

/* ---- life ---- */

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

static int make_context(struct server *s)
{
    unsigned char before[1024];
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = protocols,
        .gid = (gid_t)-1,
        .uid = (uid_t)-1,
        .user = s,
        .fd_limit_per_thread = SERVER_FDS + 8,
        .max_http_header_pool = SERVER_PEERS,
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
    }
    s->context = context;
    s->vhost = lws_get_vhost_by_name(context, "default");
    return s->vhost ? 0 : err_set(-EIO, "libwebsockets gave no host");
}

static char *copy(const char *text)
{
    return text && *text ? strdup(text) : NULL;
}

static int set_token(struct server *s, enum access access, const char *token)
{
    if (!token)
        return 0;
    size_t n = strlen(token);
    if (n == 0 || n >= SERVER_TOKEN_BYTES)
        return err_set(-EINVAL, "a token is empty or longer than %d bytes", SERVER_TOKEN_BYTES - 1);
    for (size_t i = 0; i < n; i++) /* it goes into a header and a cookie */
        if (token[i] <= ' ' || token[i] > '~' || strchr("\",;\\", token[i]))
            return err_set(-EINVAL, "a token has no blanks, quotes, commas, semicolons, "
                                    "backslashes or bytes beyond ASCII");
    if (access == ACCESS_READ && strcmp(token, s->tokens[ACCESS_FULL]) == 0)
        return err_set(-EINVAL, "the read-only token is the same as the full one");
    memcpy(s->tokens[access], token, n + 1);
    return 0;
}

/* Our share of the descriptors that the process may open: it is the host that must not run out. */
static uint32_t most_peers(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 4 >= SERVER_PEERS)
        return SERVER_PEERS;
    return limit.rlim_cur < 32 ? 8 : (uint32_t)limit.rlim_cur / 4;
}

static int make_server(const struct server_options *o, struct server **ret)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory for the server");
    if (event_init(&s->applied) != 0 || pthread_mutex_init(&s->mutex, NULL) != 0) {
        free(s);
        return err_set(-ENOMEM, "no memory for the server");
    }
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    for (int i = 0; i < SERVER_FDS; i++)
        atomic_store_explicit(&s->fds[i], -1, memory_order_relaxed);
    s->listen_fds[0] = s->listen_fds[1] = s->pending_fd = -1;
    s->most_peers = most_peers();
    s->stuck_s = o->stuck_s ? o->stuck_s : SERVER_STUCK_S;
    s->host = o->host;
    s->sql = o->sql;
    s->socket_path = copy(o->socket_path);
    s->token_path = copy(o->token_path);
    s->version = copy(o->version ? o->version : "0");
    *ret = s;
    int rc = set_token(s, ACCESS_FULL, o->token);
    return rc == 0 ? set_token(s, ACCESS_READ, o->read_token) : rc;
}

static void undo(struct server *s)
{
    if (s->context)
        lws_context_destroy(s->context);
    s->context = NULL;
    if (s->socket_path)
        (void)unlink(s->socket_path);
    server_unref(s);
}

static int start(struct server *s, const char *listen_on)
{
    int fd = -1;
    int rc = s->socket_path ? server_listen_unix(s->socket_path, &fd) : 0;
    if (rc == 0)
        rc = make_context(s);
    if (rc == 0 && fd >= 0)
        rc = adopt_listener(s, 0, fd);
    else if (fd >= 0)
        (void)close(fd);
    if (rc == 0) {
        (void)server_watch_command_add(s->host); /* -EEXIST: of a server before this one */
        rc = thread_start(&s->thread, "probing/server", 0, run, s);
    }
    if (rc != 0)
        return rc;
    if (listen_on && *listen_on)
        rc = server_listen(s, listen_on);
    return rc;
}

int server_new(const struct server_options *o, struct server **ret)
{
    struct server *s = NULL;
    int rc = make_server(o, &s);
    if (!s)
        return rc;
    if (rc == 0)
        rc = start(s, o->listen);
    if (rc == 0) {
        *ret = s;
        return 0;
    }
    if (s->thread)
        server_free(s);
    else
        undo(s);
    return rc;
}

static int ensure_token(struct server *s, enum access access)
{
    char token[SERVER_TOKEN_BYTES], path[PATH_MAX];
    int rc = 0;
    if (s->tokens[access][0])
        memcpy(token, s->tokens[access], sizeof(token));
    else
        rc = server_token_make(token, sizeof(token));
    (void)snprintf(path, sizeof(path), "%s%s", s->token_path ? s->token_path : "",
                   access == ACCESS_READ ? "-read" : "");
    if (rc == 0 && s->token_path)
        rc = file_write(AT_FDCWD, path, token, strlen(token), 0600);
    if (rc != 0)
        return rc;
    (void)pthread_mutex_lock(&s->mutex);
    memcpy(s->tokens[access], token, sizeof(token));
    (void)pthread_mutex_unlock(&s->mutex);
    return 0;
}

int server_listen(struct server *s, const char *listen_on)
{
    int fd = -1;
    char address[sizeof(s->address)] = "", host[sizeof(s->host_name)] = "";
    if (listen_on && *listen_on) {
        if (strcmp(listen_on, s->address) == 0)
            return 0;
        int rc = server_listen_tcp(listen_on, &fd, address, sizeof(address), host, sizeof(host));
        if (rc == 0)
            rc = ensure_token(s, ACCESS_READ);
        if (rc == 0) /* last: who waits for this file finds the other */
            rc = ensure_token(s, ACCESS_FULL);
        if (rc != 0) {
            if (fd >= 0)
                (void)close(fd);
            return rc;
        }
    }
    (void)pthread_mutex_lock(&s->mutex);
    if (s->pending_fd >= 0)
        (void)close(s->pending_fd);
    s->pending_fd = fd;
    s->pending = true;
    memcpy(s->host_name, host, sizeof(host));
    (void)pthread_mutex_unlock(&s->mutex);
    memcpy(s->address, address, sizeof(address));
    server_wake(s);
    return event_wait(&s->applied, APPLY_NS)
               ? 0
               : err_set(-ETIMEDOUT, "the server thread did not take the new address in time");
}

void server_stats(struct server *s, struct server_stats *ret)
{
    *ret = (struct server_stats){
        .local = server_get(s->n_local),
        .tcp = server_get(s->n_tcp),
        .streams = server_get(s->n_feeds),
        .queued = server_get(s->queued),
        .accepted = server_get(s->accepted),
        .refused = server_get(s->refused),
        .requests = server_get(s->requests),
        .lost = server_get(s->lost),
    };
}

const char *server_address(struct server *s)
{
    return s->address;
}

void server_free(struct server *s)
{
    if (!s)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    server_wake(s);
    (void)pthread_join(s->thread, NULL);
    if (s->socket_path)
        (void)unlink(s->socket_path);
    server_unref(s); /* the last command that still runs frees the rest */
}

void server_disable_in_child(struct server *s)
{
    for (int i = 0; s && i < SERVER_FDS; i++) {
        int fd = atomic_load_explicit(&s->fds[i], memory_order_acquire);
        if (fd >= 0)
            (void)close(fd);
    }
}
