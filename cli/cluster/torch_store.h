/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/cluster/torch_store.h - what torch's own store (TCPStore) says about a job: the nodes that
 * torchrun's agents have agreed upon.
 *
 * One thread, and never one of the job's: each question is a short connection of this command, with
 * a time limit.  The store may be anybody's: nothing that it sends is believed before its size and
 * form were checked.
 *
 *     torch_store.c: the store's protocol     rendezvous_state.c: what torchrun keeps in it
 */
#ifndef CLI_CLUSTER_TORCH_STORE_H
#define CLI_CLUSTER_TORCH_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sdk/lib/buf.h"

#define TORCH_STORE_TIMEOUT_NS (5 * UINT64_C(1000000000))
#define TORCH_VALUE_BYTES (16u << 20) /* of one value: a rendezvous of 100,000 nodes has 10 MB */

/* Add the value of a key as programs name it.  timeout_ns: for all of it.  0 or -errno with
 * err_set(): -ENOENT: there is no such key; -EPROTO: what answers is no store; -ETIMEDOUT. */
int torch_store_get(const char *host, uint16_t port, const char *key, uint64_t timeout_ns,
                    struct buf *ret);

/* An agent of torchrun, of which each node has one. */
struct torch_node {
    char host[256]; /* as it calls itself, or as --local-addr says */
    int64_t pid;    /* of the agent, where it runs */
    int64_t rank;   /* of the node in this round; -1: it waits for the next one */
};

/* Read the state of torchrun's `c10d` rendezvous (base64 of a pickle, of which nothing is run):
 * fn gets each node.  0, what fn gave below 0, or -EBADMSG with err_set(). */
int torch_rendezvous_read(const char *text, size_t size,
                          int (*fn)(void *arg, const struct torch_node *node), void *arg);

/* Both: the nodes of the torchrun job `run_id` by the store at host:port. */
int torch_rendezvous_nodes(const char *host, uint16_t port, const char *run_id, uint64_t timeout_ns,
                           int (*fn)(void *arg, const struct torch_node *node), void *arg);

#endif
