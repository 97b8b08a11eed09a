/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/missing.c - the last line: how many have answered, and of the others each with its
 * reason; and what there is to say of those that have.
 *
 * One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/many/query_members.h"
#include "cli/terminal/terminal.h"
#include "sdk/lib/buf.h"

#define SAY_BYTES ((size_t)64 << 10)

uint32_t members_answered(const struct members *m)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < m->n; i++)
        n += m->list[i].result.state == MEMBER_ANSWERED;
    return n;
}

static const char *reason_of(const struct member *m)
{
    return m->result.why[0] != '\0' ? m->result.why : "it was not asked any more";
}

static const char *note_of(const struct member *m)
{
    return m->result.note;
}

struct groups {
    const struct members *all;
    const char *(*text_of)(const struct member *m);
    bool *left, *which;
};

/* `left`: of whom something is to be said, none yet. */
static int groups_begin(struct groups *g, const struct members *m,
                        const char *(*text_of)(const struct member *m))
{
    *g = (struct groups){.all = m, .text_of = text_of, .left = calloc(2, m->n + 1)};
    g->which = g->left != NULL ? g->left + m->n + 1 : NULL;
    return g->left != NULL ? 0 : -1;
}

/* The i-th and all that have its text, as one line: "ranks 3-5: text". */
static void add_line(struct groups *g, uint32_t i, struct buf *text)
{
    const struct members *m = g->all;
    uint32_t n = 0;

    for (uint32_t k = 0; k < m->n; k++) {
        g->which[k] = g->left[k] && strcmp(g->text_of(&m->list[k]), g->text_of(&m->list[i])) == 0;
        g->left[k] = g->left[k] && !g->which[k];
        n += g->which[k];
    }
    (void)buf_addf(text, "%s%s ", m->ranked ? "rank" : "process",
                   n == 1      ? ""
                   : m->ranked ? "s"
                               : "es");
    members_list(m, g->which, text);
    if (m->ranked && n == 1 && m->list[i].target.pid != 0)
        (void)buf_addf(text, " (process %d)", (int)m->list[i].target.pid);
    (void)buf_addf(text, ": %s", g->text_of(&m->list[i]));
}

bool members_say_missing(const struct members *m)
{
    uint32_t answered = members_answered(m);
    struct groups g;
    struct buf text;

    if (answered == m->n || groups_begin(&g, m, reason_of) < 0)
        return answered == m->n;
    for (uint32_t i = 0; i < m->n; i++)
        g.left[i] = m->list[i].result.state != MEMBER_ANSWERED;
    buf_init(&text, SAY_BYTES);
    (void)buf_addf(&text, "%u of %u answered", answered, m->n);
    for (uint32_t i = 0; i < m->n; i++)
        if (g.left[i]) {
            (void)buf_addc(&text, '\n');
            add_line(&g, i, &text);
        }
    terminal_say("%s", buf_text(&text));
    buf_done(&text);
    free(g.left);
    return false;
}

void members_say_notes(const struct members *m)
{
    struct groups g;
    struct buf text;

    if (groups_begin(&g, m, note_of) < 0)
        return;
    for (uint32_t i = 0; i < m->n; i++)
        g.left[i] = m->list[i].result.note[0] != '\0';
    buf_init(&text, SAY_BYTES);
    for (uint32_t i = 0; i < m->n; i++) {
        if (!g.left[i])
            continue;
        buf_reset(&text);
        add_line(&g, i, &text);
        terminal_say("%s", buf_text(&text));
    }
    buf_done(&text);
    free(g.left);
}
