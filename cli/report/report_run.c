/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/report/report_run.c - a plugin's command runs in this process: what it may call.
 *
 * One thread.  Each function here is one of struct probing_report_api (probing/report.h), over what
 * our own commands use.  A crash ends this process only, with a sentence.
 */
#include <errno.h>
#include <malloc.h>
#include <probing/client.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"
#include "cli/target/apart.h"
#include "cli/target/datadir.h"
#include "cli/target/live_run.h"
#include "cli/target/no_core.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/atomic_output.h"
#include "cli/terminal/exit_codes.h"
#include "cli/terminal/fit_text.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/pager.h"
#include "cli/terminal/screen.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/base/text.h"
#include "core/datadir/datadir.h"
#include "sdk/lib/json.h"

#define KEEP_BYTES (256 << 20)     /* of freed memory: a report asks question after question */
#define TEXT_MAX ((size_t)1 << 20) /* bytes of one text that is made to fit, or to JSON */

struct visit { /* one run of a command */
    struct target *t;
    const struct report_command *of;
};

static const struct visit *visit_of(const struct probing_report_api *a)
{
    return a->cli;
}

/* ---- words ---- */

static int api_parse(const struct probing_report_api *a, int argc, const char *const *argv,
                     int (*take)(void *arg, const char *option, const char *value), void *arg)
{
    (void)a;
    return cli_parse(argc, (char **)(uintptr_t)argv, take, arg);
}

static int api_parse_time(const struct probing_report_api *a, const char *text, uint64_t *ret_ns)
{
    (void)a;
    return parse_ns(text, ret_ns);
}

static int api_parse_count(const struct probing_report_api *a, const char *text, uint64_t *ret)
{
    (void)a;
    return parse_u64(text, ret);
}

static int api_fail(const struct probing_report_api *a, int code, const char *text)
{
    (void)a;
    return err_set(code < 0 ? code : -EINVAL, "%s", text);
}

static int api_misuse(const struct probing_report_api *a, int code, const char *text)
{
    return cli_misuse(api_fail(a, code, text));
}

static int api_no_plugin(const struct probing_report_api *a)
{
    const struct target *t = visit_of(a)->t;
    const char *name = visit_of(a)->of->report->name;

    if (t->kind == TARGET_BARE)
        return target_no_core(t->pid, name);
    if (t->kind == TARGET_MANY)
        return err_set(-ENODATA, "plugin %s is loaded in none of %s: probing -t %s plugin load %s",
                       name, t->text, t->text, name);
    if (t->kind == TARGET_FILES)
        return err_set(-ENODATA, "plugin %s was never loaded in %s: there is nothing to show", name,
                       t->text);
    lack_note(/* bare= */ 0, name);
    return err_set(-ENODATA, "plugin %s is not loaded in %s: probing -t %s plugin load %s", name,
                   t->text, t->text, name);
}

/* ---- questions ---- */

struct rows {
    int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n);
    void *arg;
    struct buf texts; /* of a row's times, intervals and blobs, each with a NUL at its end */
    struct probing_report_cell cells[ANSWER_COLUMNS_MAX];
};

/* A time, an interval or a blob becomes a text, which on_row() makes. */
static struct probing_report_cell cell_of(const struct sql_value *v)
{
    switch (v->type) {
    case SQL_INT:
        return (struct probing_report_cell){.type = PROBING_I64, .value.i = v->integer};
    case SQL_BOOL:
        return (struct probing_report_cell){.type = PROBING_I64, .value.i = v->boolean};
    case SQL_DOUBLE:
        return (struct probing_report_cell){.type = PROBING_F64, .value.f = v->number};
    case SQL_TEXT:
        return (struct probing_report_cell){
            .type = PROBING_STR, .size = v->text.size, .value.s = v->text.data};
    case SQL_BLOB:
    case SQL_TIMESTAMP:
    case SQL_INTERVAL:
    case SQL_DATE:
    case SQL_CALENDAR:
        return (struct probing_report_cell){.type = PROBING_STR};
    case SQL_NULL:
        break;
    }
    return (struct probing_report_cell){.type = 0};
}

static bool has_no_text(const struct probing_report_cell *c)
{
    return c->type == PROBING_STR && c->value.s == NULL;
}

