/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/ship/series.c - see series.h.
 *
 * One thread.
 */
#include "cli/ship/series.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "sdk/lib/hash.h"
#include "sdk/lib/utf8.h"

#define MS_NS 1000000
static const char *const ours[] = {"job", "instance", "host", "pid", "rank", "role", "process"};

static void clean_name(char *name)
{
    for (char *c = name; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) || (unsigned char)*c >= 128)
            *c = '_';
}

void series_name(char *ret, size_t size, const char *first, const char *second, const char *third)
{
    (void)snprintf(ret, size, "%s%s%s%s%s", first, second[0] != '\0' ? "_" : "", second,
                   third[0] != '\0' ? "_" : "", third);
    if (isdigit((unsigned char)ret[0]))
        ret[0] = '_';
    clean_name(ret);
}

/* Copy the whole letters that fit; a NUL, or a byte that is no letter's, becomes '?'. */
static void take_value(char *ret, size_t room, const char *text, size_t size)
{
    size_t n = 0;

    for (size_t at = 0, letter; at < size; at += letter) {
        letter = text_utf8_length(text + at, size - at);
        bool good = letter > 0;
        letter = good ? letter : 1;
        if (n + letter >= room)
            break;
        if (good && text[at] != '\0')
            memcpy(ret + n, text + at, letter);
        else
            ret[n] = '?';
        n += letter;
    }
    ret[n] = '\0';
}

void labels_add(struct labels *l, const char *name, const char *value, size_t size)
{
    struct label one;
    uint32_t at = 0;

    series_name(one.name, sizeof(one.name), name, "", "");
    take_value(one.value, sizeof(one.value), value, size);
    if (one.name[0] == '\0' || one.value[0] == '\0' || l->n == LABELS_MAX)
        return;
    while (at < l->n && strcmp(l->list[at].name, one.name) < 0)
        at++;
    if (at < l->n && strcmp(l->list[at].name, one.name) == 0)
        return; /* the first one counts */
    memmove(&l->list[at + 1], &l->list[at], (l->n - at) * sizeof(one));
    l->list[at] = one;
    l->n++;
}

static void add_number(struct labels *l, const char *name, int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%lld", (long long)value);

    labels_add(l, name, text, (size_t)n);
}

void labels_of_source(const struct ship_source *s, struct labels *ret)
{
    const char *job = s->tags.job[0] != '\0' ? s->tags.job : "probing";
    char instance[120], process[24];
    int n = s->address[0] != '\0'
                ? snprintf(instance, sizeof(instance), "%s", s->address)
                : snprintf(instance, sizeof(instance), "%s:%lld", s->tags.host, (long long)s->pid);

    ret->n = 0;
    labels_add(ret, "job", job, strlen(job));
    labels_add(ret, "instance", instance, (size_t)n);
    labels_add(ret, "host", s->tags.host, strlen(s->tags.host));
    labels_add(ret, "role", s->tags.role, strlen(s->tags.role));
    ship_process_text(s, process);
    labels_add(ret, "process", process, strlen(process));
    if (s->pid > 0)
        add_number(ret, "pid", s->pid);
    if (s->tags.rank != MEMBER_UNKNOWN)
        add_number(ret, "rank", s->tags.rank);
}

/* A label of theirs, which may have the name of one of ours. */
static void add_theirs(struct labels *l, const char *name, const char *value, size_t size)
{
    char exported[LABEL_NAME_BYTES + 16]; /* what is too long is cut by labels_add() */
    bool taken = strncmp(name, "__", 2) == 0;

    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
        taken = taken || strcmp(ours[i], name) == 0;
    (void)snprintf(exported, sizeof(exported), "%s%s", taken ? "exported_" : "", name);
    labels_add(l, exported, value, size);
}

bool labels_parse(struct labels *l, const char *text)
{
    while (*text != '\0') {
        char name[LABEL_NAME_BYTES], value[LABEL_VALUE_BYTES];
        size_t n = strcspn(text, "="), size = 0;
        if (n == 0 || n >= sizeof(name) || text[n] != '=' || text[n + 1] != '"')
            return false;
        (void)snprintf(name, sizeof(name), "%.*s", (int)n, text);
        for (text += n + 2; *text != '"'; text++) {
            if (*text == '\\')
                text++;
            if (*text == '\0')
                return false;
            if (size + 1 < sizeof(value))
                value[size++] = text[-1] == '\\' && *text == 'n' ? '\n' : *text;
        }
        add_theirs(l, name, value, size);
        text++;
        if (*text == ',')
            text++;
        else if (*text != '\0')
            return false;
    }
    return true;
}

bool series_is_number(const struct sql_column *c)
{
    return c->type == SQL_INT || c->type == SQL_DOUBLE || c->type == SQL_BOOL;
}

