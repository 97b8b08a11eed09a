/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/hang/looks_test.h - stacks as looks find them, and a verdict to compare with, for unit tests.
 *
 * One thread.
 */
#ifndef CLI_HANG_LOOKS_TEST_H
#define CLI_HANG_LOOKS_TEST_H

#include <errno.h>

/* One unit, because a unit test is linked with libcore.a alone. */
#include "cli/hang/hang_judge.c"
#include "cli/hang/hang_stacks.c"
#include "cli/hang/hang_waits.c"
#include "cli/hang/stack_tree.c"
#include "cli/job/rank_ranges.c"
#include "tests/test.h"

#define THREAD(state, frames)                                                                    \
    "{\"threads\":[{\"tid\":1,\"state\":\"" state "\",\"syscall\":\"futex\",\"frames\":[" frames \
    "]}]}"
#define PYTHON(func, file, line) \
    "{\"type\":\"python\",\"func\":\"" func "\",\"file\":\"" file "\",\"line\":" #line "}"
#define NATIVE(func) \
    "{\"type\":\"native\",\"func\":\"" func "\",\"module\":\"/lib/x.so\",\"offset\":\"0x1\"}"
#define TRAIN PYTHON("train", "/home/u/job.py", 14)
#define C10D "/opt/site-packages/torch/distributed/distributed_c10d.py"
#define ALL_REDUCE \
    THREAD("waiting", NATIVE("c10d::Work::wait()") "," PYTHON("all_reduce", C10D, 3) "," TRAIN)
#define READY \
    THREAD("running", NATIVE("c10d::Work::wait()") "," PYTHON("all_reduce", C10D, 3) "," TRAIN)
#define GET_RANK \
    THREAD("running", PYTHON("get_rank", C10D, 3) "," PYTHON("spin", "/home/u/job.py", 5))
#define BARRIER THREAD("waiting", PYTHON("barrier", C10D, 9) "," TRAIN)
#define BACKWARD THREAD("waiting", NATIVE("wait") "," NATIVE("c10d::Work::wait()") "," TRAIN)
#define DDP THREAD("waiting", NATIVE("c10d::Reducer::finalize_backward()") "," TRAIN)
#define STORE      \
    THREAD("idle", \
           NATIVE("c10d::TCPStore::get(s)") "," NATIVE("c10d::PrefixStore::get(s)") "," TRAIN)
#define LOADING                                                \
    THREAD("idle", PYTHON("sleep", "/usr/lib/python3.11/x.py", \
                          7) "," PYTHON("load", "/home/u/job.py", 9) "," TRAIN)

static int look(struct hang_rank *r, const char *text, struct buf *stacks)
{
    struct json_error e;
    struct arena a;
    struct json *j;

    arena_init(&a, 0);
    int rc = json_read(&a, text, strlen(text), &j, &e);
    rc = rc < 0 ? rc : hang_look(r, j, /* all_threads= */ false, /* brief= */ false, stacks);
    arena_done(&a);
    return rc;
}

#define RANKS_MAX 8
#define RAN (100 * (int64_t)NS_PER_MS) /* between the looks */

/* awaited: "2", "", the places in `ranks` of those that the others wait for. */
static void check_verdict_of(bool all, const struct hang_rank *ranks, size_t n,
                             enum hang_answer hangs, const char *awaited, const char *expected)
{
    bool which[RANKS_MAX];
    uint32_t circle[RANKS_MAX];
    struct hang_verdict v = {.awaited = which, .circle = circle, .all = all};
    char found[RANKS_MAX + 1] = "";
    struct buf b;

    buf_init(&b, 1u << 20);
    CHECK_INT(hang_judge(ranks, n, "rank", "ranks", &v, &b), 0);
    CHECK_STR(buf_text(&b), expected);
    CHECK_INT(v.hangs, hangs);
    for (size_t i = 0; i < n; i++)
        if (which[i])
            found[strlen(found)] = (char)('0' + i % 10);
    CHECK_STR(found, awaited);
    CHECK_INT(v.n_awaited, strlen(awaited));
    buf_done(&b);
}

static void check_verdict(const struct hang_rank *ranks, size_t n, enum hang_answer hangs,
                          const char *awaited, const char *expected)
{
    check_verdict_of(false, ranks, n, hangs, awaited, expected);
}

#endif
