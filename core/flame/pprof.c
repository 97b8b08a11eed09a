/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/pprof.c - a profile as pprof's protocol buffer.
 *
 * One thread.  Not compressed, which `go tool pprof` and the others read as well.  Source:
 * github.com/google/pprof, proto/profile.proto; the numbers below are its field numbers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"
#include "sdk/lib/protobuf.h"

enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRINGS = 6,
    PROFILE_TIME_NANOS = 9,
    PROFILE_DURATION_NANOS = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12
};

/* Strings by number, 0 is "". */
struct strings {
    struct flame names; /* only its labels */
};

static uint64_t number_of(struct strings *s, const char *text)
{
    return flame_label(&s->names, text);
}

static void add_type(struct buf *out, uint32_t field, struct strings *s, const char *type,
                     const char *unit)
{
    struct buf part;
    buf_init(&part, 64);
    protobuf_number(&part, 1, number_of(s, type));
    protobuf_number(&part, 2, number_of(s, unit));
    protobuf_message(out, field, &part);
    buf_done(&part);
}

/* A function and a location for each frame; equal ones share the first one's number. */
static void add_frame(struct buf *out, struct buf *part, struct strings *s,
                      const struct flame_frame *f, uint64_t id)
{
    struct buf line;
    const char *file = f->file[0] != '\0' ? f->file : f->module;
    protobuf_number(part, 1, id);
    protobuf_number(part, 2, number_of(s, f->func));
    protobuf_number(part, 3, number_of(s, f->func));
    protobuf_number(part, 4, number_of(s, file));
    protobuf_message(out, PROFILE_FUNCTION, part);
    buf_init(&line, 64);
    protobuf_number(&line, 1, id);
    protobuf_number(&line, 2, (uint64_t)f->line);
    protobuf_number(part, 1, id);
    protobuf_message(part, 4, &line);
    protobuf_message(out, PROFILE_LOCATION, part);
    buf_done(&line);
}

static bool same_frame(const struct flame_frame *a, const struct flame_frame *b)
{
    return a->line == b->line && strcmp(a->func, b->func) == 0 && strcmp(a->file, b->file) == 0 &&
           strcmp(a->module, b->module) == 0;
}

/* For each frame the number of its location, from 1; by label first, which equal frames share. */
static uint32_t *write_locations(const struct flame *f, struct buf *out, struct strings *s)
{
    uint32_t *number = calloc(f->n_frames + 1u, sizeof(*number));
    uint32_t *first = calloc(f->n_labels + 1u, sizeof(*first)); /* frame + 1 of a label's chain */
    uint32_t *next = calloc(f->n_frames + 1u, sizeof(*next));
    struct buf part;
    buf_init(&part, 1u << 16);
    for (uint32_t i = 0; number != NULL && first != NULL && next != NULL && i < f->n_frames; i++) {
        uint32_t label = f->frames[i].label, k = first[label];
        while (k && !same_frame(&f->frames[k - 1], &f->frames[i]))
            k = next[k - 1];
        if (k) {
            number[i] = number[k - 1];
            continue;
        }
        next[i] = first[label];
        first[label] = i + 1;
        number[i] = i + 1;
        add_frame(out, &part, s, &f->frames[i], number[i]);
    }
    buf_done(&part);
    if (first == NULL || next == NULL) {
        free(number);
        number = NULL;
    }
    free(first);
    free(next);
    return number;
}

static void add_sample(const struct flame *f, const uint32_t *number, const struct flame_sample *s,
                       struct strings *strings, struct buf *part, struct buf *out)
{
    const struct flame_stack *stack = &f->stacks[s->stack];
    struct buf label;
    for (uint32_t i = 0; i < stack->n; i++) /* the leaf first, as ours */
        protobuf_number(part, 1, number[f->places[stack->first + i]]);
    protobuf_number(part, 2, (uint64_t)s->count);
    protobuf_number(part, 2, (uint64_t)s->value);
    if (s->thread_name[0] != '\0') {
        buf_init(&label, 64);
        protobuf_number(&label, 1, number_of(strings, "thread"));
        protobuf_number(&label, 2, number_of(strings, s->thread_name));
        protobuf_message(part, 3, &label);
        buf_done(&label);
    }
    protobuf_message(out, PROFILE_SAMPLE, part);
}

int flame_pprof(const struct flame *f, struct buf *out)
{
    struct strings s;
    struct buf part;
    flame_init(&s.names, SIZE_MAX / 2);
    buf_init(&part, 1u << 20);
    (void)flame_label(&s.names, ""); /* number 0, as the format wants it */
    add_type(out, PROFILE_SAMPLE_TYPE, &s, "samples", "count");
    const char *unit = strcmp(f->mode, "memory") == 0 ? "bytes" : "nanoseconds";
    add_type(out, PROFILE_SAMPLE_TYPE, &s, f->mode, unit);
    uint32_t *number = write_locations(f, out, &s);
    for (uint32_t i = 0; number != NULL && i < f->n_samples; i++)
        add_sample(f, number, &f->samples[i], &s, &part, out);
    add_type(out, PROFILE_PERIOD_TYPE, &s, f->mode, unit);
    if (strcmp(unit, "nanoseconds") == 0)
        protobuf_number(out, PROFILE_DURATION_NANOS, (uint64_t)f->total);
    for (uint32_t i = 0; i < s.names.n_labels; i++)
        protobuf_text(out, PROFILE_STRINGS, s.names.labels[i]);
    bool failed = number == NULL || out->failed || part.failed;
    free(number);
    buf_done(&part);
    flame_done(&s.names);
    return failed ? err_set(-ENOMEM, "no memory for the file") : 0;
}
