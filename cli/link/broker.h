/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/broker.h - the process between this command and the relays, and what is said to it:
 * one message each over a SOCK_SEQPACKET, the first byte its kind, with descriptors.
 *
 * Private to link.c and broker.c.
 */
#ifndef CLI_LINK_BROKER_H
#define CLI_LINK_BROKER_H

#include <stdint.h>

#define ASK_BYTES (128u << 10) /* of a message */
#define ASK_FDS 3

enum ask_kind {
    ASK_HOW = 1, /* u32 degree, rsh, program */
    ASK_NAMES,   /* names of hosts, each with its NUL; more may follow */
    ASK_START,   /* start them.  fd: gets u32, the first one's number */
    ASK_CONNECT, /* name, token.  fd: the same */
    ASK_HOST,    /* u32 host.  fd: gets a struct link_host */
    ASK_OPEN,    /* u32 host, place.  fds: stream, note */
    ASK_RUN,     /* u32 host, words.  fds: output, error, end */
    ASK_MERGE    /* u32 host, a question (merge_protocol.h).  fds: the same */
};

/* Serve `control` until everybody at its other end has gone.  Never returns: the exit code is 0, or
 * the errno of what ended it before. */
void exchange_run(int control) __attribute__((noreturn));

#endif
