/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/group_output_json.c - what many members have printed as JSON: a line for each, with
 * whose it is.
 *
 * One thread.  Whoever reads the lines reads JSON, whatever a member has sent: text that is none is
 * said, and not handed on.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/many/group_output.h"
#include "sdk/lib/arena.h"
#include "sdk/lib/json.h"

#define TREE_BYTES ((size_t)512 << 20) /* of one answer of 16 MB, taken apart */

enum shape { SHAPE_NONE, SHAPE_OBJECT, SHAPE_VALUE };

/* The whole text is one value, or it is nothing that can be handed on. */
static enum shape shape_of(const char *text, size_t n)
{
    enum shape shape = SHAPE_NONE;
    struct json_error bad;
    struct json *value;
    struct arena a;

    arena_init(&a, TREE_BYTES);
    if (n > 0 && json_read(&a, text, n, &value, &bad) == 0)
        shape = value->type == JSON_OBJECT ? SHAPE_OBJECT : SHAPE_VALUE;
    arena_done(&a);
    return shape;
}

/* Within JSON a line's end is a blank: in a text it is written otherwise. */
static void put_flat(const char *text, size_t n)
{
    while (n > 0) {
        const char *end = memchr(text, '\n', n);
        size_t k = end != NULL ? (size_t)(end - text) : n;
        (void)fwrite(text, 1, k, stdout);
        if (end != NULL && k + 1 < n)
            putchar(' ');
        k += end != NULL;
        text += k;
        n -= k;
    }
}

static void put_text(const char *text)
{
    struct buf b;

    buf_init(&b, (size_t)1 << 20);
    (void)json_add_text(&b, text, strlen(text));
    fputs(b.failed == 0 ? buf_text(&b) : "null", stdout);
    buf_done(&b);
}

static void put_tags(const struct member *m)
{
    if (m->tags.rank == MEMBER_UNKNOWN)
        fputs("{\"rank\": null, \"process\": ", stdout);
    else
        printf("{\"rank\": %lld, \"process\": ", (long long)m->tags.rank);
    put_text(m->name);
    fputs(", \"host\": ", stdout);
    if (m->tags.host[0] != '\0')
        put_text(m->tags.host);
    else
        fputs("null", stdout);
}

static void put_one(const struct member *m, struct printed *p)
{
    const char *text = buf_text(&p->out);
    size_t n = p->out.size;

    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    for (; n > 0 && isspace((unsigned char)*text); n--)
        text++;
    put_tags(m);
    enum shape shape = m->result.state == MEMBER_ANSWERED ? shape_of(text, n) : SHAPE_NONE;
    if (shape == SHAPE_NONE) {
        fputs(", \"error\": ", stdout);
        put_text(m->result.state != MEMBER_ANSWERED ? m->result.why : "its answer is no JSON");
        fputs("}\n", stdout);
        return;
    }
    fputs(shape == SHAPE_VALUE ? ", \"answer\": " : "", stdout);
    if (shape == SHAPE_OBJECT) {
        text++; /* its own brace */
        n--;
        fputs(text[strspn(text, " \t\r\n")] == '}' ? "" : ", ", stdout);
    }
    put_flat(text, n);
    fputs(shape == SHAPE_VALUE ? "}\n" : "\n", stdout);
}

void printed_json(const struct members *m, struct printed *all)
{
    for (uint32_t i = 0; i < m->n; i++)
        put_one(&m->list[i], &all[i]);
}
