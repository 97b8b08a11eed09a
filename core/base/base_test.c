/* SPDX-License-Identifier: Apache-2.0
 *
 * core/base/base_test.c - errors, buffers, arenas, files and the clock in use.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/guest/thread.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/buf.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

TEST(an_error_keeps_its_reason)
{
    CHECK_INT(err_set(-EINVAL, "column '%s' has no type", "x"), -EINVAL);
    CHECK_STR(err_text(), "column 'x' has no type");
    CHECK_STR(err_why(-EINVAL), "column 'x' has no type");
    CHECK_STR(err_why(-ENOENT), "No such file or directory");
    (void)err_set(-EIO, "first: %s", err_text()); /* its own text as an argument */
    CHECK_STR(err_text(), "first: column 'x' has no type");
    char longer[3000];
    memset(longer, 'a', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    (void)err_set(-EIO, "%s", longer);
    CHECK_INT(strlen(err_text()), ERR_TEXT_BYTES - 1);
    err_clear();
    CHECK_STR(err_text(), "");
}

TEST(a_buffer_grows_to_its_maximum)
{
    struct buf b;
    buf_init(&b, 1000);
    CHECK_STR(buf_text(&b), "");
    CHECK_INT(buf_addf(&b, "%d-%s", 42, "x"), 0);
    CHECK_INT(buf_addc(&b, '!'), 0);
    CHECK_STR(buf_text(&b), "42-x!");
    while (buf_adds(&b, "0123456789") == 0)
        ;
    CHECK_INT(b.failed, -ENOBUFS);
    CHECK_INT(b.size, 995);
    CHECK_INT(buf_addc(&b, 'z'), -ENOBUFS); /* it stays failed, whatever would fit */
    CHECK(buf_steal(&b, NULL) == NULL);
    buf_reset(&b);
    CHECK_INT(buf_addf(&b, "%0999d", 1), 0);
    CHECK_INT(buf_addf(&b, "%d", 22), -ENOBUFS);
    CHECK_INT(strlen(buf_text(&b)), 999);
    buf_reset(&b);
    char *room = buf_room(&b, 3);
    if (CHECK(room != NULL)) {
        memcpy(room, "abc", 3);
        b.size += 3;
    }
    size_t size = 0;
    char *text = buf_steal(&b, &size);
    CHECK_STR(text, "abc");
    CHECK_INT(size, 3);
    free(text);
    buf_done(&b);
}

TEST(a_buffer_survives_missing_memory)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct buf b;
        buf_init(&b, 1 << 20);
        int rc = 0;
        for (int i = 0; i < 1000 && rc == 0; i++)
            rc = buf_adds(&b, "some words");
        CHECK(rc == 0 || rc == -ENOMEM);
        CHECK_INT(b.size % 10, 0);
        buf_done(&b);
    }
}

TEST(an_arena_gives_aligned_pieces_up_to_its_limit)
{
    struct arena a;
    arena_init(&a, 100000);
    size_t sum = 0;
    for (size_t n = 0; n < 400; n++) {
        char *p = arena_alloc(&a, n);
        if (!p)
            break;
        CHECK_INT((uintptr_t)p % 16, 0);
        memset(p, 0x55, n);
        sum += n;
    }
    CHECK(sum > 60000 && a.used_bytes <= 100000);
    CHECK(arena_alloc(&a, 90000) == NULL);
    CHECK(arena_zalloc(&a, SIZE_MAX / 2, 4) == NULL);
    arena_done(&a);
    arena_init(&a, 0);
    CHECK_STR(arena_text(&a, "hello", 3), "hel");
    uint64_t *zeros = arena_zalloc(&a, 100, 8);
    CHECK(zeros && zeros[0] == 0 && zeros[99] == 0);
    fail_alloc_at(1);
    CHECK(arena_alloc(&a, 1 << 20) == NULL);
    fail_alloc_at(0);
    arena_done(&a);
}

TEST(files_are_written_whole_and_directories_private)
{
    char root[] = "/tmp/probing-base-XXXXXX", path[100], inner[120];
    if (!CHECK(mkdtemp(root) != NULL))
        return;
    (void)snprintf(path, sizeof(path), "%s/dir", root);
    CHECK_INT(file_private_dir(path), 0);
    CHECK_INT(file_private_dir(path), 0);
    CHECK_INT(chmod(path, 0755), 0);
    CHECK_INT(file_private_dir(path), -EPERM);
    CHECK(strstr(err_text(), "chmod 700") != NULL);
    (void)snprintf(inner, sizeof(inner), "%s/note", path);
    CHECK_INT(file_write(AT_FDCWD, inner, "hello", 5, 0600), 0);
    CHECK_INT(file_write(AT_FDCWD, inner, "world!", 6, 0600), 0);
    CHECK_INT(file_private_dir(inner), -ENOTDIR);
    struct buf b;
    buf_init(&b, 100);
    CHECK_INT(file_read(AT_FDCWD, inner, &b), 0);
    CHECK_STR(buf_text(&b), "world!");
    buf_done(&b);
    buf_init(&b, 3);
    CHECK_INT(file_read(AT_FDCWD, inner, &b), -ENOBUFS);
    buf_done(&b);
    CHECK_INT(file_read(AT_FDCWD, "/nonexistent", &b), -ENOENT);
    CHECK_INT(file_remove_dir(root), 0);
    CHECK_INT(access(root, F_OK), -1);
    uint64_t ticks = 0;
    CHECK_INT(proc_start_time(getpid(), &ticks), 0);
    CHECK(ticks > 0);
    CHECK_INT(proc_start_time(0x7ffffff0, &ticks), -ESRCH);
}

TEST(the_clock_follows_the_kernels_and_never_goes_back)
{
    struct event never;
    CHECK_INT(event_init(&never), 0);
    uint64_t last = clock_now(), steps_back = 0, furthest = 0;
    for (int round = 0; round < 8; round++) {
        clock_calibrate();
        for (int i = 0; i < 20000; i++) {
            uint64_t now = clock_now();
            steps_back += now + 200 < last; /* kernel to counter: 200 ns are two readings apart */
            last = now;
        }
        uint64_t before = clock_monotonic(), mine = clock_now(), after = clock_monotonic();
        uint64_t off = mine < before ? before - mine : mine > after ? mine - after : 0;
        furthest = off > furthest ? off : furthest;
        (void)event_wait(&never, 60 * NS_PER_MS);
    }
    CHECK_INT(steps_back, 0);
    CHECK(furthest < 50 * NS_PER_US);
    CHECK(clock_utc_offset() == clock_utc_offset() && clock_utc_offset() != 0);
    event_done(&never);
}

int main(void)
{
    RUN(an_error_keeps_its_reason);
    RUN(a_buffer_grows_to_its_maximum);
    RUN(a_buffer_survives_missing_memory);
    RUN(an_arena_gives_aligned_pieces_up_to_its_limit);
    RUN(files_are_written_whole_and_directories_private);
    RUN(the_clock_follows_the_kernels_and_never_goes_back);
    return test_end();
}
