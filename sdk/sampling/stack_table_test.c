/* SPDX-License-Identifier: Apache-2.0
 *
 * sdk/sampling/stack_table_test.c - numbers of stacks, and how often their rows are stored.
 *
 * The host is a clock that stands where it is put, and a list of the rows that were stored.
 */
#include "stack_table.h"

#include "probing_sdk.h"
#include "tests/test.h"

#define LONG_NS (601 * PROBING_NS_PER_S) /* after this a stack is stored again */

static uint64_t clock_ns = PROBING_NS_PER_S;
static int64_t stored_ids[64];
static uint32_t n_stored;

static uint64_t now(void)
{
    return clock_ns;
}

static int table(const struct probing_host *h, const struct probing_table_desc *d,
                 struct probing_table **ret)
{
    (void)h, (void)d;
    *ret = (struct probing_table *)(uintptr_t)8;
    return 0;
}

static int append(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n)
{
    (void)t, (void)ts, (void)n, (void)tail, (void)tail_n;
    if (n_stored < PROBING_LENGTH(stored_ids))
        stored_ids[n_stored] = cells[0].i;
    n_stored++;
    return 0;
}

static int intern(const struct probing_host *h, const void *p, size_t n, uint64_t *ret_id)
{
    (void)h;
    *ret_id = n + *(const char *)p; /* enough to tell those here apart */
    return 0;
}

static const struct probing_host host = {
    .size = sizeof(host), .table = table, .append = append, .intern = intern, .now = now};

static struct stacks *begin(uint32_t frames[2], bool keeps)
{
    struct stacks *s;
    n_stored = 0;
    if (!CHECK_INT(stacks_new(&host, "python.stacks", "", &s), 0))
        return NULL;
    if (keeps)
        stacks_keep_numbers(s);
    frames[0] = stacks_mark(s, MARK_READY);
    frames[1] = stacks_mark(s, MARK_CUT);
    return s;
}

TEST(a_stack_is_stored_once_and_after_long_under_another_number)
{
    uint32_t frames[2];
    struct stacks *s = begin(frames, /* keeps= */ false);
    if (!s)
        return;
    int64_t first = stacks_number(s, frames, 2, now());
    CHECK(first > 0);
    CHECK_INT(stacks_number(s, frames, 2, now()), first);
    CHECK_INT(n_stored, 2);
    CHECK(stacks_number(s, frames, 1, now()) != first);
    clock_ns += LONG_NS;
    CHECK(stacks_number(s, frames, 2, now()) > first);
    CHECK_INT(n_stored, 5);
    stacks_free(s);
}

TEST(one_that_keeps_its_number_is_stored_again_under_it)
{
    uint32_t frames[2];
    struct stack_words words;
    struct stacks *s = begin(frames, /* keeps= */ true);
    if (!s)
        return;
    int64_t number = stacks_number(s, frames, 2, now());
    CHECK(stacks_words(s, frames[0], &words));
    CHECK_STR(words.func, "[waiting for a CPU]");
    CHECK(!words.python && words.line == 0 && !*words.file && !*words.module);
    CHECK(!stacks_words(s, 0, &words) && !stacks_words(s, 999, &words));

    clock_ns += LONG_NS;
    CHECK_INT(stacks_number(s, frames, 2, now()), number);
    CHECK_INT(n_stored, 4);
    CHECK(stored_ids[2] == number && stored_ids[3] == number);

    /* not seen any more, but still of interest */
    clock_ns += LONG_NS;
    stacks_renew(s, number, now());
    stacks_renew(s, number, now());
    CHECK_INT(n_stored, 6);
    stacks_renew(s, number + 1, now()); /* nobody's */
    stacks_renew(s, 0, now());
    CHECK_INT(n_stored, 6);
    stacks_free(s);
}

int main(void)
{
    RUN(a_stack_is_stored_once_and_after_long_under_another_number);
    RUN(one_that_keeps_its_number_is_stored_again_under_it);
    return test_end();
}
