/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/export/trace_events.c - rows with a time and a duration as a trace, which ui.perfetto.dev and
 * (as JSON) chrome://tracing show nested by time, a line for each thread, and for what a row says.
 *
 * Process and threads have the numbers and names that the target has: of the dead its info tells
 * the process.  A rank is an argument: in a trace made of those of several ranks each is a process.
 *
 * One thread.  column_roles.h says which column is what.  A row's ts is taken for the end of what
 * it tells, as all our tables have it; columns without a role become arguments.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/answer/column_roles.h"
#include "cli/export/export.h"
#include "cli/export/plain_name.h"
#include "cli/target/datadir.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/array.h"
#include "sdk/lib/json.h"

#define THREADS_MAX 65536 /* whose names are kept */
#define LINE_NAME_BYTES 64

struct named_thread {
    int64_t tid;
    char name[LINE_NAME_BYTES];
    bool told;
};

struct trace {
    int64_t pid; /* of the target, 0: not known */
    char command[256];
    struct named_thread *threads; /* of the target; in JSON also those that events have brought */
    uint32_t n_threads, room;
    bool process_told;
    bool begun;       /* the trace: an answer may follow another */
    const char *kind; /* of events whose rows say none */
    struct export_lines *lines;
    const struct sql_column *columns; /* of the answer that is read */
    int of[ROLES];                    /* column, -1: none */
    double ns;                        /* of one unit of the duration */
    struct buf *out;
    bool any;
    struct perfetto *perfetto; /* NULL: JSON */
};

/* ---- whose they are ---- */

static struct named_thread *find_thread(struct trace *t, int64_t tid)
{
    for (uint32_t i = 0; i < t->n_threads; i++)
        if (t->threads[i].tid == tid)
            return &t->threads[i];
    struct named_thread *more =
        array_grow(t->threads, t->n_threads, &t->room, sizeof(*more), THREADS_MAX);
    if (more == NULL)
        return NULL;
    t->threads = more;
    t->threads[t->n_threads] = (struct named_thread){.tid = tid};
    return &t->threads[t->n_threads++];
}

/* thread_id, comm; the first thread is the process's own. */
static int take_thread(void *self, const struct sql_value *cells, uint32_t n)
{
    struct trace *t = self;
    struct named_thread *thread = n == 2 ? find_thread(t, answer_int(&cells[0])) : NULL;

    if (t->pid == 0 && n == 2)
        t->pid = answer_int(&cells[0]);
    if (thread != NULL)
        (void)snprintf(thread->name, sizeof(thread->name), "%s", answer_text(&cells[1]));
    return 0;
}

/* Look up the pid, command and threads; a trace does without those that cannot be known. */
static void find_process(struct trace *t, const struct target *target)
{
    const struct answer_sink threads = {.arg = t, .row = take_thread};
    struct datadir d;
    char pid[24] = "";
    uint64_t number = 0;
    if (target->directory[0] != '\0' && datadir_open(target->directory, DATADIR_ANY, &d) == 0) {
        if (directory_info(&d, "pid", pid, sizeof(pid)) == 0 && parse_u64(pid, &number) == 0)
            t->pid = number <= INT32_MAX ? (int64_t)number : 0;
        (void)directory_info(&d, "command", t->command, sizeof(t->command));
        datadir_close(&d);
    }
    if (!target_is_files(target))
        (void)answer_read(target, "select thread_id, comm from cpu.tasks", &threads);
    else if (t->pid == 0)
        t->pid = target->pid;
    err_clear();
}

/* ---- events ---- */

