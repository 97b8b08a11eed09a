/* SPDX-License-Identifier: Apache-2.0
 *
 * core/flame/folded.c - folded stacks, speedscope's JSON and trace events of a profile.
 *
 * One thread.  Folded: a line a stack, outermost first, "a;b;c 12"; values are nanoseconds, of a
 * difference before and after.  speedscope: https://www.speedscope.app/file-format-schema.json.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/flame/flame.h"
#include "sdk/lib/json.h"

static int no_memory(const struct buf *out)
{
    return out->failed ? err_set(-ENOMEM, "no memory for the file") : 0;
}

/* ---- folded ---- */

/* way: room for the tree's depth. */
static void add_line(const struct flame_tree *t, uint32_t at, uint32_t *way, struct buf *out)
{
    const struct flame_node *n = &t->nodes[at];
    int64_t value = n->value, before = n->before;
    for (uint32_t i = n->child; i; i = t->nodes[i].sibling) {
        value -= t->nodes[i].value;
        before -= t->nodes[i].before;
    }
    if (value <= 0 && before <= 0)
        return;
    for (uint32_t i = n->depth, up = at; i > 0; up = t->nodes[up].parent)
        way[--i] = t->nodes[up].label;
    for (uint32_t i = 0; i < n->depth; i++) {
        (void)buf_adds(out, i ? ";" : "");
        (void)buf_adds(out, t->f->labels[way[i]]);
    }
    if (t->difference)
        (void)buf_addf(out, " %lld", (long long)before);
    (void)buf_addf(out, " %lld\n", (long long)value);
}

int flame_folded(const struct flame_tree *t, struct buf *out)
{
    uint32_t *way = calloc(flame_tree_depth(t) + 1, sizeof(*way));
    if (way == NULL)
        return err_set(-ENOMEM, "no memory for the file");
    for (uint32_t at = flame_tree_next(t, 0); at; at = flame_tree_next(t, at))
        add_line(t, at, way, out);
    free(way);
    return no_memory(out);
}

/* ---- speedscope ---- */

static void add_text(struct buf *out, const char *text)
{
    (void)json_add_text(out, text, strlen(text));
}

static void add_frames(const struct flame *f, struct buf *out)
{
    (void)buf_adds(out, "\"shared\":{\"frames\":[");
    for (uint32_t i = 0; i < f->n_labels; i++) {
        (void)buf_adds(out, i ? ",\n{\"name\":" : "{\"name\":");
        add_text(out, f->labels[i]);
        (void)buf_adds(out, "}");
    }
    (void)buf_adds(out, "]},\n");
}

/* One profile for each thread: samples stand together by thread. */
static uint32_t add_thread(const struct flame *f, uint32_t from, struct buf *out)
{
    const struct flame_sample *first = &f->samples[from];
    int64_t total = 0;
    uint32_t end = from;
    for (; end < f->n_samples && f->samples[end].thread == first->thread; end++)
        total += f->samples[end].value;
    (void)buf_adds(out, "{\"type\":\"sampled\",\"name\":");
    add_text(out, first->thread_name[0] ? first->thread_name : "thread");
    (void)buf_addf(out,
                   ",\"unit\":\"nanoseconds\",\"startValue\":0,\"endValue\":%lld,\"samples\":[",
                   (long long)total);
    for (uint32_t i = from; i < end; i++) {
        const struct flame_stack *s = &f->stacks[f->samples[i].stack];
        (void)buf_adds(out, i > from ? ",[" : "[");
        for (uint32_t k = s->n; k > 0; k--)
            (void)buf_addf(out, "%s%u", k < s->n ? "," : "",
                           f->frames[f->places[s->first + k - 1]].label);
        (void)buf_adds(out, "]");
    }
    (void)buf_adds(out, "],\"weights\":[");
    for (uint32_t i = from; i < end; i++)
        (void)buf_addf(out, "%s%lld", i > from ? "," : "", (long long)f->samples[i].value);
    (void)buf_adds(out, "]}");
    return end;
}

int flame_speedscope(const struct flame *f, struct buf *out)
{
    (void)buf_adds(out, "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\n"
                        "\"exporter\":\"probing\",\"name\":");
    add_text(out, f->title);
    (void)buf_adds(out, ",\"activeProfileIndex\":0,\n");
    add_frames(f, out);
    (void)buf_adds(out, "\"profiles\":[");
    for (uint32_t i = 0; i < f->n_samples;) {
        (void)buf_adds(out, i ? ",\n" : "");
        i = add_thread(f, i, out);
    }
    (void)buf_adds(out, "]}\n");
    return no_memory(out);
}

