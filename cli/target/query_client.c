/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/target/query_client.c - ask a living process, or read the files of a dead one with the same
 * engine.
 *
 * One thread.
 */
#include "cli/target/query_client.h"

#include <errno.h>
#include <probing/client.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/target/core_lookup.h"
#include "cli/target/declarations.h"
#include "cli/target/remote_target.h"
#include "cli/target/target.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/terminal.h"
#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/sql/distribute/distribute.h"
#include "core/sql/sql.h"
#include "core/store/store.h"

#define DYING_LOOKS 100 /* 10 ms apart: a process of many GB takes its time */

struct pipe {
    int (*fn)(void *arg, const char *data, size_t size);
    void *arg;
    bool begun; /* a piece has been handed on */
    const struct answer_ask *ask;
};

static int on_bytes(void *arg, const char *data, size_t size)
{
    struct pipe *p = arg;
    p->begun = true;
    return p->fn(p->arg, data, size);
}

/* One finding a line. */
static void say_incomplete(const char *why)
{
    while (why[0] != '\0') {
        size_t n = strcspn(why, "\n");
        if (n > 0)
            terminal_say("incomplete: %.*s", (int)n, why);
        why += n + (why[n] == '\n');
    }
}

/* ---- the living ---- */

static int on_event(void *arg, const struct probing_client_event *e)
{
    const struct pipe *p = arg;

    if (e->kind == PROBING_CLIENT_DATA)
        return on_bytes(arg, e->text, e->size);
    if (e->kind != PROBING_CLIENT_DONE)
        return 0;
    if (e->status < 0)
        return err_set(e->status, "%s", e->text[0] != '\0' ? e->text : strerror(-e->status));
    if (e->text[0] != '\0' && p->ask->reader == NULL)
        terminal_say("%s", e->text);
    return e->status > 0 ? err_set(-EIO, "the query failed") : 0;
}

int answer_words(const struct answer_ask *ask, bool width, struct answer_words *w)
{
    const struct {
        const char *option, *unit;
        uint64_t value;
    } more[] = {{"--width", "", width ? ask->width : 0},
                {"--limit", "", ask->limit},
                {"--timeout", "ns", ask->timeout_ns},
                {"--from-row", "", ask->from_row},
                {"--to-row", "", ask->to_row}};
    int n = w->n;

    w->list[n++] = "query";
    w->list[n++] = "--format";
    w->list[n++] = ask->format;
    for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
        if (more[i].value == 0)
            continue;
        (void)snprintf(w->numbers[i], sizeof(w->numbers[i]), "%llu%s",
                       (unsigned long long)more[i].value, more[i].unit);
        w->list[n++] = more[i].option;
        w->list[n++] = w->numbers[i];
    }
    w->list[n++] = "--"; /* a comment may be what it begins with */
    w->list[n++] = ask->statement;
    return w->n = n;
}

static int from_live(const struct target *t, const struct answer_ask *ask, struct pipe *p)
{
    struct answer_words words = {.n = 0};
    struct probing_client *c = NULL;
    int n = answer_words(ask, /* width= */ true, &words);
    int rc = target_connect(t, &c);
    if (rc == -ENOENT && t->kind == TARGET_LIVE) { /* its socket has gone: the core has left */
        char why[ERR_TEXT_BYTES];
        (void)snprintf(why, sizeof(why), "%s", err_text());
        return err_set(-ECONNREFUSED, "%s", why);
    }
    if (rc < 0)
        return rc;
    int64_t id = probing_client_start_run(c, n, words.list, /* timeout_ns= */ 0);
    rc = id < 0 ? (int)id
                : probing_client_stream(c, on_event, p, /* timeout_ns= */ 0, &cli_interrupted);
    rc = client_failed(c, rc);
    if (rc == -ECANCELED && cli_interrupted && id > 0)
        (void)probing_client_cancel(c, id);
    probing_client_free(c);
    return rc;
}

/* ---- the dead ---- */

static int from_engine(struct tables *tables, struct store *store, const char *directory,
                       const struct answer_ask *ask, struct pipe *p)
{
    enum sql_format format;
    struct sql *engine = NULL;
    struct sql_writer *writer = NULL;
    struct sql_report report = {0};
    const struct sql_options limits = {
        .timeout_ns = ask->timeout_ns,
        .max_rows = ask->limit,
        .from_row = ask->from_row,
        .to_row = ask->to_row,
        .cancel = &cli_cancel,
        .memory_bytes = UINT64_C(4) << 30}; /* our own process: no host to spare */
    int rc = sql_format_parse(ask->format, &format);
    if (rc == 0)
        rc = sql_new(tables, store, &engine);
    if (rc == 0)
        offer_views(engine, directory);
    if (rc == 0)
        rc = sql_writer_new(format, ask->width, on_bytes, p, &writer);
    if (rc == 0) {
        struct sql_sink sink = sql_writer_sink(writer);
        rc = sql_run(engine, ask->statement, strlen(ask->statement), &limits, &sink, &report);
    }
    if (rc == 0)
        rc = sql_writer_finish(writer, &report);
    if (rc == 0)
        answer_say_note(ask, &report);
    sql_writer_free(writer);
    sql_free(engine);
    return rc;
}