static int on_row(void *arg, const struct sql_value *cells, uint32_t n)
{
    struct rows *rows = arg;

    buf_reset(&rows->texts);
    for (uint32_t i = 0; i < n; i++) {
        rows->cells[i] = cell_of(&cells[i]);
        if (!has_no_text(&rows->cells[i]))
            continue;
        size_t begin = rows->texts.size;
        answer_add_text(&rows->texts, &cells[i]);
        rows->cells[i].size = (uint32_t)(rows->texts.size - begin);
        (void)buf_addc(&rows->texts, '\0');
    }
    if (rows->texts.failed)
        return err_set(-ENOMEM, "no memory for a row of the answer");
    const char *text = rows->texts.data; /* which stays there now */
    for (uint32_t i = 0; i < n; i++)
        if (has_no_text(&rows->cells[i])) {
            rows->cells[i].value.s = text;
            text += rows->cells[i].size + 1;
        }
    return rows->row(rows->arg, rows->cells, n);
}

static int ask_rows(const struct target *t, const char *sql,
                    int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n),
                    void *arg)
{
    struct rows *rows = calloc(1, sizeof(*rows)); /* a row may ask again */
    const struct answer_sink to = {.arg = rows, .row = on_row};

    if (rows == NULL)
        return err_set(-ENOMEM, "no memory for an answer");
    rows->row = row;
    rows->arg = arg;
    buf_init(&rows->texts, ANSWER_ALONE_BYTES);
    int rc = answer_read(t, sql, &to);
    buf_done(&rows->texts);
    free(rows);
    return rc;
}

static int api_ask(const struct probing_report_api *a, const char *sql,
                   int (*row)(void *arg, const struct probing_report_cell *cells, uint32_t n),
                   void *arg)
{
    const struct target *t = visit_of(a)->t;

    if (a->target == PROBING_TARGET_BARE)
        return err_set(-ESRCH, "%s has no probing core in it", t->text);
    return ask_rows(t, sql, row, arg);
}

struct pieces {
    int (*piece)(void *arg, const void *bytes, size_t n);
    void *arg;
};

static int on_piece(void *arg, const struct probing_client_event *e)
{
    const struct pieces *p = arg;

    if (e->kind == PROBING_CLIENT_DONE && e->status < 0)
        return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
    if (e->kind == PROBING_CLIENT_DONE)
        return e->status;
    if (e->kind == PROBING_CLIENT_DROPPED)
        return err_set(-EPIPE, "a part of the answer was lost on the way");
    return e->kind == PROBING_CLIENT_DATA ? p->piece(p->arg, e->text, e->size) : 0;
}

static int api_call(const struct probing_report_api *a, int argc, const char *const *argv,
                    int (*piece)(void *arg, const void *bytes, size_t n), void *arg)
{
    static volatile sig_atomic_t *const stop = &cli_interrupted;
    const struct target *t = visit_of(a)->t;
    struct pieces p = {piece, arg};
    struct probing_client *client = NULL;

    if (a->target != PROBING_TARGET_LIVE)
        return err_set(-ESRCH,
                       t->kind == TARGET_MANY
                           ? "%s: a command can be called in one process only"
                           : "%s is dead or does not answer: no command can be called there",
                       t->text);
    if (piece == NULL)
        return live_run(t, argc, argv);
    int rc = target_connect(t, &client);
    if (rc < 0)
        return rc;
    int64_t id = probing_client_start_run(client, argc, argv, /* timeout_ns= */ 0);
    rc = id < 0 ? (int)id : probing_client_stream(client, on_piece, &p, /* timeout_ns= */ 0, stop);
    if (rc != 0 && id > 0)
        (void)probing_client_cancel(client, id);
    probing_client_free(client);
    return rc;
}

/* ---- other processes ---- */

struct search {
    int (*fn)(void *arg, int64_t pid);
    void *arg;
    struct buf seen; /* pids: one may have left an older directory, too */
    int r;
};

static int on_directory(void *arg, const struct datadir *d)
{
    struct search *s = arg;
    pid_t pid, other;

    if (!directory_alive(d, &pid) || directory_is_over(d->path))
        return 0;
    for (size_t at = 0; at < s->seen.size; at += sizeof(other)) {
        memcpy(&other, s->seen.data + at, sizeof(other));
        if (other == pid)
            return 0;
    }
    (void)buf_add(&s->seen, &pid, sizeof(pid));
    s->r = s->fn(s->arg, pid);
    return s->r < 0 || cli_interrupted;
}

