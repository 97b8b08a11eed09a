/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/proc/environ_now.c - see environ_now.h.
 *
 * Any thread; keeps nothing.
 */
#include "environ_now.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "proc_file.h"

#define VARIABLES_MAX 16384    /* of more the rest is passed over */
#define VARIABLE_MAX (1 << 17) /* bytes, as execve(2) takes them */
#define AT_ONCE 512
#define READ_STEP 65536 /* bytes */

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

/* Add what the kernel shows of its beginning, or nothing if a title was written over it: then the
 * first text is the rest of that, or none. */
static int add_beginning(struct buf *ret)
{
    const size_t before = ret->size;
    int64_t n = 1;
    int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
    while (n > 0 && fd != -1 && !ret->failed) {
        char *room = buf_room(ret, READ_STEP);
        n = room ? read(fd, room, READ_STEP) : 0;
        ret->size += n > 0 ? (size_t)n : 0;
    }
    if (fd != -1)
        (void)close(fd);
    if (ret->failed)
        return ret->failed;
    size_t first = strcspn(buf_text(ret) + before, "=");
    if (ret->size == before || ret->data[before + first] != '=')
        ret->size = before;
    return ret->size > before && ret->data[ret->size - 1] != '\0' ? buf_addc(ret, '\0') : 0;
}

int proc_environ_own(struct buf *ret)
{
    struct proc_memory memory = PROC_MEMORY_OF(0); /* threads of the program may be setting some */
    struct buf now;
    char name[AT_ONCE];
    const size_t begin = ret->size;
    int rc = add_beginning(ret);
    const size_t n = ret->size - begin; /* bytes of its beginning */

    buf_init(&now, ret->max);
    if (rc == 0 && proc_environ_now(&memory, (uintptr_t)&environ, &now) == 0)
        for (size_t at = 0; rc == 0 && at < now.size; at += strlen(now.data + at) + 1) {
            const char *one = now.data + at;
            size_t size = strcspn(one, "=");
            bool known = size >= sizeof(name);
            if (!known && n > 0) {
                memcpy(name, one, size);
                name[size] = '\0';
                known = proc_environ_find(ret->data + begin, n - 1, name) != NULL;
            }
            rc = known ? 0 : buf_add(ret, one, strlen(one) + 1);
        }
    buf_done(&now);
    proc_memory_close(&memory);
    return rc;
}
