/* SPDX-License-Identifier: Apache-2.0
 *
 * core/crash/tables.c - crash.reports and crash.frames: what the file `crash` of a directory says.
 * Workers, and whoever reads the dead: the file is read anew for each query.
 */
#include <errno.h>
#include <stdio.h>

#include "core/base/clock.h"
#include "core/catalog/catalog.h"
#include "core/crash/crash.h"
#include "core/datadir/datadir.h"

#define COLUMN(n, t, u, d)                        \
    {                                             \
        .name = n, .type = t, .unit = u, .doc = d \
    }
#define STR(n, d) COLUMN(n, PROBING_STR, PROBING_PLAIN, d)
#define I64(n, d) COLUMN(n, PROBING_I64, PROBING_PLAIN, d)

enum { REPORT_COLUMNS = 17, FRAME_COLUMNS = 15 };

static const char *or_null(const char *text)
{
    return text[0] ? text : NULL;
}

/* Clients see UTC made of the monotonic clock of this machine; the file has UTC. */
static int64_t monotonic_ns(const struct crash_report *c)
{
    return c->utc_ns - clock_utc_offset();
}

static int report_row(const struct crash_report *c, struct probing_rows *out)
{
    union probing_cell row[REPORT_COLUMNS] = {{.i = monotonic_ns(c)}, {.i = c->tid}};
    row[2].s = c->signal;
    row[3].s = c->code_name;
    row[4].s = or_null(c->meaning);
    row[5].i = c->has_address ? (int64_t)c->address : PROBING_NULL_I64;
    row[6].s = c->thread_name;
    row[7].i = c->number;
    row[8].s = c->message;
    row[9].i = c->pid;
    row[10].i = c->sender ? c->sender : PROBING_NULL_I64;
    row[11].s = or_null(c->registers);
    row[12].i = c->n_threads;
    row[13].i = c->survived;
    row[14].s = or_null(c->note);
    row[15].s = or_null(c->plugin);
    row[16].s = or_null(c->function);
    return out->row(out, row, REPORT_COLUMNS);
}

static int frame_row(const struct crash_report *c, const struct crash_thread *t, uint32_t depth,
                     struct probing_rows *out)
{
    const struct crash_frame *f = depth < t->n_frames ? &t->frames[depth] : NULL;
    union probing_cell row[FRAME_COLUMNS] = {{.i = monotonic_ns(c)}, {.i = t->tid}};
    row[2].i = c->number;
    row[3].s = t->name;
    row[4].s = t->state;
    for (int i = 5; i < FRAME_COLUMNS; i++)
        row[i].s = NULL;
    row[5].i = row[9].i = row[10].i = row[12].i = row[13].i = PROBING_NULL_I64;
    if (f) {
        row[5].i = depth;
        row[6].s = f->python ? "python" : "native";
        row[7].s = or_null(f->func);
        row[8].s = f->python ? f->file : NULL;
        row[9].i = f->line > 0 ? f->line : PROBING_NULL_I64;
        row[10].i = f->python ? PROBING_NULL_I64 : (int64_t)f->ip;
        row[11].s = f->python ? NULL : or_null(f->module);
        row[12].i = f->python ? PROBING_NULL_I64 : (int64_t)f->offset;
        row[13].i = f->python || !f->func[0] ? PROBING_NULL_I64 : (int64_t)f->function_offset;
    }
    row[14].s = or_null(t->note);
    return out->row(out, row, FRAME_COLUMNS);
}

static int frame_rows(const struct crash_report *c, struct probing_rows *out)
{
    int rc = 0;
    for (uint32_t i = 0; i < c->n_threads; i++) {
        const struct crash_thread *t = &c->threads[i];
        uint32_t n = t->n_frames ? t->n_frames : 1; /* that a thread was there is a row */
        for (uint32_t depth = 0; depth < n && rc == 0; depth++)
            rc = frame_row(c, t, depth, out);
    }
    return rc;
}

static int each_report(const char *directory, struct probing_rows *out,
                       int (*fn)(const struct crash_report *, struct probing_rows *))
{
    struct crash_reports all;
    struct datadir d;
    /* First as the living core's: by calls that every host knows. */
    int rc = datadir_open(directory, DATADIR_OWN, &d);
    if (rc == -EPERM)
        rc = datadir_open(directory, DATADIR_ANY, &d);
    if (rc == 0)
        rc = crash_read(&d, &all);
    datadir_close(&d);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < all.n && rc == 0; i++)
        rc = fn(&all.list[i], out);
    crash_reports_done(&all);
    return rc;
}

