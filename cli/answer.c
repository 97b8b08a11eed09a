/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/answer.c - ask a living process, or read the files of a dead one with the same engine.
 *
 * One thread.
 */
#include "cli/answer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/crash/crash.h"
#include "core/sql/sql.h"
#include "core/store/store.h"
#include "sdk/client/client.h"

static _Atomic int cancel; /* set when Ctrl-C was seen between two pieces */

struct pipe {
    int (*fn)(void *arg, const char *data, size_t size);
    void *arg;
};

static int on_bytes(void *arg, const char *data, size_t size)
{
    struct pipe *p = arg;
    if (cli_interrupted)
        atomic_store_explicit(&cancel, 1, memory_order_relaxed);
    return p->fn(p->arg, data, size);
}

static int from_live(const struct target *t, const char *format, const char *statement,
                     uint64_t timeout_ns, struct pipe *p, struct answer_report *ret)
{
    char timeout[32];
    const char *words[8] = {"query", "--format", format};
    struct probing_client *c = NULL;
    int n = 3, status = 0;
    if (timeout_ns > 0) {
        (void)snprintf(timeout, sizeof timeout, "%lluns", (unsigned long long)timeout_ns);
        words[n++] = "--timeout";
        words[n++] = timeout;
    }
    words[n++] = statement;
    int r = target_connect(t, &c);
    if (r == 0)
        r = client_run(c, n, words, /* timeout_ns= */ 0, on_bytes, p, &status);
    if (r == 0 && status == 0)
        (void)snprintf(ret->damage, sizeof ret->damage, "%s", client_note(c));
    if (r == 0 && status != 0)
        r = status < 0 ? status : err_set(-EIO, "the query failed");
    client_close(c);
    return r;
}

static int from_engine(struct tables *tables, struct store *store, const char *format,
                       const char *statement, uint64_t timeout_ns, struct pipe *p,
                       struct answer_report *ret)
{
    enum sql_format wire;
    struct sql *engine = NULL;
    struct sql_writer *writer = NULL;
    struct sql_report report = {0};
    const struct sql_options limits = {
        .timeout_ns = timeout_ns, .cancel = &cancel, .memory_bytes = UINT64_C(4) << 30};
    int r = sql_format_parse(format, &wire);
    if (r == 0)
        r = sql_new(tables, store, &engine);
    if (r == 0)
        r = sql_writer_new(wire, 0, on_bytes, p, &writer);
    if (r == 0) {
        struct sql_sink sink = sql_writer_sink(writer);
        r = sql_run(engine, statement, strlen(statement), &limits, &sink, &report);
    }
    if (r == 0)
        r = sql_writer_finish(writer, &report);
    ret->lost = report.lost;
    sql_writer_free(writer);
    sql_free(engine);
    return r;
}

static int from_files(const struct target *t, const char *format, const char *statement,
                      uint64_t timeout_ns, struct pipe *p, struct answer_report *ret)
{
    struct tables *tables = NULL;
    struct store *store = NULL;
    int r = tables_new(&tables);
    if (r == 0)
        r = store_open(t->directory, tables, &store);
    if (r == 0)
        r = crash_tables_add(tables, t->directory);
    if (r == 0)
        r = from_engine(tables, store, format, statement, timeout_ns, p, ret);
    if (r == 0)
        (void)snprintf(ret->damage, sizeof ret->damage, "%s", store_damage(store));
    store_free(store);
    tables_free(tables);
    return r;
}

int answer_bytes(const struct target *t, const char *format, const char *statement,
                 uint64_t timeout_ns, int (*fn)(void *arg, const char *data, size_t size),
                 void *arg, struct answer_report *ret)
{
    struct pipe p = {fn, arg};
    *ret = (struct answer_report){.lost = 0};
    return target_is_files(t) ? from_files(t, format, statement, timeout_ns, &p, ret)
                              : from_live(t, format, statement, timeout_ns, &p, ret);
}

static int feed(void *arg, const char *data, size_t size)
{
    return export_reader_feed(arg, data, size);
}

int answer_rows(const struct target *t, const char *statement, struct export_writer *w)
{
    struct export_reader *reader = NULL;
    struct answer_report report;
    struct buf none;
    buf_init(&none, 1u << 20);
    int r = export_reader_new(w, &none, &reader);
    if (r == 0)
        r = answer_bytes(t, "json", statement, /* timeout_ns= */ 0, feed, reader, &report);
    if (r == 0)
        r = export_reader_end(reader);
    const struct json *closing = r == 0 ? export_reader_closing(reader) : NULL;
    if (closing != NULL && json_int(closing, "lost", 0) > 0)
        fprintf(stderr, "probing: not whole: %lld rows were lost before they could be kept\n",
                (long long)json_int(closing, "lost", 0));
    if (r == 0 && report.damage[0] != '\0')
        fprintf(stderr, "probing: not whole: %s\n", report.damage);
    export_reader_free(reader);
    buf_done(&none);
    return r;
}
