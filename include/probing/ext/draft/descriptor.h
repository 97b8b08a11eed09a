/* SPDX-License-Identifier: Apache-2.0
 *
 * probing/ext/draft/descriptor.h - "probing.descriptor/1", by the core: which of the process's
 * descriptors are probing's own, and not the program's.  A child that the program forks has none of
 * them; sdk/plugin_files.c sends a plugin's open() here.
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
    /* 1: it came from here and was not closed here; 0: the program's, or a plugin's.    [any] */
    int (*is_ours)(int fd);
    /* As open(2), always with O_CLOEXEC, and close(2); the number is a high one.  [signal] */
    int (*open)(const char *path, int flags, unsigned mode);
    int (*close)(int fd);
    /* Around a system call that gives n descriptors, which keep their numbers.  A fork waits in
     * between, so nothing else is done there.  NULL where `size` ends before them.   [signal] */
    void (*begin)(void);
    void (*end)(const int *fds, uint32_t n);
};

#ifdef __cplusplus
}
#endif

#endif
