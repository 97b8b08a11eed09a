/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/python/trace/trace_event.h - rows of python.trace_event: watched calls, spans and
 * events.
 *
 * Spans and calls are numbered from one counter, so that of two that are open in a thread the one
 * with the larger number is the inner one.
 */
#ifndef PYTHON_TRACE_TRACE_EVENT_H
#define PYTHON_TRACE_TRACE_EVENT_H

#include <stddef.h>
#include <stdint.h>

struct plugin;

enum event_type { EVENT_CALL, EVENT_SPAN_START, EVENT_SPAN_END, EVENT_ALONE, EVENT_TYPES };
enum event_phase { RETURNED, RAISED, YIELDED, NO_PHASE };
extern const char *const event_phase_names[]; /* no name for NO_PHASE */

struct event {
    enum event_type type;
    enum event_phase phase;
    uint64_t ts, name_id, trace, span, parent; /* 0: none */
    int64_t duration_ns;                       /* PROBING_NULL_I64: none */
};

int events_init(struct plugin *p);
uint64_t events_next(void);           /* the number of a span or call                     [any] */
uint64_t events_id(const char *text); /* interned; PROBING_NULL_ID: no room               [any] */
size_t events_cut(const char *text, size_t n); /* bytes that are kept of a long text        [any] */
/* attributes: JSON, n bytes; n may be 0.  [any] */
void events_add(const struct event *e, const char *attributes, size_t n);

#endif
