/* SPDX-License-Identifier: Apache-2.0
 *
 * core/server/internal.h - what the files of this folder share: server, peer, job and piece.
 *
 * Private to core/server.  Two kinds of threads come in: the loop "probing/server", which owns
 * every socket, and others (workers, control), which only put pieces into a peer's queue and wake
 * the loop.
 *
 *     worker: command's write() -> piece -> peer's queue -> loop: encode for the peer -> socket
 *
 * Counts keep everything alive that somebody may still touch: a job holds its peer, a peer its
 * server, so a command that ends after server_free() finds memory, not a hole.
 * Order of locks: a peer's mutex and the server's mutex are never held together.
 */
#ifndef CORE_SERVER_INTERNAL_H
#define CORE_SERVER_INTERNAL_H

#include <libwebsockets.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/guest/thread.h"
#include "core/plugin_host/plugin_host.h"
#include "core/server/server.h"
#include "core/sql/sql.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/proc/identity.h"

#define SERVER_CONNECTIONS 256          /* connections at once */
#define SERVER_CONNECTIONS_TCP 192      /* of these by TCP: the owner's socket stays free */
#define SERVER_CONNECTIONS_ADMITTED 160 /* of these with a token: strangers may come to show one */
#define SERVER_CONNECTIONS_TOLD 16      /* of all: too many, and only told so */
#define SERVER_FULL "too many connections are open already; close one"
#define SERVER_FDS (SERVER_CONNECTIONS + 8) /* with the listeners and the loop's own */
#define SERVER_QUEUE_BYTES (4u << 20)       /* answers that wait for one peer */
#define SERVER_QUEUES_BYTES (64u << 20) /* and for all; above it a peer has a 16th of the above */
#define SERVER_SUBSCRIPTIONS 128        /* different continuous queries at once */
#define SERVER_SUBSCRIPTIONS_TCP 96     /* of these begun by TCP: the owner's socket stays free */
#define SERVER_SUBSCRIPTIONS_CONNECTION 32 /* and by one connection */
#define SERVER_MESSAGE_BYTES (4u << 20)    /* one websocket message from a client */
#define SERVER_BODY_BYTES (1u << 20)       /* one HTTP body, one line of text */
#define SERVER_HEADER_BYTES (16u << 10)    /* request line and headers */
#define SERVER_HOLD_BYTES (64u << 10)      /* HTTP: answer kept back until its status is known */
#define SERVER_CHUNK_BYTES (64u << 10)     /* one websocket message or HTTP chunk to a client */
#define SERVER_TICK_BYTES (4u << 20)       /* answer of one tick of a query that is run afresh */
#define SERVER_JOBS 64                     /* at once on one connection */
#define SERVER_TOKEN_BYTES 128             /* longest token, NUL included */
#define SERVER_CONNECTION_RATE 200         /* requests a second on one TCP connection */
#define SERVER_TCP_RATE 2000               /* and on all of them together; bursts twice as long */
#define SERVER_SMALL_RATE 100              /* pings, pongs, empty and tiny parts, a second */
#define SERVER_PORT 9922                   /* when an address names none */
#define SERVER_GREETING_S 10               /* to finish a first line or a request */
#define SERVER_LINGER_S 2                  /* to read our last words and hang up */
#define SERVER_IDLE_S 120                  /* HTTP: kept open between requests */
#define SERVER_TEXT_IDLE_S 3600            /* text: a person may think that long */
#define SERVER_STUCK_S 60                  /* nothing could be sent, or a stream has only lost */
#define SERVER_GOODBYE "the core is leaving this process (eject)" /* <= 123 bytes: a close frame */

enum connection_kind { CONNECTION_GREETING, CONNECTION_HTTP, CONNECTION_TEXT, CONNECTION_WS };
enum access { ACCESS_NONE, ACCESS_READ, ACCESS_FULL }; /* READ: no command with PROBING_WRITES */
enum connection_wait { WAIT_NOTHING, WAIT_REQUEST, WAIT_NEXT, WAIT_SENDING };
enum job_kind { JOB_RUN, JOB_WATCH, JOB_FOLLOW };
enum chunk_kind {
    CHUNK_DATA,  /* text of an answer */
    CHUNK_EVENT, /* a whole JSON value with its topic: made into a message as it is */
    CHUNK_DONE,  /* the job's end: status, and in data the reason or a note */
    CHUNK_ERROR, /* belongs to no job: data is the sentence */
};

