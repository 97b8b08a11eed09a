/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_event.c - the table python.trace_event.
 *
 * Any thread adds, once the table is made.
 */
#include "trace/trace_event.h"

#include <stdatomic.h>
#include <string.h>

#include "exec/bindings.h"
#include "internal.h"
#include "package_api/coordinates.h"

#define TAIL_MAX 4000 /* bytes of attributes that are kept */

const char *const event_phase_names[] = {"return", "raise", "yield"};
static const char *const type_names[EVENT_TYPES] = {"call", "span_start", "span_end", "event"};

static uint64_t phase_ids[NO_PHASE + 1], type_ids[EVENT_TYPES]; /* since events_init() */
static struct probing_table *events;
static _Atomic uint64_t numbers;

uint64_t events_next(void)
{
    return atomic_fetch_add_explicit(&numbers, 1, memory_order_relaxed) + 1;
}

uint64_t events_id(const char *text)
{
    return probing_intern_text(natives_host, text);
}

size_t events_cut(const char *text, size_t n)
{
    if (n > TAIL_MAX)
        for (n = TAIL_MAX; n > 0 && (text[n] & 0xc0) == 0x80; n--)
            continue;
    return n;
}

enum { EVENT_COORDINATES = 7, EVENT_COLUMNS = EVENT_COORDINATES + PROBING_COORDINATES };

static int64_t or_null(uint64_t number)
{
    return number ? (int64_t)number : PROBING_NULL_I64;
}

void events_add(const struct event *e, const char *attributes, size_t n)
{
    union probing_cell cells[EVENT_COLUMNS] = {
        {.u = type_ids[e->type]},  {.i = or_null(e->trace)}, {.i = or_null(e->span)},
        {.i = or_null(e->parent)}, {.u = e->name_id},        {.u = phase_ids[e->phase]},
        {.i = e->duration_ns},
    };
    coordinates_put(&cells[EVENT_COORDINATES]);
    (void)natives_host->append(events, e->ts, cells, EVENT_COLUMNS, n ? attributes : NULL,
                               (uint32_t)events_cut(attributes, n));
}

static const struct probing_column event_columns[EVENT_COLUMNS] = {
    PROBING_STR_COLUMN("record_type", "call, span_start, span_end or event"),
    PROBING_I64_COLUMN("trace_id", PROBING_PLAIN,
                       "id of the outermost span; NULL: the row is a call"),
    PROBING_I64_COLUMN("span_id", PROBING_PLAIN, "id of this call or span"),
    PROBING_I64_COLUMN("parent_id", PROBING_PLAIN,
                       "id of the enclosing call or span in its thread"),
    PROBING_STR_COLUMN("name", "name, as it was given to trace or span()"),
    PROBING_STR_COLUMN("phase", "how a call or span ended: return, raise, yield"),
    PROBING_I64_COLUMN("duration_ns", PROBING_NS, "duration; NULL: it has not ended"),
    PROBING_COORDINATE_COLUMNS,
};

static const struct probing_table_desc event_table = PROBING_TEXT_TABLE(
    "python.trace_event", event_columns, "attributes",
    "calls of functions that `trace` watches, and spans and events of `import probing`");

int events_init(struct plugin *p)
{
    int r = p->host->table(p->host, &event_table, &events);
    for (int i = 0; i < EVENT_TYPES && r == 0; i++)
        type_ids[i] = events_id(type_names[i]);
    for (int i = 0; i < NO_PHASE && r == 0; i++)
        phase_ids[i] = events_id(event_phase_names[i]);
    phase_ids[NO_PHASE] = PROBING_NULL_ID;
    return r;
}
