/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/group_output.c - see group_output.h.
 *
 * One thread.
 */
#include "cli/many/group_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/terminal.h"
#include "sdk/lib/json.h"

#define NAMES_BYTES ((size_t)64 << 10)
#define LONG_LINE_BYTES ((size_t)1 << 20) /* one without an end goes out in pieces */

/* ---- equal answers once ---- */

static bool is_equal(const struct printed *a, const struct printed *b)
{
    return a->status == b->status && a->out.size == b->out.size && a->err.size == b->err.size &&
           (a->out.size == 0 || memcmp(a->out.data, b->out.data, a->out.size) == 0) &&
           (a->err.size == 0 || memcmp(a->err.data, b->err.data, a->err.size) == 0);
}

/* "ranks 0-6", "process 4242". */
static void name_them(const struct members *m, const bool *which, uint32_t n, struct buf *ret)
{
    (void)buf_addf(ret, "%s%s ", m->ranked ? "rank" : "process",
                   n == 1      ? ""
                   : m->ranked ? "s"
                               : "es");
    members_list(m, which, ret);
}

/* On the line of the name, when it is but one. */
static void put_answer(const char *names, struct buf *out)
{
    const char *text = buf_text(out);
    size_t n = out->size;
    const char *end = memchr(text, '\n', n);

    while (n > 0 && text[n - 1] == '\n')
        n--;
    bool one_line = end == NULL || (size_t)(end - text) >= n;
    printf("%s:%s", names, one_line ? " " : "\n");
    (void)fwrite(text, 1, n, stdout);
    putchar('\n');
    if (!one_line)
        putchar('\n');
}

/* Show the notes of members that did well, each line behind the names.  Failures stand in the last
 * line of all. */
static void put_notes(const char *names, struct buf *err)
{
    static const char who[] = "probing: ";

    for (const char *at = buf_text(err); *at != '\0';) {
        size_t n = strcspn(at, "\n");
        bool ours = strncmp(at, who, sizeof(who) - 1) == 0;
        if (n > 0)
            terminal_say("%s: %.*s", names, (int)(n - (ours ? sizeof(who) - 1 : 0)),
                         at + (ours ? sizeof(who) - 1 : 0));
        at += n + (at[n] == '\n');
    }
}

static void show_group(const struct members *m, struct printed *all, uint32_t first, bool *which)
{
    struct buf names;
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n; i++) {
        which[i] = m->list[i].result.state != MEMBER_NOT_ASKED && !all[i].said &&
                   is_equal(&all[i], &all[first]);
        n += which[i];
    }
    for (uint32_t i = 0; i < m->n; i++)
        all[i].said = all[i].said || which[i];
    buf_init(&names, NAMES_BYTES);
    name_them(m, which, n, &names);
    if (all[first].out.size > 0)
        put_answer(buf_text(&names), &all[first].out);
    if (all[first].status == 0)
        put_notes(buf_text(&names), &all[first].err);
    buf_done(&names);
}

void printed_show(const struct members *m, struct printed *all)
{
    bool *which = calloc(m->n, sizeof(*which));

    for (uint32_t i = 0; i < m->n && which != NULL; i++)
        if (!all[i].said && m->list[i].result.state != MEMBER_NOT_ASKED)
            show_group(m, all, i, which);
    free(which);
}

/* ---- lines as they come ---- */

static void put_plain(const struct members *m, const struct member *one, const char *line, size_t n)
{
    if (m->ranked)
        printf("%lld: %.*s\n", (long long)one->tags.rank, (int)n, line);
    else
        printf("%s: %.*s\n", one->name, (int)n, line);
}

static void put_json(const struct members *m, const struct member *one, const char *line, size_t n)
{
    struct buf name;

    if (n < 2 || line[0] != '{') {
        printf("%.*s\n", (int)n, line);
        return;
    }
    buf_init(&name, NAMES_BYTES);
    if (m->ranked)
        (void)buf_addf(&name, "{\"rank\":%lld", (long long)one->tags.rank);
    else if (buf_adds(&name, "{\"process\":") == 0)
        (void)json_add_text(&name, one->name, strlen(one->name));
    printf("%s%s%.*s\n", buf_text(&name), line[1] == '}' ? "" : ",", (int)n - 1, line + 1);
    buf_done(&name);
}

/* A directory's name may have anything in it. */
static void put_csv_name(const char *name)
{
    bool plain = strpbrk(name, ",\"\r\n") == NULL;

    for (const char *at = plain ? "" : name; *at != '\0'; at++)
        printf("%s%s%c", at == name ? "\"" : "", *at == '"' ? "\"" : "", *at);
    fputs(plain ? name : "\"", stdout);
}

static void put_csv(const struct members *m, const struct member *one, struct lines *l,
                    bool *header_seen, const char *line, size_t n)
{
    bool header = !*header_seen;

    *header_seen = true;
    if (header && l->has_header)
        return;
    l->has_header = true;
    if (header)
        fputs(m->ranked ? "rank" : "process", stdout);
    else if (m->ranked)
        printf("%lld", (long long)one->tags.rank);
    else
        put_csv_name(one->name);
    printf(",%.*s\n", (int)n, line);
}

int printed_lines(const struct members *m, const struct member *one, struct lines *l,
                  struct buf *text, bool *header_seen, bool last)
{
    const char *at = buf_text(text), *end = at + text->size;

    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL && !last && (size_t)(end - at) < LONG_LINE_BYTES)
            break;
        size_t n = newline != NULL ? (size_t)(newline - at) : (size_t)(end - at);
        if (l->form == LINES_JSON)
            put_json(m, one, at, n);
        else if (l->form == LINES_CSV)
            put_csv(m, one, l, header_seen, at, n);
        else
            put_plain(m, one, at, n);
        at = newline != NULL ? newline + 1 : end;
    }
    size_t left = (size_t)(end - at);
    if (left > 0)
        memmove(text->data, at, left);
    text->size = left;
    return fflush(stdout) == EOF ? -EPIPE : 0;
}
