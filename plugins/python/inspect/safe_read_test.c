/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/inspect/safe_read_test.c - reading what is there, what is half there, and in a
 * forked child.
 *
 * One thread.
 */
#include "inspect/safe_read.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

#define PAGE 4096

/* Two pages, the second of which cannot be read. */
static uint8_t *half(void)
{
    uint8_t *two = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(two != MAP_FAILED) || !CHECK(mprotect(two + PAGE, PAGE, PROT_NONE) == 0))
        return NULL;
    memset(two, 7, PAGE);
    return two;
}

static void all_reads(const struct peek *p)
{
    uint8_t *two = half(), to[64];
    if (!two)
        return;
    uint64_t end = address_of(two) + PAGE;
    CHECK_INT(peek_bytes(p, end - 8, to, 8), 0);
    CHECK_INT(peek_bytes(p, end - 8, to, 9), -EFAULT);
    CHECK_INT(peek_bytes(p, 8, to, 8), -EFAULT);
    CHECK_INT(peek_bytes(p, UINT64_C(0xffff800000000000), to, 8), -EFAULT);
    CHECK_INT(peek_some(p, end, to, 8), 0);
    two[0] = 1;
    two[9] = 2;
    const struct iovec pieces[] = {peek_piece(address_of(two), 1),
                                   peek_piece(address_of(two) + 9, 1), peek_piece(end - 4, 4),
                                   peek_piece(end, 4), peek_piece(address_of(two), 1)};
    CHECK_INT(peek_pieces(p, pieces, 3, to), 6);
    CHECK(to[0] == 1 && to[1] == 2 && to[2] == 7 && to[5] == 7);
    CHECK_INT(peek_pieces(p, pieces, 5, to), 6);
    CHECK_INT(peek_pieces(p, pieces + 3, 2, to), 0);
    (void)munmap(two, 2 * PAGE);
}

TEST(what_cannot_be_read)
{
    struct peek p, far;
    CHECK_INT(peek_open(&p, 0, 0), 0);
    CHECK(p.own != NULL);
    all_reads(&p);
    CHECK_INT(peek_open(&far, getpid(), 0), 0); /* as another process is read */
    CHECK(far.own == NULL);
    all_reads(&far);
    peek_close(&far);
    peek_close(&p);
}

TEST(more_pieces_than_a_system_call_takes)
{
    static uint32_t from[3000], to[3000];
    static struct iovec pieces[3000];
    struct peek p;
    for (uint32_t i = 0; i < 3000; i++) {
        from[i] = i * 7;
        pieces[i] = peek_piece(address_of(&from[i]), sizeof(from[i]));
    }
    CHECK_INT(peek_open(&p, 0, 0), 0);
    CHECK_INT(peek_pieces(&p, pieces, 3000, (uint8_t *)to), sizeof(to));
    CHECK(memcmp(from, to, sizeof(to)) == 0);
    peek_close(&p);
}

/* A child that goes on with its parent's struct must not touch the parent's memory. */
TEST(a_forked_child_reads_nothing)
{
    static uint32_t value = 1, to = 5;
    struct peek p;
    CHECK_INT(peek_open(&p, 0, 0), 0);
    pid_t child = fork();
    if (child == 0)
        _exit(peek_bytes(&p, address_of(&value), &to, sizeof(to)) == -EFAULT ? 0 : 1);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    CHECK_INT(WEXITSTATUS(status), 0);
    CHECK_INT(to, 5);
    CHECK_INT(peek_bytes(&p, address_of(&value), &to, sizeof(to)), 0);
    CHECK_INT(to, 1);
    peek_close(&p);
}

int main(void)
{
    RUN(what_cannot_be_read);
    RUN(more_pieces_than_a_system_call_takes);
    RUN(a_forked_child_reads_nothing);
    return test_end();
}
