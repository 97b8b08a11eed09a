/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/hang_host_fuzz.c - what another machine says of its ranks to `cluster hang`: it is
 * refused whole, or read, judged, drawn, and written so that it can be read again.
 */
#include <string.h>

/* The command is no library: what reads it is built in. */
#include "cli/hang/hang_json.c"
#include "cli/hang/hang_judge.c"
#include "cli/hang/hang_stacks.c"
#include "cli/hang/hang_waits.c"
#include "cli/hang/stack_tree.c"
#include "cli/job/rank_ranges.c"
#include "cli/job/ranks.c"
#include "tests/fuzz/fuzz.h"

#define RANKS_JUDGED 1000

static void draw(const struct hang_found *f)
{
    struct stack_tree *tree = stack_tree_new();
    struct json_error bad;
    struct json *stacks;
    struct arena a;
    struct buf b;

    fuzz_must(tree != NULL);
    buf_init(&b, (size_t)64 << 20);
    for (uint32_t i = 0; i < f->n; i++) {
        const struct buf *text = &f->list[i].stacks;
        arena_init(&a, (size_t)64 << 20);
        if (text->size > 0 && text->failed == 0) {
            fuzz_must(json_read(&a, text->data, text->size, &stacks, &bad) == 0);
            fuzz_must(hang_plant(tree, i, stacks, i % 2 == 0) == 0);
        }
        arena_done(&a);
    }
    stack_tree_print(tree, "", "rank", "ranks", &b);
    buf_done(&b);
    stack_tree_free(tree);
}

/* As many lines as sentences: no rank's words begin one. */
static void judge_and_write(const struct hang_found *f, struct buf *ret)
{
    const struct cluster_options o = {.looks = 3};
    struct hang_rank *ranks = calloc(f->n + 1, sizeof(*ranks));
    struct hang_verdict v = {.awaited = calloc(f->n + 1, sizeof(bool)),
                             .circle = calloc(f->n + 1, sizeof(uint32_t))};
    struct buf says;
    uint32_t n = f->n < RANKS_JUDGED ? f->n : RANKS_JUDGED, lines = 0;

    fuzz_must(ranks != NULL && v.awaited != NULL && v.circle != NULL);
    for (uint32_t i = 0; i < n; i++)
        ranks[i] = f->list[i].rank;
    buf_init(&says, (size_t)64 << 20);
    fuzz_must(hang_judge(ranks, n, "rank", "ranks", &v, &says) == 0);
    for (const char *at = buf_text(&says); *at != '\0'; at++) {
        fuzz_must(*at == '\n' || (unsigned char)*at >= ' ');
        lines += *at == '\n';
    }
    fuzz_must(lines <= n + 3 + (v.n_circles < CIRCLES_SHOWN ? v.n_circles : CIRCLES_SHOWN + 1));
    hang_write(&o, f, &v, buf_text(&says), "", ret);
    fuzz_must(ret->failed == 0);
    buf_done(&says);
    free(ranks);
    free(v.awaited);
    free(v.circle);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hang_found f = {.job = RANK_UNKNOWN}, again = f;
    struct buf b;

    buf_init(&b, (size_t)256 << 20);
    if (hang_read((const char *)data, size, "host", &f) == 0) {
        fuzz_must(ranks_find_job(&f.claims, NULL, false, &f.job) == 0);
        draw(&f);
        judge_and_write(&f, &b);
        fuzz_must(hang_read(b.data, b.size, "host", &again) == 0 && again.n <= f.n);
        for (uint32_t i = 0; i < f.n; i++)
            fuzz_must(strcmp(f.list[i].rank.host, "host") == 0);
    } else {
        fuzz_must(f.n == 0);
    }
    buf_done(&b);
    hang_found_done(&f);
    hang_found_done(&again);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char seed[] =
        "{\"job\": \"4711\", \"launcher\": \"torchrun\", \"world_size\": 4, \"span_s\": 2.5, "
        "\"ranks\": [{\"rank\": 0, \"pid\": 7, \"state\": \"waits\", \"operation\": "
        "\"all_reduce\", \"call\": {\"group\": \"1\", \"ranks\": \"0-2,6-8/2\", \"peer\": 2, "
        "\"tag\": 0}, "
        "\"place\": \"train, job.py:4\", \"doing\": \"waiting in futex\", \"looks\": 3, \"woken\": "
        "0, "
        "\"why\": null, \"stacks\": "
        "[{\"doing\":\"waiting\",\"frames\":[[\"python\",\"f\",\"a.py:1\"],"
        "[\"native\",\"g\",\"\"]]}]}, {\"rank\": 1, \"state\": \"gone\", \"why\": \"it ended\"}, "
        "{\"rank\": 2, \"pid\": 8, \"state\": \"elsewhere\", \"place\": \"load\", \"looks\": 3}]}";

    return fuzz_text(seed, data, max);
}
