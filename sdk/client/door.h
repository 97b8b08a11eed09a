/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/client.h - talk to a process that has libprobing in it: run commands, follow streams.
 *
 * One connection (unix socket or TCP) carries any number of requests at once, each with an id
 * (docs/protocol.md).  A client belongs to one thread; nothing here starts threads, prints or
 * changes signals.  Only another thread's or a signal handler's write to a stop flag is allowed.
 *
 *     struct probing_client *c;
 *     int status;
 *     const char *argv[] = { "query", "select 1" };
 *     if (client_connect_unix("/tmp/probing-1000/1234-99/sock", NULL, &c) == 0 &&
 *         client_run(c, 2, argv, 0, write_to_stdout, NULL, &status) == 0)
 *         ...
 *     client_close(c);
 *
 * Functions give 0 or -errno with err_set(): one sentence that says what to do.  -ECONNRESET: the
 * stream ended in the middle; client_end() says why.
 */
#ifndef PROBING_SDK_CLIENT_H
#define PROBING_SDK_CLIENT_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/buf.h"

struct probing_client;

/* ---- a process behind a socket of this machine ---- */

enum client_end {
    CLIENT_OPEN,     /* it goes on */
    CLIENT_DIED,     /* the process is dead */
    CLIENT_LEFT,     /* it lives, and the core has left it */
    CLIENT_REPLACED, /* it lives, with another program (exec) */
    CLIENT_CLOSED,   /* it lives; the core has closed this connection */
    CLIENT_UNKNOWN   /* it cannot be seen from here */
};

struct client_process {
    pid_t pid;           /* 0: not known, not of this machine */
    uint64_t start_time; /* what tells it from another with that pid */
    char directory[4096];
    char leaf[64]; /* of the socket in `directory` */
};

/* Who listens at the other end of a connected socket. */
void client_process_of(int fd, const char *directory, const char *leaf, struct client_process *ret);
enum client_end client_process_end(const struct client_process *p);

/* ---- connections ---- */

/* How long to wait for a process that may not want to answer; NULL: 10 s, and no flag. */
struct client_limits {
    uint64_t timeout_ns;               /* to come in; 0: 10 s */
    const volatile sig_atomic_t *stop; /* raised: ends the wait, and those of client_run() */
};

/* A data directory with sockets in it, and who must listen there: whoever owns the directory can
 * put anything in it.  Nothing is sent to anybody else: -EACCES, or -ENOTSOCK for a link. */
struct client_door {
    int directory;       /* its descriptor (O_PATH will do), borrowed during the call */
    const char *path;    /* for sentences */
    pid_t pid;           /* who must listen, by its number here; 0: the process that the directory
                          * is called after, or one of our own user where that is not to be seen */
    uint64_t start_time; /* of pid, when it was chosen; 0: not known */
};

/* A connected socket to `name` ("sock", "door") in it, proved; type: SOCK_STREAM ...  Not blocking;
 * caller closes. */
int client_dial(const struct client_door *d, const char *name, int type,
                const struct client_limits *limits);
/* Connect and shake hands.  Caller closes. */
int client_connect_door(const struct client_door *d, const struct client_limits *limits,
                        struct probing_client **ret);
/* A socket by its path: its directory is the door. */
int client_connect_unix(const char *path, const struct client_limits *limits,
                        struct probing_client **ret);

/* Who is behind an address; NULL: nothing is known, and the server says whether it minds. */
struct client_token {
    const char *text; /* the token, or NULL */
    /* Else asked when the connection stands and nothing was sent: the token for who is at the other
     * end of `fd`, borrowed until the call returns, or NULL. */
    const char *(*find)(void *arg, int fd);
    void *arg;
};
/* host: a name or number, without brackets. */
int client_connect_tcp(const char *host, uint16_t port, const struct client_token *token,
                       const struct client_limits *limits, struct probing_client **ret);
void client_close(struct probing_client *c); /* NULL is fine */

/* After -ECONNRESET: what has become of the process.  May look for two seconds, once. */
enum client_end client_end(struct probing_client *c);

/* Run a command and wait for its end.  write() gets the answer piece by piece; a negative return
 * cancels the command and is what client_run() gives.  timeout_ns: 0 for none, else the process
 * stops the command by then.  Events of other requests that come meanwhile are lost: for several at
 * once use client_start_run() and client_stream().  0: the exchange worked and *ret_status is the
 * command's: 0, 1 to 125 its own "no", negative -errno with the process' sentence in err_text(). */
int client_run(struct probing_client *c, int argc, const char *const *argv, uint64_t timeout_ns,
               int (*write)(void *arg, const char *data, size_t size), void *arg, int *ret_status);

/* The core's version and build, "0.1.0 (build 3f2a91c04d5e)", as it calls itself; "": it is older
 * than that and does not say. */
const char *client_build(const struct probing_client *c);

/* What was incomplete about the answer that the last client_run() gave, in one sentence; "".
 * Borrowed until the next one. */
const char *client_note(const struct probing_client *c);

/* ---- several at once ---- */

enum client_event_kind {
    CLIENT_DATA,    /* text: a piece of an answer, or of a watch */
    CLIENT_EVENT,   /* topic, and text: its JSON */
    CLIENT_DROPPED, /* dropped: messages lost because we were slow */
    CLIENT_LATE,    /* late: rows of a watch by buckets that came when their bucket had been told */
    CLIENT_DONE,    /* status; text: the reason when negative, else what is incomplete.  The last
                     * of this id */
};

struct client_event {
    enum client_event_kind kind;
    int64_t id;
    const char *text; /* borrowed during the call, NUL-terminated */
    size_t size;
    const char *topic; /* CLIENT_EVENT */
    int status;
    uint64_t dropped, late;
    bool whole; /* CLIENT_DATA of a watch: all there is now, in place of what came before */
};

struct client_watch {
    const char *sql;
    uint64_t interval_ns; /* 0: one second */
    const char *format;   /* NULL: jsonl */
    uint64_t last;        /* rows from before now to begin with */
    uint32_t width;       /* columns that a line of format table may take; 0: any number */
};

/* Ask for something; its events come out of client_stream().  An id > 0, or -errno. */
int64_t client_start_run(struct probing_client *c, int argc, const char *const *argv,
                         uint64_t timeout_ns);
int64_t client_start_watch(struct probing_client *c, const struct client_watch *w);
int64_t client_start_follow(struct probing_client *c, const char *topic);
int client_cancel(struct probing_client *c, int64_t id);

/* Hand every event to on_event() until it returns other than 0 (given back), *stop is not 0
 * (-ECANCELED; may be NULL), timeout_ns has gone by (-ETIMEDOUT; 0: none), or nothing started is
 * left (0).  A signal ends a wait so that *stop is looked at. */
int client_stream(struct probing_client *c,
                  int (*on_event)(void *arg, const struct client_event *e), void *arg,
                  uint64_t timeout_ns, const volatile sig_atomic_t *stop);

#endif
