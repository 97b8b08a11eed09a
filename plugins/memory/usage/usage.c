/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/usage/usage.c - how much memory the process has.
 */
#include "usage.h"

#include <errno.h>
#include <stdlib.h>

struct usage {
    const struct probing_host *host;
};

int usage_new(const struct probing_host *host, struct usage **ret)
{
    struct usage *u = calloc(1, sizeof(*u));
    if (!u)
        return host->fail(host, -ENOMEM, "no memory");
    u->host = host;
    *ret = u;
    return 0;
}

void usage_free(struct usage *u)
{
    free(u);
}

int usage_configure(struct usage *u, const char *name, const char *value)
{
    (void)u, (void)name, (void)value;
    return -ENOENT;
}

void usage_tick(struct usage *u, uint64_t now)
{
    (void)u, (void)now;
}
