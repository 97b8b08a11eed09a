/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/descriptor.h - "probing.descriptor/1", by the core: which of the process's
 * descriptors are probing's own, and not the program's.
 *
 * Draft: may change until two plugins use it; the id stays.
 */
#ifndef PROBING_EXT_DESCRIPTOR_H
#define PROBING_EXT_DESCRIPTOR_H

#include <stdint.h>

#include <probing/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PROBING_DESCRIPTOR_1 "probing.descriptor/1"

struct probing_descriptor_1 {
    uint32_t size, reserved;
    /* 1: the core opened it and has not closed it; 0: the program's, or a plugin's.     [any] */
    int (*is_ours)(int fd);
};

#ifdef __cplusplus
}
#endif

#endif
