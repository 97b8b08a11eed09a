/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/hostile/plugins/hostile.h - what every plugin that does wrong has in common.
 */
#ifndef TESTS_HOSTILE_H
#define TESTS_HOSTILE_H

#include <errno.h>
#include <probing/plugin.h>
#include <stdint.h>

__attribute__((unused)) static const struct probing_host *host;

__attribute__((unused)) static int plain_init(const struct probing_host *h, void **ret_self)
{
    host = h;
    *ret_self = NULL;
    return 0;
}

__attribute__((unused)) static void plain_destroy(void *self)
{
    (void)self;
}

/* HOSTILE("name", .start = start): all that is right, and then what is wrong. */
#define HOSTILE(plugin_name, ...)                                                               \
    _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Woverride-init\"")        \
        const struct probing_plugin probing_plugin_v1 = {.size = sizeof(struct probing_plugin), \
                                                         .abi = PROBING_ABI,                    \
                                                         .name = plugin_name,                   \
                                                         .version = "1",                        \
                                                         .doc = "does wrong",                   \
                                                         .init = plain_init,                    \
                                                         .destroy = plain_destroy,              \
                                                         __VA_ARGS__};                          \
    _Pragma("GCC diagnostic pop")

#endif
