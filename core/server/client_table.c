/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/client_table.c - who is connected: taken in, turned away, lost; and probing.clients.
 *
 * Loop only, but for the table, which a worker reads: the list and what it shows of a peer change
 * under locks.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/catalog/catalog.h"
#include "core/server/internal.h"

void server_connection_lost(struct connection *p)
{
    struct server *s = p->server;
    struct connection **at = &s->peers;
    while (*at && *at != p)
        at = &(*at)->next;
    if (!*at)
        return;
    (void)pthread_mutex_lock(&s->mutex);
    *at = p->next;
    (void)pthread_mutex_unlock(&s->mutex);
    server_add(*(p->local ? &s->n_local : &s->n_tcp), p->told ? 0 : -1u);
    s->n_told -= p->told ? 1 : 0;
    s->n_admitted -= !p->local && p->access ? 1 : 0;
    for (int i = 0; i < 2; i++) /* there is a place, and a descriptor */
        server_rest_over(s, i);
    server_slot_drop(s, p->slot);
    p->slot = -1;
    server_connection_gone(p);
    server_connection_unref(p);
    if (!s->peers)
        server_loop_rest(s);
}

void server_connection_drop(struct connection *p, const char *why)
{
    char text[384];
    int n = p->kind == CONNECTION_HTTP
                ? snprintf(text, sizeof(text),
                           "HTTP/1.1 %s\r\nContent-Type: application/json\r\n"
                           "Connection: close\r\n\r\n{\"error\":{\"code\":\"%s\","
                           "\"message\":\"%s\",\"hint\":\"\"}}\n",
                           p->refused ? "403 Forbidden" : "503 Service Unavailable",
                           p->refused ? "EACCES" : "EAGAIN", why)
                : snprintf(text, sizeof(text), "error: %s\n", why);
    if (p->kind != CONNECTION_WS && p->fd >= 0) /* as much of it as goes without waiting */
        (void)send(p->fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    lws_set_timeout(p->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
}

static bool is_stranger(const struct connection *p)
{
    return p->wsi && !p->local && !p->access;
}

/* Make room: of those who have shown no token the oldest goes, of the address that has most of
 * them, so that one who opens many takes places from himself.  false: there is none. */
static bool drop_stranger(struct server *s)
{
    struct connection *found = NULL;
    uint32_t most = 0;
    for (struct connection *p = s->peers; p; p = p->next) { /* the newest comes first */
        uint32_t n = 0;
        for (const struct connection *o = is_stranger(p) ? s->peers : NULL; o; o = o->next)
            n += is_stranger(o) && o->source == p->source;
        if (n > 0 && n >= most) {
            most = n;
            found = p;
        }
    }
    if (found) {
        server_add(s->refused, 1);
        server_connection_drop(found,
                               "other connections came before you showed a token; try again");
    }
    return found != NULL;
}

/* The same among those with a token: an HTTP connection that is kept and asks nothing. */
static bool drop_idle(struct server *s, const struct connection *but)
{
    struct connection *found = NULL;
    for (struct connection *p = s->peers; p; p = p->next)
        if (p != but && p->wsi && !p->local && p->kind == CONNECTION_HTTP && p->wait == WAIT_NEXT &&
            !p->jobs && (!found || p->deadline_ns < found->deadline_ns))
            found = p;
    if (found)
        lws_set_timeout(found->wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_SYNC);
    return found != NULL;
}

static bool make_room(struct server *s, bool local)
{
    uint32_t most =
        s->most_connections - s->most_connections * SERVER_CONNECTIONS_TOLD / SERVER_CONNECTIONS;
    uint32_t most_tcp = s->most_connections * SERVER_CONNECTIONS_TCP / SERVER_CONNECTIONS;
    uint32_t tcp = server_get(s->n_tcp), all = tcp + server_get(s->n_local);
    return (all < most && (local || tcp < most_tcp)) || drop_stranger(s);
}

static void welcome_client(struct server *s, int fd, bool local)
{
    struct connection *p = server_connection_new(s, fd, local);
    bool known = p && (!local || server_connection_identify(p));
    if (p && !local) {
        p->source = server_connection_name(fd, p->who, sizeof(p->who));
        server_keep_alive(fd);
    }
    if (!known) { /* another user takes no place of those who are told why */
        server_add(s->refused, p ? 0 : 1);
        server_connection_unref(p);
        (void)close(fd);
        return;
    }
    bool room = !p->refused && make_room(s, local);
    p->told = !room;
    s->n_told += room ? 0 : 1;
    server_add(*(local ? &s->n_local : &s->n_tcp), room ? 1 : 0);
    server_add(*(room ? &s->accepted : &s->refused), p->refused ? 0 : 1); /* counted already */
    p->slot = server_slot_take(s, fd);
    (void)pthread_mutex_lock(&s->mutex);
    p->next = s->peers;
    s->peers = p;
    (void)pthread_mutex_unlock(&s->mutex);
    s->adopting = p;
    lws_sock_file_fd_type desc = {.filefd = fd};
    struct lws *wsi =
        lws_adopt_descriptor_vhost(s->vhost, LWS_ADOPT_RAW_FILE_DESC, desc, NULL, NULL);
    s->adopting = NULL;
    if (!wsi) { /* it has closed the descriptor */
        server_connection_lost(p);
        return;
    }
    server_connection_wait(p, WAIT_REQUEST, room ? SERVER_GREETING_S : SERVER_LINGER_S);
}

void server_rest(struct server *s, int which)
{
    s->resting[which] = true; /* or poll() would come back at once, for ever */
    (void)lws_rx_flow_control(s->listeners[which], 0);
}

void server_rest_over(struct server *s, int which)
{
    if (!s->resting[which] || !s->listeners[which])
        return;
    s->resting[which] = false;
    (void)lws_rx_flow_control(s->listeners[which], 1);
}

/* A client too many is told so; while enough are being told, the others wait at the door. */
static bool may_come(const struct server *s)
{
    uint32_t most = s->most_connections * SERVER_CONNECTIONS_TOLD / SERVER_CONNECTIONS;
    return s->n_told < (most ? most : 1);
}

void server_accept(struct server *s, int which)
{
    for (int i = 0; i < 16; i++) { /* then the others have their turn */
        if (!may_come(s)) {
            server_rest(s, which);
            return;
        }
        int fd = accept4(s->listen_fds[which], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            welcome_client(s, fd, which == 0);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            server_rest(s, which);
        return;
    }
}

/* ---- what is shown of them ---- */

void server_connection_speaks(struct connection *p, enum connection_kind kind)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->kind = kind;
    (void)pthread_mutex_unlock(&p->mutex);
}

int server_connection_admit(struct connection *p, enum access access)
{
    struct server *s = p->server;
    if (p->local || p->access == access)
        return 0;
    if (!p->access) {
        uint32_t most = s->most_connections * SERVER_CONNECTIONS_ADMITTED / SERVER_CONNECTIONS;
        if (s->n_admitted >= most && !drop_idle(s, p))
            return err_set(-EAGAIN, SERVER_FULL);
        s->n_admitted++;
    }
    (void)pthread_mutex_lock(&p->mutex);
    p->access = access;
    size_t n = strcspn(p->who, ",");
    (void)snprintf(p->who + n, sizeof(p->who) - n, ", %s token",
                   access == ACCESS_FULL ? "full" : "read-only");
    (void)pthread_mutex_unlock(&p->mutex);
    return 0;
}

static int add_row(struct connection *p, struct probing_rows *out)
{
    static const char *const kinds[] = {[CONNECTION_GREETING] = NULL,
                                        [CONNECTION_HTTP] = "http",
                                        [CONNECTION_TEXT] = "text",
                                        [CONNECTION_WS] = "websocket"};
    static const char *const accesses[] = {
        [ACCESS_NONE] = "none", [ACCESS_READ] = "read", [ACCESS_FULL] = "full"};
    char who[sizeof(p->who)];

    (void)pthread_mutex_lock(&p->mutex);
    memcpy(who, p->who, sizeof(who));
    enum connection_kind kind = p->kind;
    enum access access = p->access;
    size_t queued = p->queued;
    uint64_t dropped = p->dropped;
    (void)pthread_mutex_unlock(&p->mutex);
    who[strcspn(who, ",")] = '\0';
    const union probing_cell row[] = {{.s = who},
                                      {.s = p->local ? "unix" : "tcp"},
                                      {.s = kinds[kind]},
                                      {.s = accesses[access]},
                                      {.i = (int64_t)p->since_ns},
                                      {.i = (int64_t)server_get(p->requests)},
                                      {.i = (int64_t)server_get(p->bytes_in)},
                                      {.i = (int64_t)server_get(p->bytes_out)},
                                      {.i = (int64_t)queued},
                                      {.i = (int64_t)dropped}};
    return out->row(out, row, sizeof(row) / sizeof(row[0]));
}

int server_clients(struct server *s, struct probing_rows *out)
{
    struct connection *all[SERVER_CONNECTIONS];
    uint32_t n = 0;
    int rc = 0;

    (void)pthread_mutex_lock(&s->mutex);
    for (struct connection *p = s->peers; p && n < SERVER_CONNECTIONS; p = p->next) {
        server_connection_ref(p);
        all[n++] = p;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    for (uint32_t i = 0; i < n; i++) {
        rc = rc == 0 ? add_row(all[i], out) : rc;
        server_connection_unref(all[i]);
    }
    return rc;
}
