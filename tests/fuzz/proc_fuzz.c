/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/proc_fuzz.c - texts of /proc of any bytes: nothing outside of them is read, and what
 * is told keeps its promises.
 */
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/proc/maps.h"
#include "sdk/lib/proc/task.h"
#include "tests/fuzz/fuzz.h"

#define BETWEEN 0x1e /* texts in an input: each is given to all readers */

static const char seed[] =
    "4711 (a) b) S 1 2 3 4 5 4194560 7 8 9 10 111 222 13 14 20 0 5 0 987654 4096000 300 "
    "18446744073709551615 1 2 3 4 5 6 7 8 9 1 2 3 17 6 0 0\n\x1e"
    "Name:\ta\\n\nState:\tS (sleeping)\nUid:\t1000\t1001\t1002\t1003\nNSpid:\t4711\t12\t1\n"
    "VmRSS:\t  123 kB\nSigBlk:\tfffffffffffffeff\nThreads:\t3\n\x1e"
    "202 0x1 0x2 0x3 0x4 0x5 0x6 0x7ffe0 0x7f00\n\x1e-1 0x10 0x20\n\x1e"
    "7f00-7f10 r-xp 00001000 08:1f 1234                     /a b/c\\012d (deleted)\n"
    "7f20-7f30 -w-s 00000000 00:00 0 \nSize: 4 kB\n\x1e"
    "A=1\0AB=2\0=odd\0none\0A=3";

static void lines(const uint8_t *data, size_t size, char *copy)
{
    struct proc_lines l;
    struct proc_status status;
    struct proc_mapping m;

    memcpy(copy, data, size);
    proc_lines_of(&l, copy, size);
    if (proc_status_parse(&l, &status) == 0)
        fuzz_must(status.state != '\0');
    memcpy(copy, data, size);
    proc_lines_of(&l, copy, size);
    while (proc_maps_next(&l, &m))
        fuzz_must(m.end > m.start && m.path >= copy && m.path + strlen(m.path) <= copy + size);
    memcpy(copy, data, size);
    copy[size] = '\0';
    const char *value = proc_environ_find(copy, size, "A");
    fuzz_must(value == NULL || (value >= copy + 2 && value[-1] == '=' && value <= copy + size));
}

static void one(const uint8_t *data, size_t size)
{
    struct proc_stat stat;
    struct proc_syscall call;
    char *copy = malloc(size + 1);

    if (copy == NULL)
        return;
    memcpy(copy, data, size);
    copy[size] = '\0';
    if (proc_stat_parse(copy, size, &stat) == 0)
        fuzz_must(strlen(stat.comm) < sizeof(stat.comm) && size > 40 && data[size - 1] == '\n');
    int where = proc_syscall_parse(copy, size, &call);
    fuzz_must(where < 0 || (where == PROC_WAITS) == (call.number >= 0));
    lines(data, size, copy);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at <= size;) {
        const uint8_t *end = at < size ? memchr(data + at, BETWEEN, size - at) : NULL;
        size_t n = end != NULL ? (size_t)(end - (data + at)) : size - at;
        one(data + at, n);
        at += n + 1;
    }
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    size_t n = sizeof(seed) - 1 < max ? sizeof(seed) - 1 : max;
    memcpy(data, seed, n);
    return n;
}