/* ---- trace events ---- */

/* The open frames of the thread that is written, from the outermost on, and since when. */
struct open_frames {
    struct {
        int64_t since;
        uint32_t label;
    } * frames;
    uint32_t n;
    int64_t until; /* of the last sample */
    int (*fn)(void *arg, const struct flame_event *e);
    void *arg;
    int rc; /* of fn */
};

static void give_event(const struct flame *f, struct open_frames *o, uint32_t at,
                       const struct flame_sample *s, bool opens)
{
    const struct flame_event e = {.name = f->labels[o->frames[at].label],
                                  .since_ns = o->frames[at].since,
                                  .at_ns = opens ? o->frames[at].since : o->until,
                                  .of = s,
                                  .opens = opens};
    if (o->rc == 0)
        o->rc = o->fn(o->arg, &e);
}

static void close_frames(const struct flame *f, struct open_frames *o, uint32_t down_to,
                         const struct flame_sample *s)
{
    while (o->n > down_to)
        give_event(f, o, --o->n, s, /* opens= */ false);
}

/* A sample stands for the time before it.  Frames that it shares with the one before stay open,
 * unless there was a gap of more than the sample's own time. */
static void add_sample(const struct flame *f, struct open_frames *o, const struct flame_sample *s)
{
    const struct flame_stack *stack = &f->stacks[s->stack];
    int64_t begin = s->ts - s->value;
    uint32_t same = 0, n = stack->n;
    if (o->n > 0 && begin - o->until > s->value)
        close_frames(f, o, 0, s);
    if (begin < o->until || o->n > 0)
        begin = o->until;
    while (same < o->n && same < n &&
           o->frames[same].label == f->frames[f->places[stack->first + stack->n - 1 - same]].label)
        same++;
    close_frames(f, o, same, s);
    while (o->n < n) {
        o->frames[o->n].label = f->frames[f->places[stack->first + n - 1 - o->n]].label;
        o->frames[o->n].since = begin;
        give_event(f, o, o->n++, s, /* opens= */ true);
    }
    o->until = s->ts;
}

int flame_events(const struct flame *f, int (*fn)(void *arg, const struct flame_event *e),
                 void *arg)
{
    struct open_frames o = {.fn = fn, .arg = arg};
    uint32_t deepest = 1;
    for (uint32_t i = 0; i < f->n_stacks; i++)
        deepest = f->stacks[i].n > deepest ? f->stacks[i].n : deepest;
    o.frames = calloc(deepest, sizeof(*o.frames));
    if (o.frames == NULL)
        return err_set(-ENOMEM, "no memory for the file");
    for (uint32_t i = 0; i < f->n_samples && o.rc == 0; i++) {
        const struct flame_sample *s = &f->samples[i];
        if (i == 0 || s->thread != s[-1].thread)
            o.until = INT64_MIN / 2;
        add_sample(f, &o, s);
        if (i + 1 == f->n_samples || s[1].thread != s->thread)
            close_frames(f, &o, 0, s);
    }
    free(o.frames);
    return o.rc;
}

struct chrome {
    const struct flame *f;
    struct buf *out;
    const struct flame_sample *last; /* of the thread that has been named */
};

static int add_chrome(void *arg, const struct flame_event *e)
{
    struct chrome *c = arg;
    if (c->last == NULL || c->last->thread != e->of->thread) {
        (void)buf_addf(c->out,
                       "%s{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%lld,\"args\":{"
                       "\"name\":",
                       c->last != NULL ? ",\n" : "", (long long)e->of->thread);
        add_text(c->out, e->of->thread_name);
        (void)buf_adds(c->out, "}}");
    }
    c->last = e->of;
    if (e->opens)
        return 0;
    int64_t ns = e->at_ns - e->since_ns;
    (void)buf_adds(c->out, ",\n{\"ph\":\"X\",\"name\":");
    add_text(c->out, e->name);
    (void)buf_addf(c->out,
                   ",\"cat\":\"%s\",\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"pid\":1,\"tid\":%lld}",
                   c->f->mode, (long long)(e->since_ns / 1000), (int)(e->since_ns % 1000),
                   (long long)(ns / 1000), (int)(ns % 1000), (long long)e->of->thread);
    return 0;
}

int flame_chrome(const struct flame *f, struct buf *out)
{
    struct chrome c = {.f = f, .out = out};
    (void)buf_adds(out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
    int rc = flame_events(f, add_chrome, &c);
    (void)buf_adds(out, "\n]}\n");
    return rc < 0 ? rc : no_memory(out);
}
