/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/stream_server.h - one stream as a relay serves it: a connection to the socket of a
 * process here, or a command that runs here.
 *
 * The relay's thread.  Connecting, and finding out why a connection has ended, can take as long as
 * a process likes: threads do that, and say that they are done over a pipe.
 */
#ifndef CLI_RELAY_STREAM_SERVER_H
#define CLI_RELAY_STREAM_SERVER_H

#include "cli/link/stream.h"
#include "cli/many/child.h"
#include "sdk/client/door.h"

struct look; /* what a thread does for one */
struct merge;

struct served {
    struct stream stream;
    enum {
        SERVED_CONNECTS,
        SERVED_OPEN,
        SERVED_LOOKS,
        SERVED_MERGES,
        SERVED_RUNS,
        SERVED_OVER
    } state;
    struct client_process process; /* of SERVED_OPEN */
    struct child child;            /* of SERVED_RUNS */
    struct merge *merge;           /* below.h; of SERVED_MERGES, and of what runs for one */
    int polled;                    /* how many of the polls are its own */
    uint64_t told_ns;              /* to end: nobody asks any more */
};

/* place: as link_open() writes it.  done: a pipe, whose reader calls served_looked(). */
int served_open(struct served *s, const char *place, int done);
int served_run(struct served *s, const char *const *argv);
/* Its merge is whole, or has nobody below: what makes the answer runs from now on. */
int served_merge(struct served *s);
/* A pointer came over the pipe.  Gives the stream it was for, and what was found: 0, or -errno with
 * the reason; the stream may be gone. */
struct looked {
    uint32_t id;
    int fd; /* connected; -1: it was the end that was looked for, or it failed */
    int error;
    enum probing_client_end end;
    struct client_process process;
    char why[700];
};
void served_looked(struct look *l, struct looked *ret);
/* The process at its other end has closed the connection: what has become of it? */
int served_look(struct served *s, int done);
/* Nobody wants it any more.  true: it can be freed now. */
bool served_stop(struct served *s, uint64_t now);
void served_done(struct served *s);

#endif
