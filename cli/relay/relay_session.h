/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/relay/relay_session.h - a relay: whoever asks at one end of a wire, the processes of this
 * machine and relays of others at the other.
 *
 * One thread, but for looks at processes, which may take their time and have threads of their own.
 */
#ifndef CLI_RELAY_RELAY_SESSION_H
#define CLI_RELAY_RELAY_SESSION_H

#include <stdbool.h>
#include <stdint.h>

struct session_options {
    int in, out;       /* the wire; closed at the end */
    const char *token; /* that who asks must show; NULL: it came by a shell, and is our user */
    uint64_t greet_ns; /* for who asks to say who it is, 0: as by a shell */
    int tell;          /* gets a byte when that is so; -1: nobody */
};

/* Serve until who asks has gone, or has not been heard for too long.  Nothing that was begun is
 * left behind.  0, or -errno with err_set().  *ret_shown: it has said who it is, with the token. */
int session_run(const struct session_options *o, bool *ret_shown);

#endif