struct query_subscription;
struct connection;
struct server;

struct rate { /* a token bucket, as the time at which it would be full again */
    uint64_t full_ns;
};

struct frames { /* where in the stream of a websocket client's frames we are */
    unsigned char head[14];
    uint8_t have;  /* bytes of the head */
    uint64_t left; /* bytes of the payload that have not come */
    struct rate small;
};

/* A text that a stream sends to all who follow it: made once, as a JSON string with its quotes. */
struct shared {
    _Atomic uint32_t refs;
    struct server *server; /* whose memory it counts as, once; lives longer */
    bool whole;            /* it is all there is now, in place of what came before */
    size_t size;
    char data[];
};

struct chunk {
    struct chunk *next;
    struct job *job; /* counted; NULL: CHUNK_ERROR */
    enum chunk_kind kind;
    int status;
    bool droppable;
    size_t size, capacity; /* capacity: what it counts for in the queue */
    struct shared *shared; /* counted; instead of data */
    char data[];
};

struct job {
    struct probing_reply reply;
    _Atomic uint32_t refs;
    struct connection *peer; /* counted */
    enum job_kind kind;
    int64_t id;          /* the client's word for it; websocket only */
    struct job *next;    /* loop only: the peer's list of what runs */
    bool over;           /* loop only: done was sent, or nobody waits for it */
    _Atomic bool ended;  /* run_done() was here: it comes once, whoever refuses */
    uint64_t dropped;    /* lock: peer->mutex; pieces this client lost and was not told of yet */
    uint64_t blocked_ns; /* its worker only: how long it has waited for its client, in all */
    bool bytes;          /* its answer goes in binary messages */
    char tail[4];        /* loop only: first bytes of a character whose rest has not come */
    uint32_t tail_size;  /* loop only */
    /* JOB_RUN over HTTP; loop only */
    struct buf held; /* redact.c: the worker's */
    struct buf hold;
    bool streaming;
    struct squeeze *squeeze; /* of a stream that the client wants compressed */
    size_t hint;             /* where what to do begins in the text of its CHUNK_DONE; 0: nowhere */
    bool shown;              /* text: something was written */
    bool line_start;         /* text: the next byte begins a line */
    /* JOB_WATCH */
    struct query_subscription *feed; /* loop only; counted */
    struct job *subscription_next;   /* lock: the feed's mutex */
    /* JOB_FOLLOW */
    int subscription;
};

