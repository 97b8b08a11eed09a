/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/client/door.h - what the command uses of the client beside <probing/client.h>: sockets in a
 * directory that it has opened and proved itself, and what became of the process behind one.
 *
 * Not installed, and not in the library that others link.  Threads and errors as there.
 */
#ifndef SDK_CLIENT_DOOR_H
#define SDK_CLIENT_DOOR_H

#include <probing/client.h>

struct client_process {
    pid_t pid;           /* 0: not known, not of this machine */
    uint64_t start_time; /* what tells it from another with that pid */
    char directory[4096];
    char leaf[64]; /* of the socket in `directory` */
};

/* Find out who listens at the other end of a connected socket. */
void client_process_of(int fd, const char *directory, const char *leaf, struct client_process *ret);
enum probing_client_end client_process_end(const struct client_process *p);

/* A data directory with sockets in it, and who must listen there: whoever owns the directory can
 * put anything in it.  Nothing is sent to anybody else: -EACCES, or -ENOTSOCK for a link. */
struct client_endpoint {
    int directory;       /* its descriptor (O_PATH will do), borrowed during the call */
    const char *path;    /* for sentences */
    pid_t pid;           /* who must listen, by its number here; 0: the process that the directory
                          * is called after, or one of our own user where that is not to be seen */
    uint64_t start_time; /* of pid, when it was chosen; 0: not known */
};

/* A connected socket to `name` ("sock", "door") in it, proved; type: SOCK_STREAM ...  Not blocking;
 * caller closes.  c: for its options, its error, and probing_client_end() where nobody listens. */
int client_dial(struct probing_client *c, const struct client_endpoint *d, const char *name,
                int type);
/* The same, tried once: -EAGAIN, without words, when others keep its queue full. */
int client_dial_once(struct probing_client *c, const struct client_endpoint *d, const char *name,
                     int type);
/* Connect and shake hands. */
int client_connect_endpoint(struct probing_client *c, const struct client_endpoint *d);

/* Shake hands over a descriptor that somebody has connected for us, to a process of another
 * machine.  where: for sentences.  note: what became of the process is to be read there when the
 * stream has ended, a number of enum probing_client_end, a blank, and a sentence; not blocking.
 * Both are the client's from now on, whatever this gives. */
int client_connect_stream(struct probing_client *c, int fd, int note, const char *where);

/* Between two calls that wait: answer the pings that have come, without which the process takes us
 * for gone after a while.  What else has come stays for the next read.  Waits for nothing. */
void client_tend(struct probing_client *c);

/* ---- one connection among many: nothing waits (turn.c) ---- */

/* Begin to connect, instead of the above; what is started by probing_client_start_run() from then
 * on is sent when the way is open.  -EAGAIN, without words: its queue is full, try again. */
int client_begin_endpoint(struct probing_client *c, const struct client_endpoint *d);
struct sockaddr;
int client_begin_tcp(struct probing_client *c, const char *host, const struct sockaddr *address,
                     unsigned address_size);
/* Give the descriptor to poll(), and the events to poll it for. */
int client_turn_fd(const struct probing_client *c);
int client_turn_events(const struct probing_client *c);
/* Do what can be done at once: as probing_client_stream(), but 0 says that there is more to come,
 * and 1 that nothing started is left.  A bounded piece of work, however much comes. */
int client_turn(struct probing_client *c,
                int (*on_event)(void *arg, const struct probing_client_event *e), void *arg);
/* After -ECONNRESET: the sentence that says what has become of the process; may look for two
 * seconds.  It cannot be used any more. */
void client_turns_end(struct probing_client *c);

#endif