static int scan_reports(void *self, struct probing_rows *out)
{
    return each_report(self, out, report_row);
}

static int scan_frames(void *self, struct probing_rows *out)
{
    return each_report(self, out, frame_rows);
}

static int status_row(void *arg, const char *const text[3])
{
    struct probing_rows *out = arg;
    const union probing_cell row[3] = {{.s = text[0]}, {.s = text[1]}, {.s = text[2]}};
    return out->row(out, row, 3);
}

static int scan_status(void *self, struct probing_rows *out)
{
    return crash_status(self, status_row, out);
}

int crash_status_add(struct tables *t, struct crash *c)
{
    static const struct probing_column columns[] = {
        STR("item", "a signal, or another item"),
        STR("state",
            "on; off; displaced: another handler was installed over the one of probing; ignored"),
        STR("detail", "what handles the signal after probing, or instead of it")};
    static const struct probing_table_desc desc = {.size = sizeof(desc),
                                                   .column_size = sizeof(columns[0]),
                                                   .name = "crash.status",
                                                   .doc =
                                                       "how the signals of a crash are handled now",
                                                   .columns = columns,
                                                   .n_columns = 3,
                                                   .scan = scan_status};
    struct table *made;
    return tables_add(t, "crash", &desc, c, &made);
}

int crash_tables_add(struct tables *t, const char *directory)
{
    static const struct probing_column reports[REPORT_COLUMNS] = {
        COLUMN("ts", PROBING_TIME, PROBING_NS, "when it crashed"),
        I64("tid", "thread that crashed"),
        STR("signal", "SIGSEGV, SIGABRT ..."),
        STR("code", "si_code by name: SEGV_MAPERR ..."),
        STR("meaning", "description of si_code"),
        I64("fault_address", "address that was accessed, or address of the instruction"),
        STR("thread_name", "name of the thread that crashed"),
        I64("stack_id", "number of the report: crash.frames has its stacks under it"),
        STR("message", "the crash in one line"),
        I64("pid", "the process"),
        I64("sender", "pid of the process that sent the signal, if one did"),
        STR("registers", "general registers at the fault"),
        I64("threads", "number of threads in the report"),
        I64("survived", "1: the process survived"),
        STR("note", "what is missing in the report"),
        STR("plugin", "plugin whose function the thread that crashed ran"),
        STR("plugin_function", "function of that plugin: every(), scan() of table t ...")};
    static const struct probing_column frames[FRAME_COLUMNS] = {
        COLUMN("ts", PROBING_TIME, PROBING_NS, "when it crashed"),
        I64("tid", "thread"),
        I64("stack_id", "number of the report in crash.reports"),
        STR("thread_name", "its name in the kernel"),
        STR("state", "crashed, running, or waiting in a system call"),
        I64("depth", "0 is the innermost frame"),
        STR("frame_type", "python or native"),
        STR("func", "function"),
        STR("file", "source file of a python frame"),
        I64("lineno", "line of a python frame"),
        I64("ip", "address in a native frame"),
        STR("module", "object file of a native frame"),
        I64("module_offset", "offset in the module, as addr2line expects it"),
        I64("function_offset", "offset of the address in its function"),
        STR("note", "what is incomplete about this thread's stack")};
    static const struct probing_table_desc descs[] = {
        {.size = sizeof(descs[0]),
         .column_size = sizeof(struct probing_column),
         .name = "crash.reports",
         .doc = "crashes of this process: signal, fault and thread (crash.handler=on)",
         .columns = reports,
         .n_columns = REPORT_COLUMNS,
         .scan = scan_reports},
        {.size = sizeof(descs[0]),
         .column_size = sizeof(struct probing_column),
         .name = "crash.frames",
         .doc = "stacks of all threads at a crash, beginning with the one that crashed",
         .columns = frames,
         .n_columns = FRAME_COLUMNS,
         .scan = scan_frames}};
    struct table *made;
    int rc = 0;
    for (size_t i = 0; i < 2 && rc == 0; i++)
        rc = tables_add(t, "crash", &descs[i], (void *)(uintptr_t)directory, &made);
    return rc;
}
