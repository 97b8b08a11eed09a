/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/broker.h - what stands between those who ask other machines and the relays that were
 * started: requests come as messages over a SOCK_SEQPACKET, the first byte their kind, with the
 * descriptors that are to be served.
 *
 * The command has one in a process beside it (broker_run()), a relay that stands before others one
 * in its session, for its own children that answer questions.  Private to link.c, broker.c and the
 * session.  One thread.  A relay that sends more than it may, or what nobody asked for, costs its
 * own hosts.
 */
#ifndef CLI_LINK_BROKER_H
#define CLI_LINK_BROKER_H

#include <stdint.h>

#include "cli/link/relay_tree.h"

#define ASK_BYTES (128u << 10)    /* of a message */
#define RELAY_STREAMS 0x80000000u /* ids from here on are those of what relays ask themselves */

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

struct answer_wait;
struct peer;
struct request;
struct broker {
    int control; /* -1: nobody asks yet */
    struct tree tree;
    /* In a relay, frames that answer nothing it has asked itself go up.  NULL: this is the
     * command. */
    int (*pass)(void *arg, const struct frame *f);
    bool (*has_room)(void *arg); /* for such frames */
    void *arg;
    struct tree_how how;
    struct buf rsh, program, names; /* of hosts that are to be started */
    struct peer *peers;             /* hosts from `first` on */
    uint32_t first, n_peers, room_peers;
    struct request **slots;
    uint32_t n_slots, generation;
    struct answer_wait *waits;
    uint32_t n_waits;
    uint32_t branches; /* that were polled */
    struct wire up;    /* frames on their way down, which tree_send() takes */
};

int broker_begin(struct broker *b); /* of zeros but for what a relay has set */
/* Hosts first .. first + n - 1 have been started in the tree. */
int broker_add_hosts(struct broker *b, uint32_t first, uint32_t n);
uint32_t broker_poll_room(const struct broker *b);
uint32_t broker_polls(struct broker *b, struct pollfd *ret);
/* When broker_turn() is to be called again at the latest, CLOCK_MONOTONIC ns. */
uint64_t broker_until(const struct broker *b);
/* Do what can be done.  0, or -errno: nobody asks any more, or what pass() gave. */
int broker_turn(struct broker *b, const struct pollfd *polls);
void broker_end(struct broker *b);

/* Serve `control` until everybody at its other end has gone.  Never returns: the exit code is 0, or
 * the errno of what ended it before. */
void broker_run(int control) __attribute__((noreturn));

#endif
