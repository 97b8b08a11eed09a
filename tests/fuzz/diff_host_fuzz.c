/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/fuzz/diff_host_fuzz.c - what another machine says of its ranks to `cluster diff`: it is
 * refused whole, or read, compared, and written so that it can be read again as the same.
 */
#include <string.h>

/* The command is no library: what reads it is built in. */
#include "cli/diff/diff_facts.c"
#include "cli/diff/diff_json.c"
#include "cli/job/ranks.c"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct cluster_options o = {.all = true};
    struct diff_found f, again;
    struct buf b;

    diff_init(&f);
    diff_init(&again);
    buf_init(&b, (size_t)256 << 20);
    if (diff_read((const char *)data, size, "host", &f) == 0) {
        fuzz_must(ranks_find_job(&f.ranks, NULL, false, &f.job) == 0);
        fuzz_must(diff_write(&o, &f, &b) == 0);
        fuzz_must(diff_read(b.data, b.size, "host", &again) == 0);
        fuzz_must(again.ranks.n == f.ranks.n && again.n_facts <= f.n_facts);
        for (size_t i = 0; i < f.n_facts; i++)
            for (const char *at = f.facts[i].value; *at != '\0'; at++)
                fuzz_must((unsigned char)*at >= ' ');
    } else {
        fuzz_must(f.ranks.n == 0 && f.n_facts == 0);
    }
    buf_done(&b);
    diff_done(&f);
    diff_done(&again);
    return 0;
}

size_t fuzz_seed(uint8_t *data, size_t max)
{
    static const char seed[] =
        "{\"job\": \"4711\", \"world_size\": 3, \"ranks\": [{\"host\": \"a\", \"rank\": 0, "
        "\"pid\": 7}, "
        "{\"rank\": 1, \"pid\": 8, \"why\": \"x\"}, {\"rank\": 2}], \"facts\": ["
        "{\"kind\": \"environment\", \"name\": \"A\", \"values\": [{\"value\": \"1\", \"ranks\": "
        "[0,2]}, "
        "{\"value\": null, \"ranks\": [1]}]}, {\"kind\": \"environment\", \"name\": \"RANK\", "
        "\"values\": "
        "[{\"value\": \"0\", \"ranks\": [0]}, {\"value\": \"1\", \"ranks\": [1]}]}]}";

    return fuzz_text(seed, data, max);
}
