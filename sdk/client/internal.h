/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/internal.h - what the files of this folder share: a connection, and messages over it.
 *
 *     client.c: requests and answers     wire.c: websocket messages     connect.c: shaking hands
 *     local_connect.c: the socket in a data directory, and who listens there
 *     find_core.c: the data directory of a process
 *     turn.c: one connection among many, for which nothing waits
 *     stream_end.c: why a stream has ended, or nobody listens
 */
#ifndef SDK_CLIENT_INTERNAL_H
#define SDK_CLIENT_INTERNAL_H

#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "sdk/client/door.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

#define CLIENT_GRACE_NS (2 * NS_PER_S)   /* for the process to say its last word */
#define CLIENT_MESSAGE_BYTES (64u << 20) /* longest message taken from the process */
#define CLIENT_TURN_BYTES (1u << 20)     /* the same, where there are many: it sends 64 KiB */
#define CLIENT_READ_BYTES (64u << 10)
#define CLIENT_HEAD_BYTES (64u << 10) /* of the answer to the handshake, with what came behind it */
#define CLIENT_SMALL_MAX 1000 /* pings and empty parts in a second; a process sends one a minute */
#define CLIENT_STARTED_MAX 64 /* requests at once: what the process allows */

enum { OP_MORE = 0, OP_TEXT = 1, OP_BINARY = 2, OP_CLOSE = 8, OP_PING = 9, OP_PONG = 10 };

struct probing_client {
    struct probing_client_options options;
    char error[1024];     /* the last sentence */
    char note[256];       /* of the last probing_client_run() */
    int fd;               /* -1: not connected */
    int note_fd;          /* client_connect_stream()'s; -1: none */
    bool told;            /* it has said why the stream has ended */
    char where[160];      /* for sentences: the path, or host:port */
    char build[96];       /* of the core, as it says; "": it does not */
    char directory[4096]; /* of the socket: what can still be asked when the process is dead */
    struct buf in;        /* received bytes */
    size_t in_used;
    struct buf message; /* of fragments, until the last */
    bool binary;        /* it is bytes: an id of 8, least first, then a piece of its answer */
    int64_t last_id;
    int64_t started[CLIENT_STARTED_MAX]; /* ids whose end has not come; 0: free */
    bool over;                           /* the connection is of no more use */
    enum probing_client_end end;         /* why, or why nobody listens, once it was looked for */
    struct client_process process;
    const volatile sig_atomic_t *stop; /* of the stream that is read, else of whoever connected */
    uint32_t mask;                     /* changes with every frame */
    uint64_t small_since_ns;           /* frames that bring nothing: since then, and how many */
    uint32_t n_small;
    /* These are for client_turn(), which alone sends and receives then: its state, unsent bytes. */
    enum { TURN_NONE, TURN_CONNECTS, TURN_GREETS, TURN_OPEN } turn;
    bool whole;            /* the message was handed on: the next one begins */
    bool early;            /* what is asked first goes with the handshake */
    struct buf hello, out; /* the handshake, and what follows its answer */
    size_t out_sent;
};

static inline uint64_t client_now_ns(void)
{
    struct timespec t = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- client.c ---- */

/* Keep a sentence as the error, without a newline at its end; gives `code`. */
int client_fail(struct probing_client *c, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- connect.c ---- */

uint64_t client_timeout(const struct probing_client *c); /* ns */
bool client_is_stopped(struct probing_client *c);        /* then the error is set */
/* The handshake's words; token: NULL, none.  -EINVAL: the token is not usable. */
int client_greeting(struct probing_client *c, const char *host, const char *token, struct buf *ret);
/* Is its answer there?  1: yes, and it is ours; 0: not whole yet (over: no more will come); -errno:
 * it is a refusal, or nothing of ours. */
int client_greeted(struct probing_client *c, bool over);
/* As if nothing had been tried: another address may be.  Gives rc. */
int client_give_up(struct probing_client *c, int rc);
/* The number that a TCP socket came to, as servers take it for a Host. */
#define CLIENT_PEER_BYTES 80
void client_name_peer(int fd, uint16_t port, char ret[CLIENT_PEER_BYTES]);
/* When to look at the flag again, at the latest: it may be raised just before a wait begins. */
uint64_t client_inspect(uint64_t deadline_ns);

/* ---- client.c, for turn.c ---- */

/* The message as an event; it lives in the arena.  1, 0: it is nothing for the caller, -errno. */
int client_read_event(struct probing_client *c, struct arena *a, struct probing_client_event *ret);

/* ---- stream_end.c ---- */

int client_gone(struct probing_client *c); /* -ECONNRESET, with what has become of the process */
/* The same of a socket at which nobody listens: gives `code`, and keeps the end in c->end. */
int client_nobody(struct probing_client *c, int code, const struct client_process *p);

/* ---- wire.c ---- */

/* Wait for the socket until `deadline_ns` (0: none).  1: ready, 0: too late, -EINTR: a signal. */
int client_wait(struct probing_client *c, int events, uint64_t deadline_ns);
int client_send(struct probing_client *c, const char *data, size_t size);
static inline bool client_stopped(const struct probing_client *c)
{
    return c->stop && *c->stop;
}
/* 1: something came, 0: too late, -EINTR, or -errno */
int client_receive(struct probing_client *c, uint64_t deadline_ns);
int client_send_frame(struct probing_client *c, int op, const char *data, size_t size);
/* Take a message from what was received, without waiting.  1: it is whole, 0: not yet, -errno. */
int client_take_message(struct probing_client *c);
/* The next whole message into c->message.  1, 0: too late, -EINTR, -errno. */
int client_next_message(struct probing_client *c, uint64_t deadline_ns);

#endif
