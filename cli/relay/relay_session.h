/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_session.h - a relay: whoever asks at one end of a wire, the processes of this
 * machine and relays of others at the other.
 *
 * One thread, but for looks at processes, which may take their time and have threads of their own.
 */
#ifndef CLI_RELAY_RELAY_SESSION_H
#define CLI_RELAY_RELAY_SESSION_H

#include "sdk/lib/buf.h"

struct session_options {
    int in, out;       /* the wire; closed at the end */
    const char *token; /* that who asks must show; NULL: it came by a shell, and is our user */
    const struct buf *heard; /* what has been read of the wire already; NULL: nothing */
};

/* Serve until who asks has gone, or has not been heard for too long.  Nothing that was begun is
 * left behind.  0, or -errno with err_set(). */
int session_run(const struct session_options *o);

#endif
