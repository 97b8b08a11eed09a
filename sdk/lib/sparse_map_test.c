/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/sparse_map_test.c - only what is touched is memory, in a program with its memory locked.
 */
#define _GNU_SOURCE
#include "sdk/lib/sparse_map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/test.h"

#define SIZE ((size_t)8 << 20)

static size_t pages_there(void *at)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    unsigned char there[SIZE / 4096];
    if (mincore(at, SIZE, there) != 0)
        return SIZE_MAX;
    for (size_t i = 0; i < SIZE / page; i++)
        n += there[i] & 1u;
    return n;
}

/* false: this machine does not let us. */
static bool lock_what_comes(void)
{
    return mlockall(MCL_FUTURE) == 0;
}

TEST(memory_is_what_is_touched)
{
    uint8_t *at = sparse_map(SIZE);
    if (!CHECK(at != NULL))
        return;
    CHECK_INT(pages_there(at), 0);
    at[SIZE / 2] = 1;
    CHECK_INT(pages_there(at), 1);
    CHECK_INT(munmap(at, SIZE), 0);
}

TEST(a_file_stays_empty)
{
    int fd = (int)syscall(SYS_memfd_create, "sparse", 0u); /* a disk's would be read ahead */
    CHECK_INT(ftruncate(fd, SIZE), 0);
    uint8_t *at = sparse_map_file(fd, SIZE, PROT_READ | PROT_WRITE);
    if (!CHECK(at != NULL))
        return;
    CHECK_INT(pages_there(at), 0);
    at[1] = 7;
    CHECK_INT(sparse_map_again(at, SIZE, -1), 0);
    CHECK_INT(at[1], 0);
    CHECK_INT(sparse_map_again(at, SIZE, fd), 0);
    CHECK_INT(at[1], 7);
    CHECK_INT(pages_there(at), 1);
    CHECK_INT(munmap(at, SIZE), 0);
    CHECK_INT(close(fd), 0);
}

TEST(what_cannot_be_mapped_is_refused)
{
    errno = 0;
    CHECK(sparse_map(SIZE_MAX / 2) == NULL);
    CHECK_INT(errno, ENOMEM);
    CHECK(sparse_map_file(-1, SIZE, PROT_READ) == NULL);
    CHECK_INT(errno, EBADF);
    uint8_t *at = sparse_map(SIZE);
    at[3] = 3;
    CHECK_INT(sparse_map_again(at, SIZE, 1000000), -EBADF);
    CHECK_INT(at[3], 3);
    CHECK_INT(munmap(at, SIZE), 0);
}

int main(void)
{
    RUN(memory_is_what_is_touched);
    if (!lock_what_comes())
        return test_end();
    RUN(memory_is_what_is_touched);
    RUN(a_file_stays_empty);
    RUN(what_cannot_be_mapped_is_refused);
    return test_end();
}
