/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/destination.c - what stands behind --to: the scheme says who is spoken to, and how.
 *
 * One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/ship/ship.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"

static const struct ship_kind *const kinds[] = {&ship_remote_write, &ship_clickhouse, &ship_otlp,
                                                &ship_parquet};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int unknown(const char *url)
{
    struct buf all;
    size_t n = strcspn(url, ":");

    buf_init(&all, 2048);
    for (size_t i = 0; i < N_KINDS; i++)
        (void)buf_addf(&all, "%s%s", i > 0 ? ", " : "", kinds[i]->example);
    if (strncmp(url, "https:", 6) == 0 || strstr(url, "+https:") != NULL)
        (void)err_set(-EINVAL,
                      "'%.200s': there is no TLS in this command; a proxy on this machine makes it "
                      "(docs/ship.md), and --to names that",
                      url);
    else
        (void)err_set(-EINVAL, "'%.*s' is no destination for --to; there are %s", (int)n, url,
                      buf_text(&all));
    buf_done(&all);
    return -EINVAL;
}

int ship_destination_open(const char *url, const char *secret, struct ship_destination *ret)
{
    *ret = (struct ship_destination){.secret = secret};
    (void)snprintf(ret->shown, sizeof(ret->shown), "%s", url);
    if (strlen(url) >= sizeof(ret->shown))
        return err_set(-EINVAL, "--to is longer than %zu bytes", sizeof(ret->shown));
    for (size_t i = 0; i < N_KINDS; i++)
        for (const char *const *s = kinds[i]->schemes; *s != NULL; s++)
            if (strncmp(url, *s, strlen(*s)) == 0) {
                ret->kind = kinds[i];
                int rc = kinds[i]->open(ret, url + strlen(*s));
                if (rc < 0)
                    ship_destination_close(ret);
                return rc;
            }
    return unknown(url);
}

void ship_destination_close(struct ship_destination *d)
{
    if (d->kind != NULL)
        d->kind->close(d);
    d->kind = NULL;
}