static int from_files(const struct target *t, const struct answer_ask *ask, struct pipe *p)
{
    struct tables *tables = NULL;
    struct store *store = NULL;
    int rc = tables_new(&tables);
    if (rc == 0) {
        cli_signals_back(); /* nothing is to be put in order yet */
        rc = store_open(t->directory, tables, &store);
        cli_signals_catch();
    }
    if (rc == 0)
        rc = crash_tables_add(tables, t->directory);
    if (rc == 0) {
        if (!ask->quiet)
            say_incomplete(store_damage(store));
        if (t->directories > 1 && !ask->quiet)
            terminal_say("there are %u directories of process %d; this is the newest, %s "
                         "(`probing list --dead` shows all)",
                         t->directories, (int)t->pid, t->directory);
        struct target_halt halt = {.is = "stopped"}; /* it may go on just now */
        if (t->stopped && !ask->quiet) {
            (void)target_halted(t->pid, &halt);
            terminal_say("process %d is %s; this is read from its files", (int)t->pid, halt.is);
        }
        rc = from_engine(tables, store, t->directory, ask, p);
    }
    store_free(store);
    tables_free(tables);
    return rc;
}

/* It was killed while we asked, or its core has gone: how long until that can be seen? */
static bool has_gone(const struct target *t, struct target *ret)
{
    const struct timespec pause = {.tv_nsec = 10 * 1000 * 1000};
    for (int i = 0; i < DYING_LOOKS && t->pid != 0 && !cli_interrupted; i++) {
        if (target_resolve(t->text, ret) < 0)
            return false;
        if (target_is_files(ret))
            return true;
        (void)nanosleep(&pause, NULL);
    }
    return false;
}

int answer_bytes(const struct target *t, const struct answer_ask *ask,
                 int (*fn)(void *arg, const char *data, size_t size), void *arg)
{
    struct pipe p = {.fn = fn, .arg = arg, .ask = ask};
    struct target dead;
    if (t->answer_global != NULL && sql_is_global(ask->statement, strlen(ask->statement)))
        return t->answer_global(t, ask, fn, arg);
    if (t->answer != NULL)
        return t->answer(t, ask, fn, arg);
    if (target_is_files(t))
        return from_files(t, ask, &p);
    int rc = from_live(t, ask, &p);
    bool gone = rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -ESTALE;
    if (gone && !p.begun && remote_died(t, &dead))
        return dead.answer(&dead, ask, fn, arg);
    if (!gone || p.begun || !has_gone(t, &dead))
        return rc;
    if (dead.kind == TARGET_FILES)
        terminal_say("process %d has just ended; this is read from its files", (int)t->pid);
    else
        terminal_say("the core has just gone from process %d, which lives on%s; this is read from "
                     "its files",
                     (int)t->pid, rc == -ESTALE ? " with another program (exec)" : "");
    return from_files(&dead, ask, &p);
}

static int feed_reader(void *arg, const char *data, size_t size)
{
    return arrow_reader_feed(arg, data, size);
}

void answer_say_note(const struct answer_ask *ask, const struct sql_report *report)
{
    char note[SQL_EMPTY_BYTES];
    enum sql_format format;

    if (ask->reader != NULL || sql_format_parse(ask->format, &format) < 0)
        return;
    sql_report_note(report, format, note, sizeof(note));
    if (note[0] != '\0')
        terminal_say("%s", note);
}

void answer_say_lost(const struct arrow_reader *r)
{
    if (arrow_reader_lost(r) > 0)
        terminal_say("incomplete: %llu rows were lost before they could be kept",
                     (unsigned long long)arrow_reader_lost(r));
}

int answer_read(const struct target *t, const char *statement, const struct answer_sink *to)
{
    struct answer_ask ask = {.statement = statement, .format = "arrow"};
    struct answer_sink sink = *to;
    struct arrow_reader *reader = NULL;

    sink.batch_bytes = ANSWER_ALONE_BYTES;
    int rc = arrow_reader_new(&sink, &reader);
    ask.reader = reader;
    if (rc == 0)
        rc = answer_bytes(t, &ask, feed_reader, reader);
    if (rc == 0)
        rc = arrow_reader_end(reader);
    if (rc == 0)
        answer_say_lost(reader);
    arrow_reader_free(reader);
    return rc;
}

struct word {
    char *to;
    size_t size;
};

static int copy_word(void *arg, const struct sql_value *cells, uint32_t n)
{
    const struct word *w = arg;

    (void)snprintf(w->to, w->size, "%s", n > 0 ? answer_text(&cells[0]) : "");
    return 0;
}

int answer_word(const struct target *t, const char *sql, char *ret, size_t size)
{
    struct word word = {ret, size};
    const struct answer_sink to = {.arg = &word, .row = copy_word};

    ret[0] = '\0';
    return answer_read(t, sql, &to);
}

static int copy_value(void *arg, const struct sql_value *cells, uint32_t n)
{
    struct sql_value *ret = arg;

    if (n > 0 && cells[0].type != SQL_TEXT && cells[0].type != SQL_BLOB)
        *ret = cells[0];
    return 0;
}

int answer_value(const struct target *t, const char *sql, struct sql_value *ret)
{
    const struct answer_sink to = {.arg = ret, .row = copy_value};

    *ret = (struct sql_value){.type = SQL_NULL};
    return answer_read(t, sql, &to);
}

bool answer_plugin_runs(const struct target *t, const char *name)
{
    char sql[120], state[32];
    (void)snprintf(sql, sizeof(sql), "select state from probing.plugins where name = '%s'", name);
    return answer_word(t, sql, state, sizeof(state)) == 0 && strcmp(state, "running") == 0;
}
