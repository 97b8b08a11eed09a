/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/cuda_record_fuzz.c - bytes that are said to be records of CUPTI's: nothing behind them
 * is read, and what is told is of a kind that is known.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cuda/cupti/record.h"
#include "tests/cuda/cupti_figures.h"
#include "tests/fuzz/fuzz.h"

#define STEP 8 /* records are aligned so; one may be said to be at any */

static const struct {
    uint32_t kind;
    const char *record;
} kinds[] = {{CUPTI_MEMCPY, "memcpy"},
             {CUPTI_MEMSET, "memset"},
             {CUPTI_DRIVER, "api"},
             {CUPTI_CONTEXT, "context"},
             {CUPTI_CONCURRENT_KERNEL, "kernel"},
             {CUPTI_OVERHEAD, "overhead"},
             {CUPTI_MEMCPY2, "memcpy2"},
             {CUPTI_SYNCHRONIZATION, "sync"},
             {CUPTI_MEMORY2, "memory"}};

static int is_known(uint32_t kind)
{
    int known = kind == CUPTI_RUNTIME;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        known = known || kinds[i].kind == kind;
    return known;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (size_t at = 0; at < size; at += STEP) {
        struct record r = {.kind = 0};
        uint8_t *exact = malloc(size - at); /* a sanitizer sees what is read behind it */
        if (exact == NULL)
            return 0;
        memcpy(exact, data + at, size - at);
        int rc = record_read(exact, size - at, &r);
        fuzz_must(rc == 0 || rc == -ENOENT || rc == -EBADMSG);
        fuzz_must(rc != 0 || is_known(r.kind));
        free(exact);
    }
    return 0;
}

/* One record of each kind, as the newest version has it. */
size_t fuzz_seed(uint8_t *data, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const struct cupti_layout *l = figures_of(&versions[CUPTI_VERSIONS - 1], kinds[i].record);
        if (n + l->size > max)
            break;
        memset(data + n, 0x11, l->size);
        memcpy(data + n, &kinds[i].kind, sizeof(kinds[i].kind));
        n += l->size;
    }
    return n;
}
