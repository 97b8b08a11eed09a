/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/top/top_model.c - see top_model.h.
 *
 * One thread.  All of it is SQL over the process' own tables, as the core knows them or as plugins
 * declare it, and the stacks that `backtrace` gives; what is not there (Python) is left out.
 */
#include "cli/commands/top/top_model.h"

#include <errno.h>
#include <math.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/json.h"

#define ANSWER_MAX_BYTES ((size_t)64 << 20)
#define ANSWER_NS (10 * NS_PER_S) /* a process that takes longer is stopped, or far too busy */
#define PANELS_MAX 64             /* of all plugins */

struct top_sampler {
    const struct target *target;
    struct probing_client *client;
    struct tally_thread *before; /* in order of tid */
    uint32_t n_before;
    uint64_t before_ns;
};

/* ---- asking ---- */

struct answer {
    struct buf text;
    int status;
};

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct answer *a = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return buf_add(&a->text, e->text, e->size);
    if (e->kind == PROBING_CLIENT_DONE)
        a->status = e->status;
    return 0;
}

/* Ask for a command's answer, as JSON; *ret stays NULL when the process says no: then that is not
 * there.  Below 0: it does not answer any more, or Ctrl-C. */
static int ask(struct top_sampler *l, struct snapshot *look, int argc, const char *const *argv,
               struct json **ret)
{
    struct answer a = {.status = 0};
    int64_t id = probing_client_start_run(l->client, argc, argv, /* timeout_ns= */ 0);

    *ret = NULL;
    if (id < 0)
        return (int)id;
    buf_init(&a.text, ANSWER_MAX_BYTES);
    int rc = probing_client_stream(l->client, on_event, &a, ANSWER_NS, &cli_interrupted);
    if (rc == -ETIMEDOUT)
        rc = err_set(rc, "%s has not answered for %d s; it may be stopped", l->target->text,
                     (int)(ANSWER_NS / NS_PER_S));
    if (rc == 0 && a.status == 0 && json_parse(&look->arena, a.text.data, a.text.size, ret) < 0)
        *ret = NULL;
    buf_done(&a.text);
    return rc;
}

/* ret_columns: may be NULL. */
static int query(struct top_sampler *l, struct snapshot *look, const char *sql, struct json **ret,
                 const struct json **ret_columns)
{
    const char *const words[] = {"query", "--format", "json", sql};
    struct json *answer;
    int rc = ask(l, look, 4, words, &answer);
    const struct json *rows = rc == 0 && answer != NULL ? json_get(answer, "rows") : NULL;
    const struct json *columns = rc == 0 && answer != NULL ? json_get(answer, "columns") : NULL;

    *ret = rows != NULL ? rows->first : NULL;
    if (ret_columns != NULL)
        *ret_columns = columns != NULL ? columns->first : NULL;
    return rc;
}

static const struct json *cell(const struct json *row, uint32_t n)
{
    const struct json *c = row->first;
    for (; n > 0 && c != NULL; n--)
        c = c->next;
    return c;
}

const char *snapshot_text(const struct json *row, uint32_t n)
{
    const struct json *c = cell(row, n);
    return c != NULL && c->type == JSON_STRING ? c->text : "";
}

double snapshot_number(const struct json *row, uint32_t n)
{
    const struct json *c = cell(row, n);
    return c == NULL || c->type != JSON_NUMBER ? 0 : c->is_integer ? (double)c->integer : c->number;
}

bool snapshot_knows(const struct json *row, uint32_t n)
{
    const struct json *c = cell(row, n);
    return c != NULL && c->type == JSON_NUMBER;
}

int64_t snapshot_int(const struct json *row, uint32_t n)
{
    const struct json *c = cell(row, n);
    return c != NULL && c->type == JSON_NUMBER ? c->integer : 0;
}

/* ---- a look ---- */

static int by_tid(const void *a, const void *b)
{
    int64_t x = ((const struct tally_thread *)a)->tid, y = ((const struct tally_thread *)b)->tid;
    return x < y ? -1 : x > y;
}

static double percent(const struct top_sampler *l, const struct snapshot *look,
                      const struct snapshot_thread *t)
{
    const struct tally_thread key = {.tid = t->tid};
    const struct tally_thread *before =
        l->n_before == 0 ? NULL : bsearch(&key, l->before, l->n_before, sizeof(key), by_tid);
    if (before == NULL || look->at_ns <= l->before_ns)
        return -1;
    return 100.0 * (double)(t->cpu_ns - (int64_t)before->cpu_ns) /
           (double)(look->at_ns - l->before_ns);
}

