/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/stream_server.h - one stream as a relay serves it: a connection to the socket of a
 * process here, or a command that runs here.
 *
 * The relay's thread.  Connecting, and finding out why a connection has ended, can take as long as
 * a process likes: a child does both, and passes the connection to the relay.
 */
#ifndef CLI_RELAY_STREAM_SERVER_H
#define CLI_RELAY_STREAM_SERVER_H

#include "cli/link/stream.h"
#include "cli/many/child.h"
#include "sdk/client/door.h"

struct relay_question;

struct served {
    struct stream stream;
    enum { SERVED_CONNECTS, SERVED_OPEN, SERVED_ENDS, SERVED_RUNS, SERVED_OVER } state;
    struct child child;
    struct buf stderr_text; /* of a child that connects */
    bool runs;              /* it counts as a command that runs */
    int polled;             /* how many of the polls are its own */
    uint64_t told_ns;       /* since then, to end: nobody asks any more */
};

/* place: as link_member_place() writes it.  passed: a socket whose other end gives connections to
 * served_passed(). */
int served_open(struct served *s, const char *place, int passed);
int served_run(struct served *s, const char *const *argv);
int served_answer(struct served *s, struct relay_question *q);
/* The next connection that has come.  Gives the descriptor, -1: none has; and of which stream. */
int served_passed(int socket, uint32_t *ret_id);
/* A connection, or the try to have one, has ended, and so has its child: what became of it, and
 * why. */
enum probing_client_end served_end(struct served *s, char *ret_why, size_t size);
/* Nobody wants it any more.  true: it can be freed now. */
bool served_stop(struct served *s, uint64_t now);
void served_done(struct served *s);

#endif
