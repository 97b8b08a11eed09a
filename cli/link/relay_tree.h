/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/link/relay_tree.h - the relays that one process has started, each of which stands before a
 * part of the hosts: what a relay and whoever asks have in common.
 *
 * Hosts are numbers, and each branch has those of a range.  A branch that cannot be reached costs
 * its own host: the next one of its part is tried in its place, and beside it where it is much
 * slower than others.  One that ends later takes those behind it along, and all of them are named.
 * One thread; nothing waits.
 */
#ifndef CLI_LINK_RELAY_TREE_H
#define CLI_LINK_RELAY_TREE_H

#include <poll.h>

#include "cli/link/frame.h"

#define TREE_DEGREE 32
#define TREE_HOSTS_MAX 16384
#define TREE_POLLS 3                /* of a branch */
#define TREE_SAYS ((size_t)8 << 10) /* of what a remote shell says on its standard error */

struct tree_how {
    const char *rsh;     /* the remote shell, its words between blanks */
    const char *program; /* what probing is called there, as a shell reads it */
    uint32_t degree;
};

struct branch {
    struct wire wire;
    uint32_t first, n; /* hosts; the first is where its relay runs */
    char *names;       /* of them, each with its NUL */
    size_t names_size;
    char *rsh, *program;
    uint32_t degree;
    char *token;                          /* of a TCP relay; NULL */
    struct addrinfo *addresses, *untried; /* the same; untried: from here on */
    int pid, said_fd;
    bool tcp, greeted;
    struct buf said;
    uint64_t began_ns, deadline_ns;
};

struct tree {
    struct branch **list;
    uint32_t n;
    uint64_t quickest_ns; /* that the first relay has taken to say who it is; 0: none has */
    /* Gets each frame from below: REACHED, LOST, and all that relays send.  Below 0 ends all. */
    int (*up)(void *arg, const struct frame *f);
    /* May more be taken from below? */
    bool (*room)(void *arg);
    void *arg;
    int error; /* what up() gave */
};

/* Start relays for these hosts, numbered from `first` on; names: n texts, each with its NUL. */
int tree_start(struct tree *t, const struct tree_how *how, uint32_t first, const char *names,
               size_t names_size);
/* A relay that listens: a host of its own.  token: NULL, none. */
int tree_connect(struct tree *t, uint32_t number, const char *name, const char *token);
/* Send a frame down.  0, or -ENOENT: nobody has this host. */
int tree_send(struct tree *t, const struct frame *f);
/* Its relay has gone too far: where it is one of ours, it is ended. */
void tree_cut(struct tree *t, uint32_t host);
/* The host whose relay is before this one, as we see it; TREE_NOBODY: none has it. */
#define TREE_NOBODY UINT32_MAX
uint32_t tree_first(const struct tree *t, uint32_t host);
bool tree_has(const struct tree *t, uint32_t host);

/* Fill in what to poll for: TREE_POLLS of each branch. */
void tree_polls(const struct tree *t, struct pollfd *ret);
/* When somebody is to be given up, CLOCK_MONOTONIC ns; 0: never. */
uint64_t tree_deadline(const struct tree *t);
/* Do what can be done; polls: as above, n: of how many branches. */
int tree_turn(struct tree *t, const struct pollfd *polls, uint32_t n);
void tree_end(struct tree *t);

#endif
