/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/environ_now.c - see environ_now.h.
 *
 * Any thread; keeps nothing.
 */
#include "environ_now.h"

#include <errno.h>
#include <string.h>

#define VARIABLES_MAX 16384    /* of more the rest is passed over */
#define VARIABLE_MAX (1 << 17) /* bytes, as execve(2) takes them */
#define AT_ONCE 512

/* Up to its NUL; one that is longer, or ends where nothing is mapped, is left out. */
static int add_variable(struct proc_memory *m, uint64_t at, struct buf *ret)
{
    char text[AT_ONCE];
    size_t before = ret->size, n = 0;
    const char *end = NULL;
    int rc = 0;

    for (size_t i = 0; rc == 0 && end == NULL && i < VARIABLE_MAX; i += n) {
        n = proc_memory_read(m, at + i, text, sizeof(text));
        end = memchr(text, '\0', n);
        rc = buf_add(ret, text, end != NULL ? (size_t)(end - text) : n);
        if (n < sizeof(text))
            break;
    }
    if (rc < 0 || end == NULL)
        ret->size = before;
    return rc < 0 || end == NULL ? rc : buf_addc(ret, '\0');
}

int proc_environ_now(struct proc_memory *m, uint64_t at, struct buf *ret)
{
    uint64_t list, some[AT_ONCE / sizeof(uint64_t)];
    size_t n = sizeof(some);
    int rc = proc_memory_read(m, at, &list, sizeof(list)) == sizeof(list) ? 0 : -EFAULT;

    for (uint32_t i = 0; rc == 0 && list != 0 && i < VARIABLES_MAX && n == sizeof(some);) {
        n = proc_memory_read(m, list + i * sizeof(*some), some, sizeof(some));
        for (size_t k = 0; rc == 0 && k < n / sizeof(*some); k++, i++) {
            if (some[k] == 0)
                return 0;
            rc = add_variable(m, some[k], ret);
        }
    }
    return rc;
}
