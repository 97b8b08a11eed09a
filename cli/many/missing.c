/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/many/missing.c - the last line: how many have answered, and of the others each with its
 * reason.
 *
 * One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/many/ask.h"
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

/* Those that failed for the reason of the i-th, as one line; they are said then. */
static void add_line(const struct members *m, uint32_t i, bool *left, bool *which, struct buf *text)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < m->n; k++) {
        which[k] = left[k] && strcmp(reason_of(&m->list[k]), reason_of(&m->list[i])) == 0;
        left[k] = left[k] && !which[k];
        n += which[k];
    }
    (void)buf_addf(text, "\n%s%s ", m->ranked ? "rank" : "process",
                   n > 1 ? m->ranked ? "s" : "es" : "");
    members_list(m, which, text);
    if (m->ranked && n == 1 && m->list[i].target.pid != 0)
        (void)buf_addf(text, " (process %d)", (int)m->list[i].target.pid);
    (void)buf_addf(text, ": %s", reason_of(&m->list[i]));
}

bool members_say_missing(const struct members *m)
{
    uint32_t answered = members_answered(m);
    bool *left = calloc(2, m->n + 1);
    struct buf text;

    if (answered == m->n || left == NULL) {
        free(left);
        return answered == m->n;
    }
    for (uint32_t i = 0; i < m->n; i++)
        left[i] = m->list[i].result.state != MEMBER_ANSWERED;
    buf_init(&text, SAY_BYTES);
    (void)buf_addf(&text, "%u of %u answered", answered, m->n);
    for (uint32_t i = 0; i < m->n; i++)
        if (left[i])
            add_line(m, i, left, left + m->n + 1, &text);
    terminal_say("%s", buf_text(&text));
    buf_done(&text);
    free(left);
    return false;
}