struct connection {
    struct server *server; /* counted */
    _Atomic uint32_t refs;
    struct connection *next;              /* loop only: server->peers */
    struct lws *wsi;                      /* loop only; NULL when closed */
    int slot;                             /* in server->fds */
    int fd;                               /* loop only; -1 once libwebsockets speaks for it */
    uint64_t since_ns;                    /* clock_now() when it came */
    struct host_client commands, streams; /* the host's, while a job of ours is */
    _Atomic uint64_t requests, bytes_in, bytes_out; /* counted on the loop */
    /* Changed on the loop under the mutex, which others need to read them. */
    enum connection_kind kind;
    enum access access;            /* FULL by the unix socket; else what its token gives */
    bool local;                    /* came by the unix socket */
    struct identity_peer peer;     /* of the unix socket: who connected */
    enum identity_refusal refused; /* loop only: why it may not ask; a reason: it is told so */
    bool told;        /* loop only: it is turned away, and told so, whatever it asks: refused, or
                             one too many */
    uint64_t source;  /* of TCP: whose address it is; IPv6: the network's half of it */
    char who[96];     /* for the log: "pid 12 of uid 0", "127.0.0.1:4711, full token" */
    struct rate rate; /* loop only; TCP */
    struct frames frames; /* loop only; websocket */
    bool eof;             /* it will send no more */
    bool writing;         /* loop: inside server_raw_writeable() */
    bool open;            /* loop only; websocket: the handshake is over, and nothing said since
                             that ends it */
    bool closing;         /* close when all is sent */
    bool lingering;       /* all is sent: what still comes is thrown away until it hangs up */
    bool keep_alive, old_http, gzip, is_head; /* of the request that is answered */
    const char *allowed;                      /* for a 405: the methods there are */
    enum access cookie;                       /* NONE: none is to be set */
    struct buf in;                            /* loop only: received, not yet used */
    struct buf out;      /* loop only: encoded, LWS_PRE free bytes first for a websocket */
    struct buf together; /* loop only; websocket: frames of short messages, to be sent at once */
    size_t out_sent;
    enum connection_wait wait; /* loop only: what the deadline is for */
    uint64_t deadline_ns;      /* loop only, clock_now(); 0: none */
    bool continued;            /* "100 Continue" was sent for this request */
    const char *content_type;
    const char *policy; /* what the answer may do in a browser; NULL: as our own page */
    struct job *jobs;   /* loop only */
    uint32_t n_jobs;
    pthread_mutex_t mutex;
    pthread_cond_t space;      /* on CLOCK_MONOTONIC: the queue got shorter, or the peer is gone */
    struct chunk *head, *tail; /* lock: mutex */
    size_t queued;             /* lock: mutex; bytes */
    uint64_t slow_since_ns;    /* lock: mutex; it loses messages since then; 0: it keeps up */
    uint64_t lost, dropped;    /* lock: mutex; messages: since it is slow, and ever */
    bool gone;                 /* lock: mutex */
    struct connection *ready_next; /* lock: server->mutex */
    bool ready;                    /* lock: server->mutex; on the ready list, which holds a count */
};

struct server {
    _Atomic uint32_t refs;
    struct host *host;
    struct sql *sql;
    char *socket_path, *token_path, *version;
    /* By access; lock: mutex until the first TCP listener, then constant. */
    char tokens[ACCESS_FULL + 1][SERVER_TOKEN_BYTES];
    struct lws_context *context; /* lock: waking when another thread uses it; NULL: ended */
    struct lws_vhost *vhost;
    pthread_t thread;
    _Atomic bool stop;
    pthread_mutex_t mutex;
    pthread_mutex_t waking;          /* nothing that the loop wants as soon as it is awake */
    struct connection *ready;        /* lock: mutex */
    int pending_fd;                  /* lock: mutex; new TCP listener, -1 none */
    bool pending;                    /* lock: mutex */
    struct event applied;            /* the loop has taken the new listener */
    char address[96];                /* of TCP; changed on the worker of server_listen() */
    char host_name[80];              /* lock: mutex; as listened on, for the Host check */
    struct connection *peers;        /* changed on the loop, under the mutex */
    _Atomic uint32_t n_local, n_tcp; /* changed on the loop */
    uint32_t n_admitted, n_told;     /* loop only; of TCP with a token; of both */
    uint32_t most_connections; /* SERVER_CONNECTIONS, or less where few descriptors are allowed */
    uint32_t stuck_s;          /* SERVER_STUCK_S */
    struct query_subscription *feeds;                   /* loop only */
    _Atomic uint32_t n_subscriptions;                   /* changed on the loop */
    _Atomic size_t queued;                              /* bytes in all peers' queues */
    _Atomic uint64_t accepted, refused, requests, lost; /* counted for ever */
    struct rate rate;                                   /* loop only; all of TCP */
    struct rate refusals;                               /* loop only; lines in the log about them */
    struct connection *adopting; /* loop only: whom libwebsockets is about to speak for */
    struct lws *listeners[2];    /* loop only: unix, TCP */
    int listen_fds[2];           /* loop only */
    _Atomic int pipe_fd;         /* libwebsockets' own, which wakes it; -1: not known */
    bool resting[2];             /* loop only: no descriptor was free, try again at the next tick */
    lws_sorted_usec_list_t housekeeping;
    uint64_t stop_ns;            /* loop only: when to stop waiting for the last answers */
    bool called;                 /* loop only: libwebsockets had something to say in this turn */
    _Atomic int fds[SERVER_FDS]; /* all our descriptors, -1 free */
};

