/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/memory/sample/allocation_sampler.c - the samples' way into tables.
 */
#include "allocation_sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sampling/stack_table.h"
#include "tables.h"

struct sampler {
    const struct probing_host *host;
    struct stacks *stacks;
    struct sample_tables tables;
};

static int scan_live(void *self, struct probing_rows *out)
{
    (void)self, (void)out;
    return 0;
}

int sampler_new(const struct probing_host *host, struct sampler **ret)
{
    struct sampler *s = calloc(1, sizeof(*s));
    if (!s)
        return host->fail(host, -ENOMEM, "no memory");
    s->host = host;
    int rc = stacks_new(host, "memory.stacks",
                        "frames of the stacks of memory.samples, by stack_id", &s->stacks);
    if (rc == 0)
        rc = sample_tables_new(host, scan_live, &s->tables);
    if (rc < 0) {
        sampler_free(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    stacks_free(s->stacks);
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

int sampler_configure(struct sampler *s, const char *name, const char *value)
{
    (void)s, (void)value;
    return strcmp(name, "sample_bytes") == 0 || strcmp(name, "snapshot_every") == 0 ? 0 : -ENOENT;
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
