/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/bare.c - a plugin that runs nothing when it is loaded, with one of each
 * thing that a loader has to read: the seed of tests/fuzz/elf_fuzz.c.
 */
#include <probing/plugin.h>
#include <stdio.h>
#include <stdlib.h>

static __thread int turns = 3; /* thread-local data with an image */

static int init(const struct probing_host *host, void **ret_self)
{
    *ret_self = malloc(16); /* a symbol of libc, with a version */
    host->log(host, PROBING_INFO, "bare");
    return fprintf(stderr, "%d\n", ++turns) < 0 ? -1 : 0;
}

static void destroy(void *self)
{
    free(self);
}

const struct probing_plugin probing_plugin_v1 = {.size = sizeof(struct probing_plugin),
                                                 .abi = PROBING_ABI,
                                                 .name = "bare",
                                                 .version = "1",
                                                 .doc = "no constructors",
                                                 .init = init,
                                                 .destroy = destroy};
