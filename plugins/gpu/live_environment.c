/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/gpu/live_environment.c - a variable of the environment as it is now, read as another
 * process would read it.
 *
 * Any thread; no state.  A setenv() meanwhile may free what is read here: the kernel copies, so
 * that an address that is gone is an error and no crash; a text that changed under the copy may be
 * missed once.
 */
#define _GNU_SOURCE
#include "live_environment.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#define VARIABLES_MAX 4096
#define AT_ONCE 64
#define PAGE 4096u

/* Up to n bytes from `from`; less where the pages end.  Gives how many. */
static size_t copy_readable(const void *from, void *to, size_t n)
{
    struct iovec here = {.iov_base = to, .iov_len = n};
    struct iovec there = {.iov_base = (void *)(uintptr_t)from, .iov_len = n};
    ssize_t got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    size_t in_page = PAGE - (uintptr_t)from % PAGE;
    if (got == -1 && in_page < n) { /* the next page is not there */
        here.iov_len = there.iov_len = in_page;
        got = process_vm_readv(getpid(), &here, 1, &there, 1, 0);
    }
    return got > 0 ? (size_t)got : 0;
}

static bool value_of(const char *variable, const char *name, char *ret, size_t size)
{
    char text[4096];
    size_t n = strlen(name), got = copy_readable(variable, text, sizeof(text) - 1);
    text[got] = '\0';
    if (got <= n || strncmp(text, name, n) != 0 || text[n] != '=')
        return false;
    size_t length = strlen(text + n + 1);
    length = length < size ? length : size - 1;
    memcpy(ret, text + n + 1, length);
    ret[length] = '\0';
    return true;
}

int live_environment(const char *name, char *ret, size_t size)
{
    const char *some[AT_ONCE];
    char **list = __atomic_load_n(&environ, __ATOMIC_ACQUIRE);
    for (size_t i = 0; list && i < VARIABLES_MAX;) {
        size_t n = copy_readable(&list[i], some, sizeof(some)) / sizeof(some[0]);
        if (n == 0)
            return -EFAULT;
        for (size_t k = 0; k < n; k++, i++)
            if (!some[k])
                return 0;
            else if (value_of(some[k], name, ret, size))
                return 1;
    }
    return list ? -E2BIG : 0;
}