static int begin_trace(struct trace *t)
{
    if (t->begun)
        return 0;
    t->begun = true;
    if (t->perfetto != NULL)
        return perfetto_begin(t->perfetto, t->out);
    return buf_adds(t->out, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
}

static int take_columns(void *self, const struct sql_column *columns, uint32_t n)
{
    struct trace *t = self;

    t->columns = columns;
    for (int role = 0; role < ROLES; role++)
        t->of[role] = column_in_role(columns, n, (enum column_role)role);
    if (t->of[ROLE_END] < 0 && t->of[ROLE_BEGIN] < 0)
        return err_set(-EINVAL,
                       "a trace needs rows that have a time: a column 'ts' of type timestamp");
    if (t->of[ROLE_DURATION] >= 0)
        t->ns = column_unit_ns(&columns[t->of[ROLE_DURATION]]);
    return begin_trace(t);
}

/* The cell of a column with that role; NULL: there is none, or it is NULL. */
static const struct sql_value *find_cell(const struct trace *t, const struct sql_value *cells,
                                         enum column_role r)
{
    const struct sql_value *c = t->of[r] >= 0 ? &cells[t->of[r]] : NULL;

    return c != NULL && c->type != SQL_NULL ? c : NULL;
}

static void add_text(struct buf *out, const char *key, const char *text, size_t n)
{
    (void)buf_addf(out, ",\"%s\":", key);
    (void)json_add_text(out, text, n);
}

static void add_us(struct buf *out, const char *key, int64_t ns)
{
    (void)buf_addf(out, ",\"%s\":%lld.%03d", key, (long long)(ns / 1000), (int)(ns % 1000));
}

static bool is_argument(const struct trace *t, const struct sql_value *cells, uint32_t i)
{
    for (int role = 0; role < ROLES; role++)
        if (t->of[role] == (int)i)
            return false;
    return cells[i].type != SQL_NULL;
}

/* An event of its own says what a process or a thread is called, the first time it comes. */
static void add_name(struct trace *t, const char *what, const struct export_event *e,
                     const char *name, struct buf *out)
{
    (void)buf_addf(out,
                   "%s{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%lld,\"tid\":%lld,\"args\":{\"name\":",
                   t->any ? ",\n" : "", what, (long long)e->pid, (long long)e->tid);
    (void)json_add_text(out, name, strlen(name));
    (void)buf_adds(out, "}}");
    t->any = true;
}

static void add_names(struct trace *t, const struct export_event *e, struct buf *out)
{
    struct named_thread *thread = e->pid == t->pid ? find_thread(t, e->tid) : NULL;
    if (e->process[0] != '\0' && !t->process_told) {
        add_name(t, "process_name", e, e->process, out);
        t->process_told = true;
    }
    if (thread == NULL || thread->told)
        return;
    thread->told = true;
    if (e->thread[0] != '\0')
        add_name(t, "thread_name", e, e->thread, out);
}

static int add_json(struct trace *t, const struct sql_value *cells, uint32_t n,
                    const struct export_event *e)
{
    struct buf *out = t->out;
    bool any = false;

    add_names(t, e, out);
    (void)buf_adds(out, t->any ? ",\n{\"ph\":" : "{\"ph\":");
    t->any = true;
    (void)buf_adds(out, e->duration_ns >= 0 ? "\"X\"" : "\"i\",\"s\":\"t\"");
    add_text(out, "name", e->name, e->name_n);
    add_text(out, "cat", e->kind, e->kind_n);
    add_us(out, "ts", e->at_ns);
    if (e->duration_ns >= 0)
        add_us(out, "dur", e->duration_ns);
    (void)buf_addf(out, ",\"pid\":%lld,\"tid\":%lld,\"args\":{", (long long)e->pid,
                   (long long)e->tid);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_argument(t, cells, i))
            continue;
        if (any)
            (void)buf_addc(out, ',');
        any = true;
        (void)json_add_text(out, t->columns[i].name, strlen(t->columns[i].name));
        (void)buf_addc(out, ':');
        sql_cell_json(out, &cells[i]);
    }
    return buf_adds(out, "}}") ? err_set(-ENOMEM, "no memory for an event") : 0;
}

static int add_perfetto(struct trace *t, const struct sql_value *cells, uint32_t n,
                        const struct export_event *e)
{
    for (uint32_t i = 0; i < n; i++)
        if (is_argument(t, cells, i))
            perfetto_argument(t->perfetto, t->columns[i].name, &cells[i]);
    return perfetto_event(t->perfetto, e, t->out);
}

/* Gives the time at which the row began.  false: it has none. */
static bool find_begin(const struct trace *t, const struct sql_value *cells, int64_t ns,
                       int64_t *ret)
{
    const struct sql_value *end = find_cell(t, cells, ROLE_END);
    const struct sql_value *start = find_cell(t, cells, ROLE_BEGIN);

    if (start != NULL)
        *ret = start->integer;
    else if (end != NULL)
        *ret = end->integer - (ns > 0 ? ns : 0);
    return start != NULL || end != NULL;
}

