/* SPDX-License-Identifier: Apache-2.0
 *
 * core/guest/heap_test.c - the heap of our own: whole, and gone when all is freed.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/guest/heap.h"
#include "tests/test.h"

#define PIECES 4000
#define THREADS 4
#define TURNS 60000

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Sizes as programs have them: most are small, some are large. */
static size_t some_size(uint64_t *seed)
{
    static const size_t most[] = {64, 64, 512, 4096, 20000, 300000};
    return next_random(seed) % most[next_random(seed) % 6];
}

TEST(every_size_is_as_large_as_was_asked_and_aligned)
{
    CHECK_INT(heap_mapped(), 0);
    for (size_t size = 0; size < 70000; size += size < 1100 ? 1 : 331) {
        unsigned char *p = heap_alloc(size);
        if (!CHECK(p != NULL))
            return;
        CHECK((uintptr_t)p % 16 == 0);
        CHECK(heap_size(p) >= size);
        CHECK(size > 16384 || heap_size(p) <= size + 16 + size / 4);
        memset(p, 0xa5, size);
        CHECK(heap_free(p));
    }
    CHECK_INT(heap_mapped(), 0);
}

TEST(new_memory_is_zeroed_where_that_was_asked)
{
    for (size_t size = 1; size < 100000; size = size * 3 + 1) {
        unsigned char *p = heap_alloc(size), *keep = heap_alloc(16);
        memset(p, 0xff, size);
        CHECK(heap_free(p));
        p = heap_zalloc(size, 1); /* the same piece, or block */
        for (size_t i = 0; i < size; i++)
            CHECK(p[i] == 0);
        CHECK(heap_free(p) && heap_free(keep));
    }
    errno = 0;
    CHECK(heap_zalloc(SIZE_MAX / 2, 3) == NULL);
    CHECK_INT(errno, ENOMEM);
    CHECK(heap_alloc(SIZE_MAX - 5) == NULL);
}

TEST(memory_that_grows_keeps_what_is_in_it)
{
    char *p = heap_alloc(1);
    p[0] = 'x';
    for (size_t size = 2; size < (size_t)5 << 20; size += size / 3 + 1) {
        char *grown = heap_resize(p, size);
        if (!CHECK(grown != NULL))
            break;
        p = grown;
        CHECK(p[0] == 'x' && (size < 3 || p[(size - 1) * 3 / 4 - 1] != 1));
        p[size - 1] = 1;
        CHECK(p[size - 1] == 1);
        p[size - 1] = 0;
    }
    p = heap_resize(p, 100);
    CHECK(p && p[0] == 'x');
    CHECK(heap_free(p));
    CHECK_INT(heap_mapped(), 0);
}

TEST(what_is_not_of_this_heap_is_left_alone)
{
    char on_stack[64];
    void *libcs = malloc(100), *large = malloc(1 << 20), *ours = heap_alloc(50000);
    CHECK(!heap_free(on_stack) && !heap_free(libcs) && !heap_free(large));
    CHECK_INT(heap_size(libcs), 0);
    CHECK(heap_free(ours) && !heap_free(ours)); /* twice: no longer ours */
    free(libcs);
    free(large);
}

TEST(alignment)
{
    for (size_t align = 16; align <= 4096; align *= 2) {
        void *p = heap_aligned(align, 100);
        CHECK(p && (uintptr_t)p % align == 0);
        CHECK(heap_free(p));
    }
    CHECK(heap_aligned(48, 1) == NULL);
}

/* Each piece is filled with its own number, which is looked at before it goes. */
static void *exercise(void *arg)
{
    uint64_t seed = (uintptr_t)arg * UINT64_C(0x9e3779b97f4a7c15) + 1;
    unsigned char *pieces[PIECES / THREADS] = {0};
    size_t sizes[PIECES / THREADS] = {0};
    uintptr_t wrong = 0;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t i = (uint32_t)(next_random(&seed) % (PIECES / THREADS));
        for (size_t k = 0; k < sizes[i]; k += 1 + sizes[i] / 8)
            wrong += pieces[i][k] != (unsigned char)i;
        if (pieces[i] && next_random(&seed) % 4 == 0) {
            size_t size = some_size(&seed), same = size < sizes[i] ? size : sizes[i];
            pieces[i] = heap_resize(pieces[i], size);
            for (size_t k = 0; k < same; k += 1 + sizes[i] / 8)
                wrong += pieces[i][k] != (unsigned char)i;
            sizes[i] = size;
        } else {
            wrong += pieces[i] && !heap_free(pieces[i]);
            sizes[i] = some_size(&seed);
            pieces[i] = heap_alloc(sizes[i]);
        }
        memset(pieces[i], (int)i, sizes[i]);
    }
    for (uint32_t i = 0; i < PIECES / THREADS; i++)
        wrong += pieces[i] && !heap_free(pieces[i]);
    return (void *)wrong;
}

TEST(threads_at_once_and_nothing_is_left)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&threads[i], NULL, exercise, (void *)(i + 1)), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        void *wrong = NULL;
        (void)pthread_join(threads[i], &wrong);
        CHECK(wrong == NULL);
    }
    CHECK_INT(heap_mapped(), 0);
}

TEST(what_is_resident_is_what_was_touched)
{
    const size_t size = (size_t)8 << 20;
    char *p = heap_alloc(size);
    size_t before = heap_resident();
    CHECK(p && before < size);
    memset(p, 1, size / 2);
    size_t after = heap_resident();
    CHECK(after - before >= size / 2 && after - before < size / 2 + (size_t)4 * 65536);
    CHECK(after <= heap_mapped());
    CHECK(heap_free(p));
    heap_trim(NS_PER_S);
    CHECK(heap_resident() < after);
}

TEST(a_little_that_was_freed_stays_for_the_next_who_wants_it)
{
    char *keep = heap_alloc(16), *small = heap_alloc(300000), *large = heap_alloc(4000000);
    CHECK(keep && small && large && heap_free(small) && heap_free(large));
    size_t both = heap_mapped();
    heap_trim(NS_PER_S);
    size_t after = heap_mapped();
    CHECK(both - after >= 4000000 && both - after < 4300000);
    for (int i = 0; i < 8; i++)
        heap_trim(NS_PER_S);
    CHECK_INT(heap_mapped(), after);
    CHECK(heap_alloc(300000) == small && heap_free(small)); /* and is counted anew */
    for (int i = 0; i < 9; i++)
        heap_trim(NS_PER_S);
    CHECK_INT(heap_mapped(), after);
    heap_trim(NS_PER_S);
    CHECK(after - heap_mapped() >= 300000);
    CHECK(heap_free(keep));
    CHECK_INT(heap_mapped(), 0);
}

int main(void)
{
    RUN(every_size_is_as_large_as_was_asked_and_aligned);
    RUN(new_memory_is_zeroed_where_that_was_asked);
    RUN(memory_that_grows_keeps_what_is_in_it);
    RUN(what_is_not_of_this_heap_is_left_alone);
    RUN(alignment);
    RUN(what_is_resident_is_what_was_touched);
    RUN(a_little_that_was_freed_stays_for_the_next_who_wants_it);
    RUN(threads_at_once_and_nothing_is_left);
    return test_end();
}