static int api_processes(const struct probing_report_api *a, int (*fn)(void *arg, int64_t pid),
                         void *arg)
{
    struct search s = {.fn = fn, .arg = arg};

    (void)a;
    buf_init(&s.seen, TEXT_MAX);
    int rc = directory_each(on_directory, &s, /* says= */ false);
    buf_done(&s.seen);
    return s.r < 0 ? s.r : rc < 0 ? rc : 0;
}

static int api_ask_process(const struct probing_report_api *a, int64_t pid, const char *sql,
                           int (*row)(void *arg, const struct probing_report_cell *cells,
                                      uint32_t n),
                           void *arg)
{
    struct target t;
    char text[24];

    (void)a;
    (void)snprintf(text, sizeof(text), "%lld", (long long)pid);
    int r = pid > 0 && pid <= INT32_MAX ? target_resolve(text, &t) : -ESRCH;
    if (r == 0 && t.kind == TARGET_LIVE)
        return ask_rows(&t, sql, row, arg);
    return err_set(-ESRCH, "no probing core answers in process %s", text);
}

static int api_members(const struct probing_report_api *a,
                       int (*fn)(void *arg, const struct probing_report_member *m), void *arg)
{
    const struct target *t = visit_of(a)->t;

    if (t->kind == TARGET_MANY)
        return t->each(t, fn, arg);
    return err_set(-EINVAL, "%s is not about a whole job", visit_of(a)->of->command->name);
}

static int api_read_process(const struct probing_report_api *a, int64_t pid, const char *name,
                            char *ret, size_t size)
{
    struct buf text;

    (void)a;
    if (pid <= 0 || pid > INT32_MAX || size == 0 || size > INT32_MAX)
        return err_set(-EINVAL, "no process %lld, or no room", (long long)pid);
    buf_init(&text, size - 1);
    int rc = apart_read((pid_t)pid, name, &text);
    if (rc == -ETIMEDOUT)
        (void)apart_pass_over((pid_t)pid, rc, "nothing is known of it here");
    size_t n = rc >= 0 ? text.size : 0;
    if (n > 0)
        memcpy(ret, text.data, n);
    ret[n] = '\0';
    buf_done(&text);
    return rc < 0 ? rc : (int)n;
}

static int api_interrupted(const struct probing_report_api *a)
{
    (void)a;
    return cli_interrupted != 0;
}

/* ---- what the user sees ---- */

static int api_print(const struct probing_report_api *a, const void *text, size_t n)
{
    (void)a;
    return fwrite(text, 1, n, stdout) == n ? 0 : -EPIPE;
}

static int api_flush(const struct probing_report_api *a)
{
    (void)a;
    return fflush(stdout) == 0 ? 0 : -EPIPE;
}

static void api_say(const struct probing_report_api *a, const char *text)
{
    (void)a;
    terminal_say("%s", text);
}

static void api_print_wrapped(const struct probing_report_api *a, const char *indent,
                              const char *text, size_t n)
{
    (void)a;
    fit_say(indent, text, n);
}

static int print_buf(struct buf *b, int rc)
{
    if (rc == 0 && b->size > 0 && fwrite(b->data, 1, b->size, stdout) != b->size)
        rc = -EPIPE;
    buf_done(b);
    return rc;
}

static int api_print_json_text(const struct probing_report_api *a, const char *text, size_t n)
{
    struct buf b;

    (void)a;
    buf_init(&b, TEXT_MAX);
    return print_buf(&b, json_add_text(&b, text, n));
}

static int api_print_json_number(const struct probing_report_api *a, double value)
{
    struct buf b;

    (void)a;
    buf_init(&b, TEXT_MAX);
    return print_buf(&b, json_add_f64(&b, value));
}

static void api_exact(const struct probing_report_api *a)
{
    (void)a;
    terminal_exact();
}

static void api_clear(const struct probing_report_api *a)
{
    (void)a;
    terminal_clear();
}

static uint32_t api_width(const struct probing_report_api *a)
{
    (void)a;
    return cli_width();
}

static uint32_t api_columns(const struct probing_report_api *a, const char *text, size_t n)
{
    (void)a;
    return fit_columns(text, n);
}

