/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/client.h - ask a process that has probing in it: SQL, any other command, streams of rows.
 *
 *     struct probing_client *c = probing_client_new(NULL);
 *     const char *words[] = {"query", "select 1 as n", "--format", "csv"};
 *     int status = 0;
 *     if (probing_client_connect_pid(c, 4711) < 0 ||
 *         probing_client_run(c, 4, words, 0, write_to_stdout, NULL, &status) < 0 || status < 0)
 *         fprintf(stderr, "%s\n", probing_client_error(c));
 *     probing_client_free(c);
 *
 * cc ask.c $(pkg-config --cflags --libs probing-client): a static library that needs libc only.
 *
 * Shape: a client is one connection (unix socket or TCP) that carries any number of requests at
 * once, each with an id (docs/protocol.md).  It does not come back by itself when it has ended: a
 * process that comes again is another one, for another client.
 *
 * Errors: functions give 0 or more when it worked, else a negative errno, and
 * probing_client_error() one sentence that says what, where and what to do:
 *     -ESRCH         there is no such process            -EACCES   it is not ours; a wrong token
 *     -ENXIO         it has no probing in it             -ENOTSOCK what is there is no socket
 *     -ECONNREFUSED  nobody listens there (any more)     -ENOENT   no such socket or machine
 *     -ETIMEDOUT     no answer in time                   -ECANCELED  *stop was raised
 *     -ECONNRESET    the stream has ended in the middle: probing_client_end() says why
 *     -EPROTO        who is there speaks something else  -ENOMEM, -ENOBUFS  no room for an answer
 *     -EAGAIN        64 requests are under way           -EINVAL   an argument cannot be right
 * A command has a status of its own: 0, its "no" (1 to 125), or a negative errno.
 * An answer that is incomplete is never given as a whole one: probing_client_note() says what is
 * missing where the status is 0 (rows that were lost), and an answer that was cut is an error.
 *
 * Threads: a client belongs to one thread at a time, several clients to as many threads.  Only the
 * stop flag may be raised by others, and by signal handlers.
 * Ownership: what is passed in is borrowed for the call (of the options: stop and arg for the
 * client's life), what comes out until the next call with that client, unless said otherwise.
 * The library starts no threads and no processes, prints nothing, ends nothing, keeps no state
 * outside of a client, reads no environment, and touches no signals (it sends with MSG_NOSIGNAL).
 * As root it connects to a local socket as the socket's owner, by a system call for this thread
 * alone.
 *
 * The dead: a process that has ended left its rows in its data directory.  Reading these takes the
 * whole store, which is not in here: run `probing -t DIRECTORY query "..." --format csv`.
 */
#ifndef PROBING_CLIENT_H
#define PROBING_CLIENT_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_CLIENT_API __attribute__((visibility("default")))

struct probing_client;

/* Zeros are the defaults. */
struct probing_client_options {
    uint32_t size;                     /* sizeof(struct probing_client_options) */
    uint32_t reserved;                 /* 0 */
    uint64_t timeout_ns;               /* to come in; 0: 10 s */
    const volatile sig_atomic_t *stop; /* other than 0: waits end with -ECANCELED; may be NULL */
    const char *token;                 /* for TCP, borrowed until that call returns; or NULL, */
    /* Called if `token` is NULL, once connected and before anything is sent: gives the token for
     * the peer of `fd`, borrowed until the call returns, or NULL. */
    const char *(*find_token)(void *arg, int fd);
    /* Called with each error when it is found, on the caller's thread; may be NULL. */
    void (*on_error)(void *arg, int code, const char *text);
    void *arg;
};

/* options: copied; may be NULL.  NULL: no memory, or `size` is not one that was ever there. */
PROBING_CLIENT_API struct probing_client *
probing_client_new(const struct probing_client_options *options);
/* Closes the connection, too, which cancels its requests.  NULL is fine. */
PROBING_CLIENT_API void probing_client_free(struct probing_client *c);

/* The sentence of the last error; "": there was none.  For NULL: no memory for a client. */
PROBING_CLIENT_API const char *probing_client_error(const struct probing_client *c);

/* ---- connecting: once a client, but again after a failure ---- */

/* A process of this machine, in whatever container.  It must be ours, or we root. */
PROBING_CLIENT_API int probing_client_connect_pid(struct probing_client *c, pid_t pid);
/* The socket in a data directory ("/tmp/probing-1000/4711-99/sock"): the listener must be the
 * process that the directory is named after, else nothing is sent. */
PROBING_CLIENT_API int probing_client_connect_unix(struct probing_client *c, const char *path);
/* host: a name or number, without brackets.  No TLS: ssh or a proxy does that. */
PROBING_CLIENT_API int probing_client_connect_tcp(struct probing_client *c, const char *host,
                                                  uint16_t port);

/* The core's version and build, "0.1.0 (build 3f2a91c04d5e)"; "": it does not say. */
PROBING_CLIENT_API const char *probing_client_build(const struct probing_client *c);

enum probing_client_end {
    PROBING_CLIENT_OPEN,     /* it goes on */
    PROBING_CLIENT_DIED,     /* the process is dead */
    PROBING_CLIENT_LEFT,     /* it lives, and the core has left it */
    PROBING_CLIENT_REPLACED, /* it lives, with another program (exec) */
    PROBING_CLIENT_CLOSED,   /* it lives; the core has closed this connection */
    PROBING_CLIENT_UNKNOWN   /* it cannot be seen from here */
};

/* After -ECONNRESET, or if nobody listens at a local socket: say what became of the process.  The
 * first call may take two seconds, and longer for a process that is ending. */
PROBING_CLIENT_API enum probing_client_end probing_client_end(struct probing_client *c);

/* ---- one command ---- */

/* Run a command and wait for its end.  write() gets the answer piece by piece; a negative return
 * cancels the command and is what this gives.  timeout_ns: 0 for none, else the process stops the
 * command by then.  Events of other requests that come meanwhile are lost: for several at once use
 * probing_client_start_run() and probing_client_stream().  0: the exchange worked, and *ret_status
 * is the command's; of a negative one probing_client_error() has the process's sentence. */
PROBING_CLIENT_API int probing_client_run(struct probing_client *c, int argc,
                                          const char *const *argv, uint64_t timeout_ns,
                                          int (*write)(void *arg, const char *data, size_t size),
                                          void *arg, int *ret_status);
/* Say in one sentence what the last probing_client_run()'s answer lacked; "": nothing. */
PROBING_CLIENT_API const char *probing_client_note(const struct probing_client *c);

/* ---- streams, and several at once ---- */

enum probing_client_event_kind {
    PROBING_CLIENT_DATA,    /* text: a piece of an answer (of format arrow: bytes), or of a watch */
    PROBING_CLIENT_EVENT,   /* topic, and text: its JSON */
    PROBING_CLIENT_DROPPED, /* dropped: messages lost because we were slow */
    PROBING_CLIENT_LATE,    /* late: rows of a watch by buckets that came when theirs was told */
    PROBING_CLIENT_DONE     /* status; text: the reason when negative, else what is incomplete.  The
                         * last of this id */
};

struct probing_client_event {
    enum probing_client_event_kind kind;
    int64_t id;
    const char *text; /* borrowed during the call, NUL-terminated */
    size_t size;
    const char *topic; /* PROBING_CLIENT_EVENT */
    int status;
    uint64_t dropped, late;
    int whole; /* PROBING_CLIENT_DATA of a watch: not 0: all there is now, in place of what was */
};

struct probing_client_watch {
    uint32_t size;        /* sizeof(struct probing_client_watch) */
    uint32_t width;       /* columns that a line of format table may take; 0: any number */
    const char *sql;      /* a select, again and again: what is new of it */
    const char *format;   /* NULL: jsonl */
    uint64_t interval_ns; /* 0: one second */
    uint64_t last;        /* rows from before now to begin with */
};

/* Start a request; its events come out of probing_client_stream().  An id > 0, or -errno. */
PROBING_CLIENT_API int64_t probing_client_start_run(struct probing_client *c, int argc,
                                                    const char *const *argv, uint64_t timeout_ns);
PROBING_CLIENT_API int64_t probing_client_start_watch(struct probing_client *c,
                                                      const struct probing_client_watch *w);
/* topic: "script.NAME", "script.*": what scripts publish. */
PROBING_CLIENT_API int64_t probing_client_start_follow(struct probing_client *c, const char *topic);
PROBING_CLIENT_API int probing_client_cancel(struct probing_client *c, int64_t id);

/* Hand every event to on_event() until it returns other than 0 (given back), *stop is not 0
 * (-ECANCELED; may be NULL), timeout_ns has gone by (-ETIMEDOUT; 0: none), or nothing started is
 * left (0).  A signal ends a wait so that *stop is looked at. */
PROBING_CLIENT_API int
probing_client_stream(struct probing_client *c,
                      int (*on_event)(void *arg, const struct probing_client_event *e), void *arg,
                      uint64_t timeout_ns, const volatile sig_atomic_t *stop);

#ifdef __cplusplus
}
#endif

#endif
