/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/hook/hooks_test.c - hooks in this program's libraries, in and out.
 *
 * The program itself holds the plugin, so its own slots stay as they are: what is hooked here is
 * libc, which allocates for getcwd(), and the C++ library.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hook/hook.h"
#include "sample/sample.h"
#include "tests/test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static char reason[512];

static int keep_reason(const struct probing_host *h, int code, const char *text)
{
    (void)h;
    (void)snprintf(reason, sizeof(reason), "%s", text);
    return code;
}

static int no_row(struct probing_table *t, uint64_t ts, const union probing_cell *cells, uint32_t n,
                  const void *tail, uint32_t tail_n)
{
    (void)t, (void)ts, (void)cells, (void)n, (void)tail, (void)tail_n;
    return 0;
}

static const struct probing_host host = {
    .size = sizeof(host), .abi = PROBING_ABI, .fail = keep_reason, .append = no_row};

/* Bytes that this thread's countdown lost while libc allocated `n` for a path. */
static int64_t counted_for(size_t n)
{
    memory_thread.left = INT64_C(1) << 40;
    free(getcwd(NULL, n));
    return (INT64_C(1) << 40) - memory_thread.left;
}

TEST(counts_while_they_are_in)
{
    struct hooks *h = NULL;
    struct hooks_about about;
    CHECK_INT(counted_for(5000), 0);
    if (!CHECK_INT(hooks_in(&host, &h), 0))
        return;
    CHECK_INT(counted_for(5000), 5000);
    hooks_about(h, &about);
    CHECK(about.objects > 0);
    CHECK(about.slots > 3);
    CHECK_STR(about.allocator, "glibc");
    CHECK_STR(about.unseen, "");
    hooks_out(h);
    CHECK_INT(counted_for(5000), 0);
}

int main(void)
{
    if (SANITIZED)
        return test_skip("a sanitizer keeps its own account of memory: hooks are refused");
    RUN(counts_while_they_are_in);
    return test_end();
}
