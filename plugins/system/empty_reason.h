/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/empty_reason.h - why a table has no rows.
 */
#ifndef SYSTEM_EMPTY_REASON_H
#define SYSTEM_EMPTY_REASON_H

#include "internal.h"
#include "tcp_sockets.h"

struct system_state { /* the parts that know it; borrowed */
    const struct io_usage *io;
    const struct net_usage *net;
    const struct tcp_peers *peers;
    const struct rdma_usage *rdma;
    const struct cgroup_usage *cgroup;
    const struct pressure *pressure;
    bool ticked; /* there has been a look */
};

/* As "probing.empty/1" has it.                                                      [worker] */
int system_why_empty(const struct system_state *s, const char *table, char *text, uint32_t size);

#endif
