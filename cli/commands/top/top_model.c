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
    struct arrow_reader *rows; /* takes it; NULL: it is text */
    struct buf text;
    int status;
};

static int on_event(void *arg, const struct probing_client_event *e)
{
    struct answer *a = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return a->rows != NULL ? arrow_reader_feed(a->rows, e->text, e->size)
                               : buf_add(&a->text, e->text, e->size);
    if (e->kind == PROBING_CLIENT_DONE)
        a->status = e->status;
    return 0;
}

/* Run a command there; a->status says whether the process did it.  Below 0: it does not answer any
 * more, or Ctrl-C. */
static int run_command(struct top_sampler *l, int argc, const char *const *argv, struct answer *a)
{
    int64_t id = probing_client_start_run(l->client, argc, argv, /* timeout_ns= */ 0);

    if (id < 0)
        return (int)id;
    int rc = probing_client_stream(l->client, on_event, a, ANSWER_NS, &cli_interrupted);
    return rc == -ETIMEDOUT ? err_set(rc, "%s has not answered for %d s; it may be stopped",
                                      l->target->text, (int)(ANSWER_NS / NS_PER_S))
                            : rc;
}

struct keeping {
    struct snapshot *look;
    struct snapshot_rows *rows;
    struct snapshot_row **last;
};

static int keep_columns(void *arg, const struct sql_column *columns, uint32_t n)
{
    const struct keeping *k = arg;

    return own_columns_keep(&k->look->arena, columns, n, &k->rows->columns);
}

static int keep_row(void *arg, const struct sql_value *cells, uint32_t n)
{
    struct keeping *k = arg;
    struct arena *mem = &k->look->arena;
    struct snapshot_row *row = arena_zalloc(mem, 1, sizeof(*row) + n * sizeof(*row->cells));
    bool whole = row != NULL;

    for (uint32_t i = 0; i < n && whole; i++) {
        struct sql_value *v = &row->cells[i];
        *v = cells[i];
        if (v->type == SQL_TEXT || v->type == SQL_BLOB)
            v->text.data = arena_text(mem, v->text.data, v->text.size);
        whole = (v->type != SQL_TEXT && v->type != SQL_BLOB) || v->text.data != NULL;
    }
    if (!whole)
        return err_set(-ENOMEM, "no memory for the rows of an answer");
    row->n = n;
    *k->last = row;
    k->last = &row->next;
    return 0;
}

/* Ask for rows; there are none when the process says no: then the table is not there. */
static int query_rows(struct top_sampler *l, struct snapshot *look, const char *sql,
                      struct snapshot_rows *ret)
{
    const char *const words[] = {"query", "--format", "arrow", sql};
    struct keeping k = {.look = look, .rows = ret, .last = &ret->first};
    const struct answer_sink to = {.arg = &k, .columns = keep_columns, .row = keep_row};
    struct answer a = {.status = 0};

    *ret = (struct snapshot_rows){.first = NULL};
    int rc = arrow_reader_new(&to, &a.rows);
    if (rc == 0)
        rc = run_command(l, 4, words, &a);
    if (rc == 0 && (a.status != 0 || arrow_reader_end(a.rows) < 0)) {
        ret->first = NULL;
        err_clear();
    }
    arrow_reader_free(a.rows);
    return rc;
}

static int query_row(struct top_sampler *l, struct snapshot *look, const char *sql,
                     const struct snapshot_row **ret)
{
    struct snapshot_rows rows;
    int rc = query_rows(l, look, sql, &rows);

    *ret = rows.first;
    return rc;
}

const struct sql_value *snapshot_cell(const struct snapshot_row *row, uint32_t column)
{
    static const struct sql_value none = {.type = SQL_NULL};

    return row != NULL && column < row->n ? &row->cells[column] : &none;
}

static const char *cell_text(const struct snapshot_row *row, uint32_t column)
{
    return answer_text(snapshot_cell(row, column));
}

static int64_t cell_int(const struct snapshot_row *row, uint32_t column)
{
    return answer_int(snapshot_cell(row, column));
}

/* ---- a look ---- */

static int by_tid(const void *a, const void *b)
{
    int64_t x = ((const struct tally_thread *)a)->tid, y = ((const struct tally_thread *)b)->tid;
    return x < y ? -1 : x > y;
}