static void choose_text(const struct sql_value *c, const char *otherwise, const char **ret,
                        size_t *ret_n)
{
    *ret = c != NULL ? c->text.data : otherwise;
    *ret_n = c != NULL ? c->text.size : strlen(otherwise);
}

static void name_event(struct trace *t, struct export_event *e)
{
    struct named_thread *thread = find_thread(t, e->tid);
    e->process = t->command;
    if (thread == NULL)
        return;
    if (e->on_line && thread->name[0] == '\0')
        (void)snprintf(thread->name, sizeof(thread->name), "%s", e->thread);
    e->thread = thread->name;
}

/* An event is on a line of its own, if its row says so. */
static int place_event(struct trace *t, const struct sql_value *track, struct export_event *e)
{
    if (track == NULL)
        return 0;
    int64_t end_ns = e->at_ns + (e->duration_ns > 0 ? e->duration_ns : 0);
    e->on_line = true;
    e->thread = track->text.data;
    return export_lines_place(t->lines, track->text.data, e->at_ns, end_ns, &e->tid);
}

static int take_row(void *self, const struct sql_value *cells, uint32_t n)
{
    struct trace *t = self;
    const struct sql_value *duration = find_cell(t, cells, ROLE_DURATION);
    const struct sql_value *name = find_cell(t, cells, ROLE_NAME);
    const struct sql_value *kind = find_cell(t, cells, ROLE_KIND);
    const struct sql_value *tid = find_cell(t, cells, ROLE_TID);
    const struct sql_value *pid = find_cell(t, cells, ROLE_PID);
    struct export_event e = {.duration_ns = -1,
                             .pid = pid != NULL ? answer_int(pid) : t->pid,
                             .tid = tid != NULL ? answer_int(tid) : 0,
                             .process = "",
                             .thread = ""};
    double ns = duration != NULL ? answer_number(duration) * t->ns : -1;

    if (ns >= 0 && ns < 9e18)
        e.duration_ns = (int64_t)(ns + 0.5);
    if (!find_begin(t, cells, e.duration_ns, &e.at_ns))
        return 0; /* without a time it is no event */
    choose_text(name != NULL ? name : kind, "event", &e.name, &e.name_n);
    if (strncmp(e.name, "_Z", 2) == 0) {
        e.name = cli_plain_name(e.name);
        e.name_n = strlen(e.name);
    }
    choose_text(kind, t->kind, &e.kind, &e.kind_n);
    int rc = place_event(t, find_cell(t, cells, ROLE_TRACK), &e);
    if (rc < 0)
        return rc;
    if (e.pid == t->pid)
        name_event(t, &e);
    return t->perfetto != NULL ? add_perfetto(t, cells, n, &e) : add_json(t, cells, n, &e);
}

static int end_trace(void *self)
{
    struct trace *t = self;
    int rc = begin_trace(t);

    return rc < 0 || t->perfetto != NULL ? rc : buf_adds(t->out, "\n]}\n");
}

static void free_trace(void *self)
{
    struct trace *t = self;

    perfetto_free(t->perfetto);
    export_lines_free(t->lines);
    free(t->threads);
    free(t);
}

int export_trace_new(const struct target *target, bool perfetto, struct buf *out,
                     struct export_writer *ret)
{
    struct trace *t = calloc(1, sizeof(*t));

    if (t == NULL)
        return err_set(-ENOMEM, "no memory for a trace");
    *t = (struct trace){.kind = "probing", .out = out, .lines = export_lines_new()};
    if (perfetto)
        t->perfetto = perfetto_new();
    if (t->lines == NULL || (perfetto && t->perfetto == NULL)) {
        free_trace(t);
        return err_set(-ENOMEM, "no memory for a trace");
    }
    find_process(t, target);
    *ret = (struct export_writer){.to = {.arg = t, .columns = take_columns, .row = take_row},
                                  .end = end_trace,
                                  .free = free_trace};
    return 0;
}

void export_trace_kind(const struct export_writer *w, const char *kind)
{
    ((struct trace *)w->to.arg)->kind = kind;
}
