/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/system/sampling_pace.c - how often something may be looked at, and the cells of rows.
 *
 * Any thread; no state but the caller's.
 */
#include "internal.h"
#include "lib/utf8.h"

bool pace_is_due(const struct pace *p, uint64_t now)
{
    return now >= p->next_ns;
}

void pace_took(struct pace *p, uint64_t now, uint64_t cost_ns, uint32_t ticks, uint64_t interval_ns,
               uint32_t share)
{
    uint64_t cost = cost_ns < PROBING_NS_PER_S ? cost_ns : PROBING_NS_PER_S;
    uint64_t least = ticks * interval_ns, wait = cost * share;
    if (interval_ns < PROBING_NS_PER_S)
        wait = (uint64_t)((double)wait * (double)interval_ns / 1e9);
    p->cost_ns = cost_ns;
    /* A tick comes a little early or late: it is due at the one that is nearest. */
    p->next_ns = now + (wait > least ? wait : least - least / 8);
}

union probing_cell delta_cell(uint64_t before, uint64_t after)
{
    bool known = before != UNKNOWN && after != UNKNOWN && after >= before;
    return known ? count_cell(after - before) : probing_null(PROBING_I64);
}

union probing_cell rate_cell(uint64_t before, uint64_t after, uint64_t wall_ns)
{
    bool known = before != UNKNOWN && after != UNKNOWN && after >= before && wall_ns > 0;
    return known ? probing_f64((double)(after - before) * 1e9 / (double)wall_ns)
                 : probing_null(PROBING_F64);
}

union probing_cell percent_cell(uint64_t cpu_ns, uint64_t wall_ns)
{
    return cpu_ns != UNKNOWN && wall_ns > 0 ? probing_f64(100.0 * (double)cpu_ns / (double)wall_ns)
                                            : probing_null(PROBING_F64);
}

void text_clean(char *text)
{
    size_t size = strlen(text);
    for (size_t i = 0; i < size;) {
        size_t n = text_utf8_length(text + i, size - i);
        if (n == 0 || (unsigned char)text[i] < ' ' || text[i] == 127)
            text[i] = '?';
        i += n > 0 ? n : 1;
    }
}

uint64_t text_id(const struct probing_host *h, const char *text)
{
    char clean[256];
    (void)snprintf(clean, sizeof(clean), "%s", text);
    text_clean(clean);
    return clean[0] ? probing_intern_text(h, clean) : PROBING_NULL_ID;
}
