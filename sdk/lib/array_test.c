/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/lib/array_test.c - arrays that grow.
 */
#include "sdk/lib/array.h"

#include "tests/fail_alloc.h"
#include "tests/test.h"

struct list {
    uint64_t *items;
    uint32_t n, room;
};

static bool add(struct list *l, uint64_t item, uint32_t max)
{
    uint64_t *items = array_grow(l->items, l->n, &l->room, sizeof(*items), max);

    if (items == NULL)
        return false;
    l->items = items;
    l->items[l->n++] = item;
    return true;
}

TEST(items_stay_as_it_grows)
{
    struct list l = {.n = 0};

    for (uint64_t i = 0; i < 1000; i++)
        CHECK(add(&l, i, UINT32_MAX));
    for (uint64_t i = 0; i < 1000; i++)
        CHECK_INT(l.items[i], i);
    CHECK_INT(l.room, 1024);
    free(l.items);
}

TEST(it_holds_as_many_as_it_may_and_no_more)
{
    const uint32_t limits[] = {1, 15, 16, 17, 24, 100};

    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct list l = {.n = 0};
        while (add(&l, l.n, limits[i]) && l.n <= limits[i])
            continue;
        CHECK_INT(l.n, limits[i]);
        CHECK_INT(l.room, limits[i]);
        free(l.items);
    }
}

TEST(without_memory_it_stays_as_it_was)
{
    struct list l = {.n = 0};

    for (uint64_t i = 0; i < ARRAY_ROOM; i++)
        CHECK(add(&l, i, UINT32_MAX));
    fail_alloc_at(1);
    CHECK(!add(&l, ARRAY_ROOM, UINT32_MAX));
    CHECK(fail_alloc_happened());
    fail_alloc_at(0);
    CHECK_INT(l.n, ARRAY_ROOM);
    CHECK_INT(l.room, ARRAY_ROOM);
    CHECK(add(&l, ARRAY_ROOM, UINT32_MAX));
    CHECK_INT(l.items[ARRAY_ROOM - 1], ARRAY_ROOM - 1);
    free(l.items);
}

int main(void)
{
    RUN(items_stay_as_it_grows);
    RUN(it_holds_as_many_as_it_may_and_no_more);
    RUN(without_memory_it_stays_as_it_was);
    return test_end();
}