/* ---- server.c ---- */
/* Counters that anybody may read: no order with anything else is promised. */
#define server_add(counter, n) \
    (void)atomic_fetch_add_explicit(&(counter), (n), memory_order_relaxed)
#define server_get(counter) atomic_load_explicit(&(counter), memory_order_relaxed)
void server_ref(struct server *s);
void server_unref(struct server *s);
void server_connection_lost(struct connection *p); /* loop: its socket is closed: forget it */
void server_wake(struct server *s);                /* let the loop look at the ready list [any] */
int server_slot_take(struct server *s, int fd);    /* remember a descriptor; slot or -EMFILE */
void server_slot_drop(struct server *s, int slot);

/* ---- loop.c ---- */
int server_loop_new(struct server *s); /* the context; before the thread is there */
int server_loop_adopt(struct server *s, int which, int fd); /* a listener */
void *server_loop(void *server);                            /* the thread */
void server_loop_rest(struct server *s); /* nobody is there: no look at deadlines is needed */

/* ---- client_table.c ---- */
void server_accept(struct server *s, int which);
void server_connection_lost(struct connection *p); /* loop: its socket is closed: forget it */
void server_connection_speaks(struct connection *p, enum connection_kind kind);
/* Its token was right: from now on.  -EAGAIN: there are too many such.                  [loop] */
int server_connection_admit(struct connection *p, enum access access);
void server_connection_drop(struct connection *p,
                            const char *why);  /* loop: tell it and close it, at once */
void server_rest(struct server *s, int which); /* loop: accept none for a while */
void server_rest_over(struct server *s, int which);

/* ---- listen.c ---- */
int server_listen_unix(const char *path, int *ret_fd);
/* Open a TCP listener.  ret_address: "127.0.0.1:9922"; ret_host: its host part as written. */
int server_listen_tcp(const char *listen_on, int *ret_fd, char *ret_address, size_t address_size,
                      char *ret_host, size_t host_size);

/* Let the kernel find out that a TCP client has gone: one that has closed while its command runs
 * looks as if it had only stopped sending. */
void server_keep_alive(int fd);
/* "127.0.0.1:4711", of the other side; gives the address as in peer.source */
uint64_t server_connection_name(int fd, char *ret, size_t size);

/* ---- auth.c: who may come in ---- */
int server_token_make(char *ret, size_t size); /* from the kernel's random numbers */
bool server_token_same(const char *token, const char *given, size_t n);         /* constant time */
enum access server_token_access(struct server *s, const char *given, size_t n); /* [loop] */
/* unix: who it is, and whether it may ask.  false: another user, or nobody says who.    [loop] */
bool server_connection_identify(struct connection *p);
/* May it ask, as the ids of the process are now?  It is logged when not. */
enum identity_refusal server_connection_refusal(struct connection *p);
/* The words for one that is turned away; *ret_code: -EACCES, or -EAGAIN for one too many. */
const char *server_connection_why(const struct connection *p, int *ret_code);
/* Take one from a bucket that fills with `per_s` a second and holds twice that.  false: empty. */
bool server_rate_take(struct rate *r, uint64_t now_ns, uint64_t per_s);
/* Count a request.  0, -EAGAIN: it asks too often, -EACCES: the ids of the process are
 * others than when it connected.                                                       [loop] */
int server_connection_may_ask(struct connection *p);
/* A stranger was turned away: say it in the log, a few times a second at most.          [loop] */
void server_log_refusal(struct connection *p, const char *why);
/* May this Host (with or without a port) be asked here?  `listen_host`, `local`: also allowed. */
bool server_host_allowed(const char *host, size_t n, const char *listen_host, const char *local);
bool server_origin_allowed(const char *origin, size_t n, const char *host, size_t host_n);

/* ---- websocket_frames.c ---- */
/* More bytes of frames have come.  0, or the code to close with (RFC 6455, 7.4): 1002 what is no
 * client's frame, 1008 too many small ones, 1009 one that is too long. */
int server_frames_arrived(struct frames *f, const void *data, size_t size, uint64_t now_ns);