double series_number(const struct sql_value *v)
{
    return v->type == SQL_DOUBLE ? v->number
           : v->type == SQL_BOOL ? (double)v->boolean
                                 : (double)v->integer;
}

void labels_of_row(const struct ship_batch *b, uint32_t part, uint32_t row, struct labels *ret)
{
    struct sql_value v;

    labels_of_source(b->source, ret);
    for (uint32_t i = SHIP_TAGS; i < b->n_columns; i++) {
        if (b->columns[i].type != SQL_TEXT)
            continue;
        ship_batch_value(b, part, row, i, &v);
        if (v.type == SQL_TEXT)
            add_theirs(ret, b->columns[i].name, v.text.data, v.text.size);
    }
}

/* ---- how many ---- */

#define PROBES 64 /* who chooses texts could make long searches: then there is no room */

static int make_room(struct series_limit *l)
{
    size_t room = 1024;

    while (room / 2 < l->most && room < SIZE_MAX / 4)
        room *= 2;
    l->seen = calloc(room, sizeof(*l->seen)); /* what is not used is not touched */
    l->mask = room - 1;
    return l->seen != NULL ? 0 : err_set(-ENOMEM, "no memory for --max-series");
}

int series_limit_take(struct series_limit *l, uint64_t hash, uint64_t now_ns, bool *ret)
{
    *ret = false;
    if (l->seen != NULL && now_ns - l->began_ns >= SERIES_HOUR_NS)
        series_limit_done(l);
    if (l->seen == NULL) {
        int rc = make_room(l);
        if (rc < 0)
            return rc;
        l->began_ns = now_ns;
    }
    hash = hash != 0 ? hash : 1;
    uint64_t start = hash_spread(hash ^ hash >> 32);
    for (size_t i = 0; i < PROBES; i++) {
        uint64_t *at = &l->seen[((start >> 24) + i) & l->mask];
        if (*at == 0 && l->n < l->most) {
            *at = hash;
            l->n++;
        }
        *ret = *at == hash;
        if (*at == hash || *at == 0)
            return 0;
    }
    return 0;
}

int series_take(struct ship_destination *d, uint64_t hash, uint32_t samples, bool *ret)
{
    int rc = series_limit_take(&d->limit, hash, clock_monotonic(), ret);

    d->over += rc == 0 && !*ret ? samples : 0;
    return rc;
}

void series_limit_done(struct series_limit *l)
{
    free(l->seen);
    *l = (struct series_limit){.most = l->most};
}

/* ---- rows in order ---- */

static int compare_rows(const void *a, const void *b)
{
    const struct series_row *x = a, *y = b;

    if (x->series != y->series)
        return x->series < y->series ? -1 : 1;
    if (x->at_ns / MS_NS != y->at_ns / MS_NS)
        return x->at_ns < y->at_ns ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static uint64_t hash_row(const struct ship_batch *b, uint32_t part, uint32_t row)
{
    uint64_t h = HASH_FNV;
    struct sql_value v;

    for (uint32_t i = SHIP_TAGS; i < b->n_columns; i++) {
        if (b->columns[i].type != SQL_TEXT)
            continue;
        ship_batch_value(b, part, row, i, &v);
        h = hash_spread(h ^ i);
        if (v.type == SQL_TEXT)
            h = hash_bytes(h, v.text.data, v.text.size);
    }
    return h;
}

int series_rows(const struct ship_batch *b, struct series_row **ret, uint32_t *ret_n,
                uint64_t *ret_left_out)
{
    struct series_row *all = calloc(b->rows + 1, sizeof(*all));
    int time = ship_batch_time(b);
    uint32_t n = 0, kept = 0, order = 0;
    struct sql_value v;

    if (all == NULL)
        return err_set(-ENOMEM, "no memory for %llu rows", (unsigned long long)b->rows);
    for (uint32_t part = 0; part < b->n_parts && time >= 0; part++)
        for (uint32_t row = 0; row < answer_rows_count(b->parts[part]); row++) {
            ship_batch_value(b, part, row, (uint32_t)time, &v);
            if (v.type == SQL_TIMESTAMP)
                all[n++] = (struct series_row){.series = hash_row(b, part, row),
                                               .at_ns = v.integer,
                                               .part = part,
                                               .row = row,
                                               .order = order++};
        }
    qsort(all, n, sizeof(*all), compare_rows);
    for (uint32_t i = 0; i < n; i++)
        if (i + 1 == n || all[i].series != all[i + 1].series ||
            all[i].at_ns / MS_NS != all[i + 1].at_ns / MS_NS)
            all[kept++] = all[i];
    *ret = all;
    *ret_n = kept;
    *ret_left_out = b->rows - kept;
    return 0;
}
