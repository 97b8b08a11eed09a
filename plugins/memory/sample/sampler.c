/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/sampler.c - the samples' way into tables.
 */
#include "sampler.h"

#include <errno.h>
#include <stdlib.h>

struct sampler {
    const struct probing_host *host;
    uint64_t mean;
};

int sampler_new(const struct probing_host *host, struct sampler **ret)
{
    struct sampler *s = calloc(1, sizeof(*s));
    if (!s)
        return host->fail(host, -ENOMEM, "no memory");
    s->host = host;
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    free(s);
}

int sampler_start(struct sampler *s)
{
    (void)s;
    return 0;
}

int sampler_stop(struct sampler *s)
{
    (void)s;
    return 0;
}

void sampler_set_mean(struct sampler *s, uint64_t bytes)
{
    s->mean = bytes;
}

void sampler_forked(struct sampler *s)
{
    (void)s;
}

void sampler_about(struct sampler *s, struct sampler_about *ret)
{
    (void)s;
    *ret = (struct sampler_about){.samples = 0};
}
