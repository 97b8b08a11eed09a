/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/server.h - the door: unix socket and (when asked) TCP; HTTP, websocket, plain text.
 *
 * One libwebsockets loop on one thread "probing/server".  Commands run on the host's workers and
 * their answers wait in bounded queues; other threads only wake the loop.  The protocol is written
 * down in docs/protocol.md.
 */
#ifndef CORE_SERVER_SERVER_H
#define CORE_SERVER_SERVER_H

#include <stdbool.h>
#include <stdint.h>

struct host;
struct probing_rows;
struct sql;
struct server;

struct server_options {
    struct host *host;
    struct sql *sql;
    const char *socket_path; /* unix socket to make, mode 0600; peers: our uid or root's */
    const char *listen;      /* "127.0.0.1:9922", ":9922", "[::1]:9922"; NULL or "": no TCP */
    const char *token;       /* needed on TCP; NULL: one is made and kept in `token_path` */
    const char *read_token;  /* gives everything but commands that write; NULL: one is made */
    const char *token_path;  /* 0600; the other is kept beside it, as `token_path`-read, and what is
                              * listened on as `token_path`-address */
    const char *version;
    uint32_t stuck_s; /* a client that takes nothing, or only loses, so long is dropped; 0: 60 */
};

/* Starts the thread. */
int server_new(const struct server_options *o, struct server **ret);
/* Sends what is queued (at most 50 ms), closes all, removes the socket.  Commands that still run
 * are cancelled and find their client gone, and end before host_free().  NULL is fine. */
void server_free(struct server *s);
/* Listen on another address now ("" to close TCP).                                 [worker] */
int server_listen(struct server *s, const char *listen);
/* To be called every few seconds: a server whose descriptors the program has closed wakes up and
 * begins again.  Gives whether it was so.                                                  [any] */
bool server_watch(struct server *s);
/* "127.0.0.1:9922" or "".  Borrowed until server_listen(). */
const char *server_address(struct server *s);

struct server_stats {
    uint32_t local, tcp;                        /* connections open now */
    uint32_t streams;                           /* different statements watched now */
    uint64_t queued;                            /* bytes of answers that wait for clients */
    uint64_t accepted, refused, requests, lost; /* ever; lost: messages of streams */
};
void server_stats(struct server *s, struct server_stats *ret); /* [any] */
/* A row for each client: who, transport, protocol, access, since, requests, bytes_in, bytes_out,
 * queued_bytes, dropped.                                                          [worker] */
int server_clients(struct server *s, struct probing_rows *out);

#endif
