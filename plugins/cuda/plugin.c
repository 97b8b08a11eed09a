/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/cuda/plugin.c - the cuda plugin: what kernels, copies and calls of CUDA do, by CUPTI.
 *
 * init, configure, start, stop and destroy on [control].  It needs no CUDA to be built or loaded,
 * loads no part of CUDA's driver and makes no context.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "plugin_malloc.h"
#include "trace/tables.h"

struct plugin {
    const struct probing_host *host;
    struct trace_tables tables;
};

static void cuda_destroy(void *self)
{
    free(self);
}

static int cuda_init(const struct probing_host *host, void **ret_self)
{
    memory_take(host);
    struct plugin *p = calloc(1, sizeof(*p));
    if (!p)
        return host->fail(host, -ENOMEM, "no memory");
    p->host = host;
    int rc = tables_new(host, &p->tables);
    if (rc < 0) {
        cuda_destroy(p);
        return rc;
    }
    *ret_self = p;
    return 0;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin),
    .abi = PROBING_ABI,
    .name = "cuda",
    .version = PROBING_VERSION,
    .doc = "kernels, copies and calls of CUDA, switched on and off while the program runs",
    .init = cuda_init,
    .destroy = cuda_destroy,
    .declares = &cuda_declares,
};
