/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/clients.c - who is connected: taken in, turned away, lost; and probing.clients.
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
#include "core/ring/table.h"
#include "core/server/inside.h"

void server_peer_lost(struct peer *p)
{
    struct server *s = p->server;
    struct peer **at = &s->peers;
    while (*at && *at != p)
        at = &(*at)->next;
    if (!*at)
        return;
    (void)pthread_mutex_lock(&s->mutex);
    *at = p->next;
    (void)pthread_mutex_unlock(&s->mutex);
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
        server_peer_lost(p);
        return;
    }
    server_peer_wait(p, WAIT_REQUEST, SERVER_GREETING_S);
}

void server_accept(struct server *s, int which)
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

/* ---- what is shown of them ---- */

void server_peer_speaks(struct peer *p, enum peer_kind kind)
{
    (void)pthread_mutex_lock(&p->mutex);
    p->kind = kind;
    (void)pthread_mutex_unlock(&p->mutex);
}

void server_peer_admit(struct peer *p, enum access access)
{
    if (p->local || p->access == access)
        return;
    (void)pthread_mutex_lock(&p->mutex);
    p->access = access;
    size_t n = strcspn(p->who, ",");
    (void)snprintf(p->who + n, sizeof(p->who) - n, ", %s token",
                   access == ACCESS_FULL ? "full" : "read-only");
    (void)pthread_mutex_unlock(&p->mutex);
}

static int show(struct peer *p, struct probing_rows *out)
{
    static const char *const kinds[] = {[PEER_GREETING] = NULL,
                                        [PEER_HTTP] = "http",
                                        [PEER_TEXT] = "text",
                                        [PEER_WS] = "websocket"};
    static const char *const accesses[] = {
        [ACCESS_NONE] = "none", [ACCESS_READ] = "read", [ACCESS_FULL] = "full"};
    char who[sizeof(p->who)];

    (void)pthread_mutex_lock(&p->mutex);
    memcpy(who, p->who, sizeof(who));
    enum peer_kind kind = p->kind;
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
    struct peer *all[SERVER_PEERS];
    uint32_t n = 0;
    int r = 0;

    (void)pthread_mutex_lock(&s->mutex);
    for (struct peer *p = s->peers; p && n < SERVER_PEERS; p = p->next) {
        server_peer_ref(p);
        all[n++] = p;
    }
    (void)pthread_mutex_unlock(&s->mutex);
    for (uint32_t i = 0; i < n; i++) {
        r = r == 0 ? show(all[i], out) : r;
        server_peer_unref(all[i]);
    }
    return r;
}