/* ---- connection.c ---- */
struct connection *server_connection_new(struct server *s, int fd, bool local);
void server_connection_ref(struct connection *p);
void server_connection_unref(struct connection *p);
void server_connection_gone(
    struct connection *p); /* loop: the socket is closed; stop all it asked for */
void server_connection_ready(
    struct connection *p); /* something waits for it: let the loop know [any] */
/* Queue text of a job.  Waits while the queue is full, until cancelled.  [any but the loop] */
int server_connection_write(struct job *j, const void *data, size_t size);
/* Queue something that may push out older droppable pieces; never waits.  [any] */
int server_connection_push(struct connection *p, struct job *j, enum chunk_kind kind, int status,
                           const void *data, size_t size, bool droppable);
/* The same for a stream's message that many get.  [any] */
int server_connection_push_shared(struct connection *p, struct job *j, struct shared *text);
/* NULL: no memory */
struct shared *server_shared_new(struct server *s, const char *text, size_t size);
void server_shared_unref(struct shared *text);
struct chunk *server_connection_take(struct connection *p,
                                     uint64_t *ret_dropped); /* loop; NULL: empty */
bool server_connection_waiting(struct connection *p);        /* loop: is something queued? */
void server_chunk_free(struct chunk *piece);

/* ---- request.c ---- */
struct job *server_job_new(struct connection *p, enum job_kind kind, int64_t id);
void server_job_ref(struct job *j);
void server_job_unref(struct job *j);
struct job *server_job_find(struct connection *p, int64_t id);
struct job_request {
    int argc;
    const char *const *argv;
    int64_t id;          /* 0: not by websocket */
    uint64_t timeout_ns; /* 0: none */
    bool bytes;          /* job.bytes */
};
/* Run a command for a peer: answers go to its queue, the end is a CHUNK_DONE.  Never fails: what
 * is wrong is in the CHUNK_DONE. */
void server_job_run(struct connection *p, const struct job_request *asked);
/* Answer with a CHUNK_DONE of this thread's error.  0, or -1 when not even that worked. */
int server_job_refuse(struct connection *p, int64_t id, int code);
void server_job_cancel(struct job *j); /* loop */
void server_job_remove(struct job *j); /* loop: off the peer's list; its count is given back */

/* ---- redact.c: answers to who may only read ---- */
int server_shade_write(struct job *j, const void *data, size_t size);
void server_shade_end(struct job *j); /* what is still held back */
/* Add the reason or note at the end of a job. */
int server_shade_text(const struct job *j, const char *text, struct buf *ret);

/* ---- query_stream.c, event_stream.c ---- */
struct message;
void server_watch_start(struct connection *p, const struct message *m);
void server_watch_stop(struct job *j);
void server_follow_start(struct connection *p, const struct message *m);
void server_follow_stop(struct job *j);

/* ---- socket_io.c: greeting, HTTP and text over a socket we read ourselves ---- */
int server_raw_readable(struct connection *p);        /* loop; -1: close */
int server_raw_writeable(struct connection *p);       /* loop; -1: close */
int server_raw_receive(struct connection *p);         /* loop: use what is in p->in; -1: close */
void server_raw_used(struct connection *p, size_t n); /* take n bytes from the front of p->in */
void server_connection_wait(struct connection *p, enum connection_wait wait,
                            uint32_t seconds); /* set the deadline */
/* ---- http.c ---- */
int server_http_receive(struct connection *p);
void server_http_encode(struct connection *p, struct chunk *piece);
/* ---- text_protocol.c ---- */
int server_text_receive(struct connection *p);
void server_text_encode(struct connection *p, struct chunk *piece);
/* ---- websocket.c ---- */
int server_ws_handover(struct connection *p, const char *request, size_t size);
int server_ws_headers(struct server *s, struct lws *wsi, struct lws_process_html_args *args);
/* Send what waits without asking first whether the socket takes it.  false: not now, ask. */
bool server_ws_send(struct connection *p);
int server_ws_event(struct lws *wsi, enum lws_callback_reasons reason, struct connection *p,
                    void *in, size_t size);

#endif