static int read_threads(struct top_sampler *l, struct snapshot *look)
{
    struct json *rows;
    uint32_t n = 0;
    int rc = query(l, look, "select thread_id, comm, state, cpu_ns, probing from cpu.tasks", &rows,
                   /* ret_columns= */ NULL);

    look->at_ns = clock_monotonic();
    if (rc == 0 && rows == NULL)
        return err_set(-ENOTSUP, "%s has no table cpu.tasks: its core is older than this command",
                       l->target->text);
    if (rc < 0)
        return rc;
    for (const struct json *row = rows; row != NULL; row = row->next)
        n++;
    look->threads = arena_zalloc(&look->arena, n, sizeof(*look->threads));
    if (look->threads == NULL)
        return err_set(-ENOMEM, "no memory for %u threads", n);
    for (const struct json *row = rows; row != NULL; row = row->next) {
        struct snapshot_thread *t = &look->threads[look->n++];
        *t = (struct snapshot_thread){.tid = snapshot_int(row, 0),
                                      .comm = snapshot_text(row, 1),
                                      .state = snapshot_text(row, 2),
                                      .cpu_ns = snapshot_int(row, 3),
                                      .ours = snapshot_int(row, 4) != 0,
                                      .name = "",
                                      .doing = "",
                                      .func = "",
                                      .at = ""};
        t->cpu_pct = percent(l, look, t);
    }
    return 0;
}

/* The processor time of its threads, in order of tid; lives in the snapshot's arena. */
static struct tally_thread *cpu_times(struct snapshot *look)
{
    struct tally_thread *all = arena_zalloc(&look->arena, look->n, sizeof(*all));
    for (uint32_t i = 0; all != NULL && i < look->n; i++)
        all[i] = (struct tally_thread){.tid = look->threads[i].tid,
                                       .cpu_ns = (uint64_t)look->threads[i].cpu_ns};
    if (all != NULL)
        qsort(all, look->n, sizeof(*all), by_tid);
    return all;
}

/* Read what the interpreter knows of them: names, and the innermost function. */
static int read_stacks(struct top_sampler *l, struct tally *tally, struct snapshot *look)
{
    static const char *const words[] = {"backtrace", "--python", "--json"};
    struct json *answer;
    int rc = ask(l, look, 3, words, &answer);
    const struct json *list = rc == 0 && answer != NULL ? json_get(answer, "threads") : NULL;

    const struct tally_thread *used = list != NULL ? cpu_times(look) : NULL;
    if (used != NULL)
        tally_add(tally, list, used, look->n, look->at_ns);
    for (const struct json *s = list != NULL ? list->first : NULL; s != NULL; s = s->next) {
        int64_t tid = json_int(s, "tid", 0);
        const struct json *frames = json_get(s, "frames");
        const struct json *frame = frames != NULL ? frames->first : NULL;
        for (uint32_t i = 0; i < look->n; i++) {
            struct snapshot_thread *t = &look->threads[i];
            if (t->tid != tid)
                continue;
            t->name = json_text(s, "name", "");
            t->doing = json_text(s, "state", "");
            t->func = frame != NULL ? json_text(frame, "func", "") : "";
            t->at = frame != NULL ? json_text(frame, "file", "") : "";
            t->line = frame != NULL ? json_int(frame, "line", 0) : 0;
        }
    }
    return rc;
}

static bool is_text(const struct json *row, uint32_t column)
{
    return snapshot_text(row, column)[0] != '\0';
}

/* doc, sql, kind, rows.  A table that is not there leaves its panel without rows. */
static int read_panel(struct top_sampler *l, struct snapshot *look, const struct json *row)
{
    struct snapshot_panel *p = &look->panels[look->n_panels];
    struct json *rows;
    int64_t most = snapshot_int(row, 3);

    if (!is_text(row, 1))
        return 0;
    *p = (struct snapshot_panel){.doc = snapshot_text(row, 0),
                                 .is_table = strcmp(snapshot_text(row, 2), "columns") == 0,
                                 .most = most > 0 && most < 64 ? (uint32_t)most : 64};
    int rc = query(l, look, snapshot_text(row, 1), &rows, &p->columns);
    p->rows = rows;
    look->n_panels += rc == 0 && rows != NULL && p->columns != NULL;
    return rc;
}

