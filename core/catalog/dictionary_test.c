/* SPDX-License-Identifier: Apache-2.0
 *
 * core/catalog/dictionary_test.c - names and their numbers: found again, kept over a life, read by
 * others.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/catalog/dictionary.h"
#include "tests/fail_alloc.h"
#include "tests/test.h"

#define NAMES 20000
#define THREADS 3

static char directory[] = "/tmp/probing-intern-XXXXXX";
static char path[64];
static struct interns *names;

static uint64_t id_of(struct interns *s, int i)
{
    char text[32];
    uint64_t id = 0;
    int n = snprintf(text, sizeof(text), "layers.%d.attention", i);
    CHECK_INT(intern(s, text, (size_t)n, &id), 0);
    return id;
}

TEST(the_same_bytes_have_the_same_number)
{
    uint64_t a, b, empty;
    uint32_t size = 99;
    if (!CHECK_INT(interns_create(path, &names), 0))
        return;
    CHECK_INT(intern(names, "x\0y", 3, &a), 0);
    CHECK_INT(intern(names, "x\0z", 3, &b), 0);
    CHECK_INT(intern(names, "", 0, &empty), 0);
    CHECK(a == 1 && b == 2 && empty == 3);
    CHECK_INT(intern(names, "x\0y", 3, &b), 0);
    CHECK_INT(b, 1);
    CHECK_INT(memcmp(intern_text(names, 1, &size), "x\0y", 4), 0);
    CHECK_INT(size, 3);
    CHECK_STR(intern_text(names, 3, &size), "");
    CHECK_INT(size, 0);
    CHECK(intern_text(names, 0, &size) == NULL);
    CHECK(intern_text(names, 4, &size) == NULL);
    CHECK(intern_text(names, UINT64_MAX, NULL) == NULL);
    static char longest[65537];
    CHECK_INT(intern(names, longest, 65536, &a), 0);
    CHECK_INT(intern(names, longest, 65537, &a), -E2BIG);
    CHECK_INT(intern_last(names), 4);
}

static void *add_names(void *arg)
{
    uint64_t *ids = arg;
    for (int i = 0; i < NAMES; i++)
        ids[i] = id_of(names, i);
    return NULL;
}

TEST(threads_agree_on_numbers)
{
    static uint64_t ids[THREADS][NAMES];
    pthread_t threads[THREADS];
    uint64_t bad = 0, before = intern_last(names);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, add_names, ids[i]), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < NAMES; i++)
        bad += ids[0][i] != ids[1][i] || ids[0][i] != ids[2][i];
    CHECK_INT(bad, 0);
    CHECK_INT(intern_last(names), before + NAMES);
}

TEST(names_outlive_their_process)
{
    struct interns *left;
    struct stat st;
    uint32_t size;
    uint64_t first = id_of(names, 0);
    if (CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), 0)) {
        CHECK_INT(intern_last(left), intern_last(names));
        CHECK_STR(intern_text(left, first + 7, &size), intern_text(names, first + 7, &size));
        uint64_t id;
        CHECK_INT(intern(left, "new", 3, &id), -EROFS);
        interns_free(left);
    }
    interns_free(names);
    CHECK_INT(stat(path, &st), 0);
    CHECK(st.st_blocks * 512 < 4 << 20);              /* holes, not 256 MiB */
    if (CHECK_INT(interns_create(path, &names), 0)) { /* a second life */
        CHECK_INT(id_of(names, 0), first);
        CHECK_INT(id_of(names, NAMES - 1), first + NAMES - 1);
        CHECK_INT(id_of(names, NAMES), first + NAMES);
        interns_free(names);
    }
}

TEST(broken_files_are_refused_and_wild_places_not_followed)
{
    struct interns *left;
    uint32_t size, wild[3] = {0, UINT32_MAX, 33 << 17};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK_INT(pwrite(fd, wild, sizeof(wild), 4096), sizeof(wild));
    if (CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), 0)) {
        CHECK(intern_text(left, 1, &size) == NULL);
        CHECK(intern_text(left, 2, &size) == NULL);
        CHECK(intern_text(left, 5, &size) != NULL);
        interns_free(left);
    }
    CHECK_INT(ftruncate(fd, 1 << 20), 0);
    CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), -EINVAL);
    CHECK_INT(interns_create(path, &left), -EINVAL);
    CHECK_INT(pwrite(fd, "no", 2, 0), 2);
    CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), -EINVAL);
    CHECK_INT(ftruncate(fd, 10), 0);
    CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), -EINVAL);
    (void)close(fd);
    CHECK_INT(unlink(path), 0);
    CHECK_INT(interns_open(file_open(AT_FDCWD, path), path, &left), -ENOENT);
}

TEST(missing_memory_is_an_error)
{
    for (unsigned n = 1; fail_alloc_step(n); n++) {
        struct interns *s = NULL;
        uint64_t id;
        int rc = interns_create(path, &s);
        for (int i = 0; i < 3000 && rc == 0; i++)
            rc = intern(s, &i, sizeof(i), &id);
        CHECK(rc == 0 || rc == -ENOMEM);
        interns_free(s);
        (void)unlink(path);
    }
}

int main(void)
{
    if (!mkdtemp(directory))
        return test_skip("no /tmp");
    (void)snprintf(path, sizeof(path), "%s/strings", directory);
    RUN(the_same_bytes_have_the_same_number);
    RUN(threads_agree_on_numbers);
    RUN(names_outlive_their_process);
    RUN(broken_files_are_refused_and_wild_places_not_followed);
    RUN(missing_memory_is_an_error);
    (void)file_remove_dir(directory);
    return test_end();
}
