/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/plugin_files.c - open() and close() of a plugin by the core ("probing.descriptor/1"), which
 * closes in a forked child what is ours.
 *
 * Link it with -Wl,--wrap= for each name below and call files_take() in init().  Any thread.
 * Before init() and with an older core they are libc's.
 */
#define _GNU_SOURCE
#include "plugin_files.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>

int __real_open(const char *path, int flags, ...);
int __real_close(int fd);
int __real_pipe2(int ret_ends[2], int flags);
int __wrap_open(const char *path, int flags, ...);
int __wrap_close(int fd);
int __wrap_pipe2(int ret_ends[2], int flags);

/* open() has no context.  Set once: the code behind it stays mapped. */
static _Atomic(const struct probing_descriptor_1 *) descriptors;

static const struct probing_descriptor_1 *get_descriptor(void)
{
    return atomic_load_explicit(&descriptors, memory_order_acquire);
}

void files_set(const struct probing_descriptor_1 *d)
{
    if (d && d->size >= offsetof(struct probing_descriptor_1, end) + sizeof(d->end))
        atomic_store_explicit(&descriptors, d, memory_order_release);
}

void files_begin(void)
{
    const struct probing_descriptor_1 *d = get_descriptor();
    if (d)
        d->begin();
}

void files_end(int fd)
{
    const struct probing_descriptor_1 *d = get_descriptor();
    if (d)
        d->end(&fd, fd != -1);
}

int __wrap_open(const char *path, int flags, ...)
{
    const struct probing_descriptor_1 *d = get_descriptor();
    va_list args;
    va_start(args, flags);
    unsigned mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, unsigned) : 0;
    va_end(args);
    return d ? d->open(path, flags, mode) : __real_open(path, flags, mode);
}

int __wrap_close(int fd)
{
    const struct probing_descriptor_1 *d = get_descriptor();
    return d ? d->close(fd) : __real_close(fd);
}

int __wrap_pipe2(int ret_ends[2], int flags)
{
    const struct probing_descriptor_1 *d = get_descriptor();
    if (d)
        d->begin();
    int rc = __real_pipe2(ret_ends, flags);
    if (d)
        d->end(ret_ends, rc == 0 ? 2 : 0);
    return rc;
}