static int read_panels(struct top_sampler *l, struct snapshot *look)
{
    struct json *list;
    int rc = query(l, look, "select doc, sql, kind, rows from probing.panels", &list, NULL);

    look->panels = arena_zalloc(&look->arena, PANELS_MAX, sizeof(*look->panels));
    if (rc == 0 && look->panels == NULL)
        rc = err_set(-ENOMEM, "no memory for what plugins show");
    for (const struct json *p = list; p != NULL && rc == 0 && look->n_panels < PANELS_MAX;
         p = p->next)
        rc = read_panel(l, look, p);
    return rc;
}

static int read_tables(struct top_sampler *l, struct snapshot *look)
{
    static const char memory[] = "select rss_bytes, peak_rss_bytes, swap_bytes, "
                                 "system_total_bytes, system_available_bytes from process.memory";
    static const char lost[] =
        "select coalesce(sum(rows), 0) from probing.lost where reason <> 'value'";
    int rc = query(l, look, memory, &look->memory, NULL);

    if (rc == 0)
        rc = query(l, look, lost, &look->lost, NULL);
    return rc == 0 ? read_panels(l, look) : rc;
}

static int by_cpu(const void *a, const void *b)
{
    const struct snapshot_thread *x = a, *y = b;
    return x->cpu_pct > y->cpu_pct   ? -1
           : x->cpu_pct < y->cpu_pct ? 1
           : x->tid < y->tid         ? -1
                                     : x->tid > y->tid;
}

/* Remember what the next look is compared with. */
static int remember(struct top_sampler *l, struct snapshot *look)
{
    const struct tally_thread *now = cpu_times(look);
    struct tally_thread *kept = calloc(look->n ? look->n : 1, sizeof(*kept));
    if (now == NULL || kept == NULL) {
        free(kept);
        return err_set(-ENOMEM, "no memory for %u threads", look->n);
    }
    memcpy(kept, now, look->n * sizeof(*kept));
    free(l->before);
    l->before = kept;
    l->n_before = look->n;
    l->before_ns = look->at_ns;
    return 0;
}

int looker_new(const struct target *t, struct top_sampler **ret)
{
    struct top_sampler *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return err_set(-ENOMEM, "no memory for looking");
    l->target = t;
    int rc = target_connect(t, &l->client);
    if (rc == 0)
        *ret = l;
    else
        looker_free(l);
    return rc;
}

void looker_free(struct top_sampler *l)
{
    if (l == NULL)
        return;
    probing_client_free(l->client);
    free(l->before);
    free(l);
}

void snapshot_done(struct snapshot *look)
{
    arena_done(&look->arena);
}

int snapshot_take(struct top_sampler *l, struct tally *tally, struct snapshot *look)
{
    *look = (struct snapshot){.n = 0};
    arena_init(&look->arena, 4 * ANSWER_MAX_BYTES);
    int rc = read_threads(l, look);
    if (rc == 0)
        rc = read_stacks(l, tally, look);
    if (rc == 0)
        rc = read_tables(l, look);
    if (rc == 0)
        rc = remember(l, look);
    qsort(look->threads, look->n, sizeof(*look->threads), by_cpu);
    return rc;
}

int snapshot_sample(struct top_sampler *l, struct tally *tally)
{
    struct snapshot look;

    look = (struct snapshot){.n = 0};
    arena_init(&look.arena, ANSWER_MAX_BYTES);
    int rc = read_threads(l, &look);
    if (rc == 0)
        rc = read_stacks(l, tally, &look);
    snapshot_done(&look);
    return rc;
}

/* ---- as JSON: names are those of the tables, what is not known is null ---- */

static void put_key(struct buf *b, const char *key)
{
    (void)buf_addf(b, "\"%s\": ", key);
}

static void put_number(struct buf *b, const char *key, bool known, double number)
{
    put_key(b, key);
    (void)json_add_f64(b, known ? number : (double)NAN);
    (void)buf_adds(b, ", ");
}

/* A list or an object has a comma behind each member: the last one is taken back. */
static void close_with(struct buf *b, const char *bracket)
{
    if (b->size >= 2 && memcmp(b->data + b->size - 2, ", ", 2) == 0)
        b->size -= 2;
    (void)buf_adds(b, bracket);
}

static void put_thread(const struct snapshot_thread *t, struct buf *b)
{
    (void)buf_addc(b, '{');
    json_add_member_int(b, "tid", t->tid, 0);
    json_add_member_text(b, "name", t->name);
    json_add_member_text(b, "comm", t->comm);
    put_number(b, "cpu_pct", t->cpu_pct >= 0, t->cpu_pct);
    json_add_member_text(b, "state", t->doing);
    json_add_member_text(b, "kernel_state", t->state);
    json_add_member_text(b, "func", t->func);
    json_add_member_text(b, "file", t->at);
    json_add_member_int(b, "lineno", t->line, 0);
    (void)buf_addf(b, "\"probing\": %s}, ", t->ours ? "true" : "false");
}

