/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/server.c - the server's life: options and tokens, start, another address, the end.
 *
 * Called from outside, by the threads that server.h names; the loop is in loop.c.
 */
#include "core/server/server.h"

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
#include "core/guest/headroom_table.h"
#include "core/server/internal.h"

#define APPLY_NS (2 * NS_PER_S) /* for the loop to take a new listener */

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
    (void)pthread_mutex_destroy(&s->waking);
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

void server_wake(struct server *s)
{
    (void)pthread_mutex_lock(&s->waking);
    if (s->context)
        lws_cancel_service(s->context);
    (void)pthread_mutex_unlock(&s->waking);
}

/* ---- life ---- */

static char *copy_text(const char *text)
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
static uint32_t most_connections(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 4 >= SERVER_CONNECTIONS)
        return SERVER_CONNECTIONS;
    return limit.rlim_cur < 32 ? 8 : (uint32_t)limit.rlim_cur / 4;
}

static int make_server(const struct server_options *o, struct server **ret)
{
    struct server *s = calloc(1, sizeof(*s));
    if (!s)
        return err_set(-ENOMEM, "no memory for the server");
    if (event_init(&s->applied) != 0 || pthread_mutex_init(&s->mutex, NULL) != 0 ||
        pthread_mutex_init(&s->waking, NULL) != 0) {
        free(s);
        return err_set(-ENOMEM, "no memory for the server");
    }
    atomic_store_explicit(&s->refs, 1, memory_order_relaxed);
    for (int i = 0; i < SERVER_FDS; i++)
        atomic_store_explicit(&s->fds[i], -1, memory_order_relaxed);
    s->listen_fds[0] = s->listen_fds[1] = s->pending_fd = -1;
    atomic_store_explicit(&s->pipe_fd, -1, memory_order_relaxed);
    s->most_connections = most_connections();
    s->stuck_s = o->stuck_s ? o->stuck_s : SERVER_STUCK_S;
    s->host = o->host;
    s->sql = o->sql;
    s->socket_path = copy_text(o->socket_path);
    s->token_path = copy_text(o->token_path);
    s->version = copy_text(o->version ? o->version : "0");
    *ret = s;
    int rc = set_token(s, ACCESS_FULL, o->token);
    return rc == 0 ? set_token(s, ACCESS_READ, o->read_token) : rc;
}

static void undo_start(struct server *s)
{
    if (s->context)
        lws_context_destroy(s->context);
    s->context = NULL;
    if (s->socket_path)
        (void)unlink(s->socket_path);
    server_unref(s);
}

static int start_server(struct server *s, const char *listen_on)
{
    int fd = -1;
    int rc = s->socket_path ? server_listen_unix(s->socket_path, &fd) : 0;
    if (rc == 0)
        rc = server_loop_new(s);
    if (rc == 0 && fd >= 0)
        rc = server_loop_adopt(s, 0, fd);
    else if (fd >= 0)
        (void)close(fd);
    if (rc == 0)
        rc = thread_start(&s->thread, "probing/server", 0, server_loop, s);
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
        rc = start_server(s, o->listen);
    if (rc == 0) {
        *ret = s;
        return 0;
    }
    if (s->thread)
        server_free(s);
    else
        undo_start(s);
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

/* For those who look for the page and shall not wait for the process. */
static void keep_address(const struct server *s)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s-address", s->token_path ? s->token_path : "");
    if (s->token_path && file_write(AT_FDCWD, path, s->address, strlen(s->address), 0600) < 0)
        host_log(s->host, PROBING_WARN, "`list` and `ui` do not know the address: %s", err_text());
}

int server_listen(struct server *s, const char *listen_on)
{
    int fd = -1;
    char address[sizeof(s->address)] = "", host[sizeof(s->host_name)] = "";
    if (listen_on && *listen_on) {
        if (strcmp(listen_on, s->address) == 0)
            return 0;
        int rc = s->address[0] ? 0 : room_check_ours(&room_listen);
        if (rc == 0)
            rc = server_listen_tcp(listen_on, &fd, address, sizeof(address), host, sizeof(host));
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
    if (!event_wait(&s->applied, APPLY_NS))
        return err_set(-ETIMEDOUT, "the server thread did not take the new address in time");
    keep_address(s);
    return 0;
}

void server_stats(struct server *s, struct server_stats *ret)
{
    *ret = (struct server_stats){
        .local = server_get(s->n_local),
        .tcp = server_get(s->n_tcp),
        .streams = server_get(s->n_subscriptions),
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

bool server_watch(struct server *s)
{
    bool closed = file_is_closed(atomic_load_explicit(&s->pipe_fd, memory_order_relaxed));
    if (closed && s->socket_path)
        socket_knock(s->socket_path, SOCK_STREAM);
    return closed;
}

void server_free(struct server *s)
{
    if (!s)
        return;
    atomic_store_explicit(&s->stop, true, memory_order_release);
    server_wake(s);
    (void)server_watch(s);
    (void)pthread_join(s->thread, NULL);
    if (s->socket_path)
        (void)unlink(s->socket_path);
    server_unref(s); /* the last command that still runs frees the rest */
}
