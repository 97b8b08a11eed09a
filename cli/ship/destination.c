/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/destination.c - what stands behind --to: the scheme says who is spoken to, and how.
 *
 * One thread.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "cli/ship/series.h"
#include "cli/ship/ship.h"
#include "core/base/err.h"
#include "sdk/lib/buf.h"
#include "sdk/lib/json_text.h"

static const struct ship_kind *const kinds[] = {&ship_remote_write, &ship_clickhouse, &ship_otlp,
                                                &ship_parquet};
#define MAX_SERIES 1000000 /* an hour: for which VictoriaMetrics' manual wants 1 GB of memory */
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

static int refuse_url(const char *url)
{
    struct buf all;
    size_t n = strcspn(url, ":");

    buf_init(&all, 2048);
    for (size_t i = 0; i < N_KINDS; i++)
        (void)buf_addf(&all, "%s%s", i > 0 ? ", " : "", kinds[i]->example);
    (void)err_set(-EINVAL, "'%.*s' is no destination for --to; there are %s (and https)", (int)n,
                  url, buf_text(&all));
    buf_done(&all);
    return -EINVAL;
}

/* Give the text behind the scheme; NULL: it is another one. */
static const char *text_after_scheme(const char *url, const char *scheme, bool *ret_tls)
{
    size_t n = strlen(scheme), http = strlen("http://");

    *ret_tls = false;
    if (strncmp(url, scheme, n) == 0)
        return url + n;
    *ret_tls = n > http && strcmp(scheme + n - http, "http://") == 0 &&
               strncmp(url, scheme, n - 3) == 0 && strncmp(url + n - 3, "s://", 4) == 0;
    return *ret_tls ? url + n + 1 : NULL;
}

static int max_series(uint64_t most, struct ship_destination *d)
{
    if (most != 0 && !d->kind->series)
        return err_set(-EINVAL, "--max-series is for what has series: %s, %s",
                       ship_remote_write.example, ship_otlp.example);
    d->limit.most = most != 0 ? most : MAX_SERIES;
    return 0;
}

/* The state file is JSON, which has letters only: other bytes of a folder's name stand there as
 * %FF.  false: it is too long. */
static bool make_shown(const char *url, char *ret, size_t size)
{
    char letter[JSON_LETTER_BYTES];
    struct buf b;
    size_t n, all = strlen(url);

    buf_init(&b, size - 1);
    for (size_t i = 0; i < all; i += n) {
        size_t bytes;
        n = json_letter(url + i, all - i, letter, &bytes);
        if (n == 1 && (unsigned char)url[i] >= 0x80)
            (void)buf_addf(&b, "%%%02X", (unsigned char)url[i]);
        else
            (void)buf_add(&b, url + i, n);
    }
    bool fits = b.failed == 0;
    (void)snprintf(ret, size, "%s", fits ? buf_text(&b) : "");
    buf_done(&b);
    return fits;
}

int ship_destination_open(const char *url, const struct http_options *http, uint64_t most,
                          struct ship_destination *ret)
{
    const char *rest;

    *ret = (struct ship_destination){.http = *http};
    if (!make_shown(url, ret->shown, sizeof(ret->shown)))
        return err_set(-EINVAL, "--to is longer than %zu bytes", sizeof(ret->shown));
    for (size_t i = 0; i < N_KINDS; i++)
        for (const char *const *s = kinds[i]->schemes; *s != NULL; s++)
            if ((rest = text_after_scheme(url, *s, &ret->http.tls)) != NULL) {
                ret->kind = kinds[i];
                int rc = max_series(most, ret); /* before anything is made there */
                if (rc == 0)
                    rc = kinds[i]->open(ret, rest);
                if (rc < 0)
                    ship_destination_close(ret);
                return rc;
            }
    return refuse_url(url);
}

void ship_refused(struct ship_destination *d, uint64_t n)
{
    d->refused += n;
    (void)snprintf(d->why_refused, sizeof(d->why_refused), "%s", err_text());
}

void ship_destination_close(struct ship_destination *d)
{
    if (d->kind != NULL)
        d->kind->close(d);
    ship_claims_close(&d->claims);
    series_limit_done(&d->limit);
    d->kind = NULL;
}