static void put_threads(const struct snapshot *look, bool ours, struct buf *b)
{
    (void)buf_adds(b, "\"threads\": [");
    for (uint32_t i = 0; i < look->n; i++)
        if (ours || !look->threads[i].ours)
            put_thread(&look->threads[i], b);
    close_with(b, "], ");
}

static void put_functions(struct tally *tally, struct buf *b)
{
    const struct tally_function *f = NULL;
    uint32_t n = tally_sort(tally, &f);
    double span = tally->samples > 0 ? (double)tally->span_ns : 0;

    (void)buf_adds(b, "\"functions\": [");
    for (uint32_t i = 0; i < n; i++, f++) {
        (void)buf_addc(b, '{');
        json_add_member_text(b, "func", f->name);
        json_add_member_text(b, "file", f->file);
        put_number(b, "own_pct", span > 0, 100 * (double)f->own_ns / span);
        put_number(b, "total_pct", span > 0, 100 * (double)f->total_ns / span);
        json_add_member_int(b, "own_ns", (int64_t)f->all_own_ns, -1);
        json_add_member_int(b, "total_ns", (int64_t)f->all_total_ns, -1);
        close_with(b, "}, ");
    }
    close_with(b, "], ");
}

static void put_memory(const struct snapshot *look, struct buf *b)
{
    static const char *const names[] = {"rss_bytes", "peak_rss_bytes", "swap_bytes",
                                        "system_total_bytes", "system_available_bytes"};
    (void)buf_adds(b, "\"memory\": {");
    for (uint32_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        put_number(b, names[i], look->memory != NULL && snapshot_knows(look->memory, i),
                   look->memory != NULL ? snapshot_number(look->memory, i) : 0);
    close_with(b, "}, ");
}

/* A cell, as the process has answered it. */
static void put_value(const struct json *value, struct buf *b)
{
    if (value->type == JSON_STRING)
        (void)json_add_text(b, value->text, value->size);
    else if (value->type == JSON_NUMBER)
        (void)buf_adds(b, value->text);
    else
        (void)buf_adds(b, value->type != JSON_BOOL ? "null" : value->boolean ? "true" : "false");
    (void)buf_adds(b, ", ");
}

/* Write a plugin's panel: a row of `columns` each, of lines their text. */
static void put_panel(const struct snapshot_panel *p, struct buf *b)
{
    uint32_t left = p->most;

    (void)buf_addc(b, '{');
    json_add_member_text(b, "doc", p->doc);
    (void)buf_adds(b, "\"columns\": [");
    for (const struct json *c = p->columns; c != NULL; c = c->next) {
        const char *name = json_text(c, "name", "");
        (void)json_add_text(b, name, strlen(name));
        (void)buf_adds(b, ", ");
    }
    close_with(b, "], \"rows\": [");
    for (const struct json *row = p->rows; row != NULL && left > 0; row = row->next, left--) {
        (void)buf_addc(b, '[');
        for (const struct json *cell = row->first; cell != NULL; cell = cell->next)
            put_value(cell, b);
        close_with(b, "], ");
    }
    close_with(b, "]}, ");
}

int snapshot_json(const struct snapshot *look, struct tally *tally, bool ours, struct buf *ret)
{
    double cpu[2] = {0, 0};

    for (uint32_t i = 0; i < look->n; i++)
        cpu[look->threads[i].ours] += look->threads[i].cpu_pct > 0 ? look->threads[i].cpu_pct : 0;
    (void)buf_addc(ret, '{');
    put_number(ret, "cpu_pct", true, cpu[0]);
    put_number(ret, "probing_cpu_pct", true, cpu[1]);
    json_add_member_int(ret, "lost", look->lost != NULL ? snapshot_int(look->lost, 0) : 0, -1);
    put_memory(look, ret);
    put_threads(look, ours, ret);
    put_functions(tally, ret);
    (void)buf_adds(ret, "\"panels\": [");
    for (uint32_t i = 0; i < look->n_panels; i++)
        put_panel(&look->panels[i], ret);
    close_with(ret, "]}\n");
    return ret->failed ? err_set(ret->failed, "no memory for the answer") : 0;
}