static double cpu_percent(const struct top_sampler *l, const struct snapshot *look,
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
    struct snapshot_rows rows;
    uint32_t n = 0;
    int rc =
        query_rows(l, look, "select thread_id, comm, state, cpu_ns, probing from cpu.tasks", &rows);

    look->at_ns = clock_monotonic();
    if (rc == 0 && rows.first == NULL)
        return err_set(-ENOTSUP, "%s has no table cpu.tasks: its core is older than this command",
                       l->target->text);
    if (rc < 0)
        return rc;
    for (const struct snapshot_row *row = rows.first; row != NULL; row = row->next)
        n++;
    look->threads = arena_zalloc(&look->arena, n, sizeof(*look->threads));
    if (look->threads == NULL)
        return err_set(-ENOMEM, "no memory for %u threads", n);
    for (const struct snapshot_row *row = rows.first; row != NULL; row = row->next) {
        struct snapshot_thread *t = &look->threads[look->n++];
        *t = (struct snapshot_thread){.tid = cell_int(row, 0),
                                      .comm = cell_text(row, 1),
                                      .state = cell_text(row, 2),
                                      .cpu_ns = cell_int(row, 3),
                                      .ours = cell_int(row, 4) != 0,
                                      .name = "",
                                      .doing = "",
                                      .func = "",
                                      .at = ""};
        t->cpu_pct = cpu_percent(l, look, t);
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
    struct answer a = {.status = 0};
    struct json *answer = NULL;

    buf_init(&a.text, ANSWER_MAX_BYTES);
    int rc = run_command(l, 3, words, &a);
    if (rc == 0 && a.status == 0 && json_parse(&look->arena, a.text.data, a.text.size, &answer) < 0)
        answer = NULL;
    buf_done(&a.text);
    const struct json *list = answer != NULL ? json_get(answer, "threads") : NULL;
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

/* doc, sql, kind, rows.  A table that is not there leaves its panel without rows. */
static int read_panel(struct top_sampler *l, struct snapshot *look, const struct snapshot_row *row)
{
    struct snapshot_panel *p = &look->panels[look->n_panels];
    int64_t most = cell_int(row, 3);

    if (cell_text(row, 1)[0] == '\0')
        return 0;
    *p = (struct snapshot_panel){.doc = cell_text(row, 0),
                                 .is_table = strcmp(cell_text(row, 2), "columns") == 0,
                                 .most = most > 0 && most < 64 ? (uint32_t)most : 64};
    int rc = query_rows(l, look, cell_text(row, 1), &p->rows);
    look->n_panels += rc == 0 && p->rows.first != NULL;
    return rc;
}

static int read_panels(struct top_sampler *l, struct snapshot *look)
{
    struct snapshot_rows list;
    int rc = query_rows(l, look, "select doc, sql, kind, rows from probing.panels", &list);

    look->panels = arena_zalloc(&look->arena, PANELS_MAX, sizeof(*look->panels));
    if (rc == 0 && look->panels == NULL)
        rc = err_set(-ENOMEM, "no memory for what plugins show");
    for (const struct snapshot_row *p = list.first;
         p != NULL && rc == 0 && look->n_panels < PANELS_MAX; p = p->next)
        rc = read_panel(l, look, p);
    return rc;
}

static int read_tables(struct top_sampler *l, struct snapshot *look)
{
    static const char memory[] = "select rss_bytes, peak_rss_bytes, swap_bytes, "
                                 "system_total_bytes, system_available_bytes from process.memory";
    static const char lost[] =
        "select coalesce(sum(rows), 0) from probing.lost where reason <> 'value'";
    int rc = query_row(l, look, memory, &look->memory);

    if (rc == 0)
        rc = query_row(l, look, lost, &look->lost);
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
static int keep_times(struct top_sampler *l, struct snapshot *look)
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
        rc = keep_times(l, look);
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
        put_number(b, names[i], answer_is_number(snapshot_cell(look->memory, i)),
                   answer_number(snapshot_cell(look->memory, i)));
    close_with(b, "}, ");
}

/* Write a plugin's panel: a row of `columns` each, of lines their text. */
static void put_panel(const struct snapshot_panel *p, struct buf *b)
{
    uint32_t left = p->most;

    (void)buf_addc(b, '{');
    json_add_member_text(b, "doc", p->doc);
    (void)buf_adds(b, "\"columns\": [");
    for (uint32_t i = 0; i < p->rows.columns.n; i++) {
        const char *name = p->rows.columns.list[i].name;
        (void)json_add_text(b, name, strlen(name));
        (void)buf_adds(b, ", ");
    }
    close_with(b, "], \"rows\": [");
    for (const struct snapshot_row *row = p->rows.first; row != NULL && left > 0;
         row = row->next, left--) {
        (void)buf_addc(b, '[');
        for (uint32_t i = 0; i < row->n; i++) {
            sql_cell_json(b, &row->cells[i]);
            (void)buf_adds(b, ", ");
        }
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
    json_add_member_int(ret, "lost", cell_int(look->lost, 0), -1);
    put_memory(look, ret);
    put_threads(look, ours, ret);
    put_functions(tally, ret);
    (void)buf_adds(ret, "\"panels\": [");
    for (uint32_t i = 0; i < look->n_panels; i++)
        put_panel(&look->panels[i], ret);
    close_with(ret, "]}\n");
    return ret->failed ? err_set(ret->failed, "no memory for the answer") : 0;
}