static int api_fit(const struct probing_report_api *a, const char *text, size_t n, uint32_t width,
                   uint32_t how, char *ret, size_t room)
{
    uint32_t cut = how & ~(uint32_t)PROBING_FIT_FILL;
    struct buf cell, filled;

    (void)a;
    if (room == 0 || cut > PROBING_FIT_MIDDLE)
        return err_set(-EINVAL, "fit() knows no way 0x%x, or has no room", how);
    buf_init(&cell, TEXT_MAX);
    buf_init(&filled, TEXT_MAX);
    fit_add(&cell, text, n, width,
            cut == PROBING_FIT_FRONT    ? FIT_FRONT
            : cut == PROBING_FIT_MIDDLE ? FIT_MIDDLE
                                        : FIT_END);
    if (how & PROBING_FIT_FILL)
        screen_add(&filled, buf_text(&cell), width, /* right= */ false);
    const char *made = buf_text(how & PROBING_FIT_FILL ? &filled : &cell);
    int length = snprintf(ret, room, "%s", made);
    buf_done(&cell);
    buf_done(&filled);
    return length < 0 ? 0 : (size_t)length < room ? length : (int)room - 1;
}

/* ---- a file ---- */

struct probing_report_file {
    struct output out;
};

static int api_file_open(const struct probing_report_api *a, const char *path,
                         struct probing_report_file **ret)
{
    struct probing_report_file *f = calloc(1, sizeof(*f));

    (void)a;
    if (f == NULL)
        return err_set(-ENOMEM, "no memory for a file");
    int rc = output_open(&f->out, path);
    if (rc < 0) {
        free(f);
        return rc;
    }
    *ret = f;
    return 0;
}

static int api_file_write(struct probing_report_file *f, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, f->out.file) == n)
        return 0;
    return err_set(-EIO, "%s cannot be written: %s", f->out.path, output_why(errno));
}

static int api_file_close(struct probing_report_file *f, int rc)
{
    int r = output_close(&f->out, rc);
    free(f);
    return r;
}

/* ---- a run ---- */

static uint32_t kind_of(const struct target *t)
{
    return t->kind == TARGET_MANY                          ? PROBING_TARGET_JOB
           : target_is_files(t) || t->kind == TARGET_THERE ? PROBING_TARGET_DEAD
           : t->kind == TARGET_LIVE                        ? PROBING_TARGET_LIVE
           : t->kind == TARGET_BARE                        ? PROBING_TARGET_BARE
                                                           : 0;
}

static bool is_taken_by_none(const char *word)
{
    (void)word;
    return false;
}

/* argv[0] is the name in our table. */
static const struct report_command *command_of(const char *name)
{
    const struct cli_command *c = report_commands(is_taken_by_none); /* they are there already */
    while (strcmp(c->name, name) != 0)
        c++;
    return report_of(c);
}

int report_run(struct target *t, int argc, char **argv)
{
    struct visit visit = {t, command_of(argv[0])};
    const struct probing_report_api api = {
        .size = sizeof(api),
        .abi = PROBING_REPORT_ABI,
        .cli = &visit,
        .target_text = t->text != NULL ? t->text : "",
        .target_pid = t->pid,
        .target = kind_of(t),
        .parse = api_parse,
        .parse_time = api_parse_time,
        .parse_count = api_parse_count,
        .fail = api_fail,
        .misuse = api_misuse,
        .no_plugin = api_no_plugin,
        .ask = api_ask,
        .call = api_call,
        .processes = api_processes,
        .ask_process = api_ask_process,
        .interrupted = api_interrupted,
        .print = api_print,
        .flush = api_flush,
        .say = api_say,
        .print_wrapped = api_print_wrapped,
        .print_json_text = api_print_json_text,
        .print_json_number = api_print_json_number,
        .exact = api_exact,
        .clear = api_clear,
        .width = api_width,
        .columns = api_columns,
        .fit = api_fit,
        .file_open = api_file_open,
        .file_write = api_file_write,
        .file_close = api_file_close,
        .members = api_members,
        .read_process = api_read_process,
    };
    char what[64];

    /* Else each answer's memory goes back to the kernel and comes again: `torch` of a dead process
     * took 4,000 page faults for it, an eighth of its time. */
    (void)mallopt(M_TRIM_THRESHOLD, KEEP_BYTES);
    (void)mallopt(M_MMAP_THRESHOLD, KEEP_BYTES / 8);
    (void)snprintf(what, sizeof(what), "its command '%.40s' ran", argv[0]);
    report_guard(visit.of->file, what);
    int rc = visit.of->command->run(&api, argc, (const char *const *)argv);
    report_guard_end();
    return rc <= 255 ? rc : EXIT_FAILED;
}
