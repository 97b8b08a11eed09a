/* SPDX-License-Identifier: Apache-2.0
 *
 * cli/commands/export/export.c - `export`: a table or an answer into a file, of the living and the
 * dead.
 *
 * One thread.  CSV, JSON, JSON lines, tables and Arrow are taken as the engine writes them; traces
 * and Parquet are made here of its Arrow, so that both kinds of target go the same way.  The file
 * appears under its name when it is whole, never before.
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/commands/export/export_file.h"
#include "cli/commands/export/export_tracks.h"
#include "cli/export/export.h"
#include "cli/link/link.h"
#include "cli/target/query_client.h"
#include "cli/target/target.h"
#include "cli/terminal/args.h"
#include "cli/terminal/atomic_output.h"
#include "cli/terminal/terminal.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/text.h"

#define PROGRESS_EACH (NS_PER_S / 4)

enum format {
    FORMAT_CSV,
    FORMAT_JSONL,
    FORMAT_ARROW,
    FORMAT_PERFETTO,
    FORMAT_CHROME,
    FORMAT_PARQUET,
    FORMAT_JSON,
    FORMAT_TABLE
};
static const char *const formats[] = {"csv",    "jsonl",   "arrow", "perfetto",
                                      "chrome", "parquet", "json",  "table"};
#define N_FORMATS (sizeof(formats) / sizeof(formats[0]))

struct export
{
    enum format format;
    const char *table, *sql, *path;
    bool has_format;
    const char *tracks;    /* names with ',' between; NULL: all */
    struct answer_ask how; /* but for statement and format */
    uint64_t last_ns;
    const struct target *target;
    struct output output; /* no file: standard output */
    FILE *file;
    struct export_writer writer;
    struct arrow_reader *reader; /* NULL: bytes go to the file, and nobody looks at them */
    struct buf out;
    uint64_t bytes, rows, told_at;
    uint64_t all;    /* rows that the table has, 0: not known */
    uint64_t before; /* rows of tracks that are through */
    bool asked;      /* then what is incomplete has been said */
    int missing;     /* of several: EXIT_FAILED when one of them is not in it */
    bool in_text;    /* of CSV: a line's end there is no row's */
    bool has_head;   /* of CSV: its first line was counted */
    bool shows;      /* progress, to a terminal */
};

/* ---- the words ---- */

static int format_named(const char *name, enum format *ret)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i], name) == 0) {
            *ret = (enum format)i;
            return 0;
        }
    return err_set(-EINVAL,
                   "unknown format '%s'; use one of csv, json, jsonl, table, arrow, parquet, "
                   "perfetto, chrome",
                   name);
}

/* By the end of the file's name, where no --format was given. */
static bool format_of_path(const char *path, enum format *ret)
{
    static const struct {
        const char *end;
        enum format format;
    } ends[] = {{".csv", FORMAT_CSV},          {".jsonl", FORMAT_JSONL},
                {".ndjson", FORMAT_JSONL},     {".arrow", FORMAT_ARROW},
                {".arrows", FORMAT_ARROW},     {".parquet", FORMAT_PARQUET},
                {".json", FORMAT_JSON},        {".txt", FORMAT_TABLE},
                {".pftrace", FORMAT_PERFETTO}, {".perfetto", FORMAT_PERFETTO}};
    size_t n = path != NULL ? output_stem(path) : 0;

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        size_t end = strlen(ends[i].end);
        if (n > end && strncmp(path + n - end, ends[i].end, end) == 0) {
            *ret = ends[i].format;
            return true;
        }
    }
    return false;
}

static int parse_option(void *arg, const char *option, const char *value)
{
    struct export *e = arg;

    if (option == NULL) {
        if (e->sql != NULL)
            return err_set(-EINVAL, "unexpected argument '%s' (put the statement in quotes)",
                           value);
        e->sql = value;
    } else if (strcmp(option, "--table") == 0) {
        e->table = value;
    } else if (strcmp(option, "--timeout") == 0) {
        return cli_take_time(option, value, &e->how.timeout_ns);
    } else if (strcmp(option, "--last") == 0) {
        return parse_ns(value, &e->last_ns);
    } else if (strcmp(option, "--tracks") == 0) {
        e->tracks = value;
    } else if (strcmp(option, "--output") == 0) {
        e->path = value;
    } else { /* --format */
        e->has_format = true;
        return format_named(value, &e->format);
    }
    return 0;
}

static bool is_table_name(const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.\"", *p))
            return false;
    return true;
}

/* Is it about what plugins declare, not about a table? */
static bool is_of_tracks(const struct export *e)
{
    return (e->format == FORMAT_PERFETTO || e->format == FORMAT_CHROME) && e->table == NULL &&
           e->sql == NULL;
}

/* Is it made here, of the rows? */
static bool is_made_here(const struct export *e)
{
    return e->format == FORMAT_PERFETTO || e->format == FORMAT_CHROME ||
           e->format == FORMAT_PARQUET;
}

static int statement_of(const struct export *e, struct buf *ret)
{
    if ((e->tracks != NULL || e->last_ns > 0) && !is_of_tracks(e))
        return err_set(-EINVAL, "--tracks and --last belong to traces of what plugins have "
                                "recorded: --format perfetto or chrome, and no table");
    if (is_of_tracks(e))
        return 0;
    if (e->sql != NULL && e->table != NULL)
        return err_set(-EINVAL, "export takes --table or a statement, not both");
    if (e->sql != NULL)
        return buf_adds(ret, e->sql);
    if (e->table == NULL)
        return err_set(
            -EINVAL,
            "export needs the name of a table or an SQL statement; `tables` lists the tables");
    if (!is_table_name(e->table))
        return err_set(-EINVAL,
                       "'%s' is not the name of a table; to export a statement, leave out --table",
                       e->table);
    return buf_addf(ret, "select * from %s", e->table);
}

/* ---- bytes to the file ---- */

/* Is a row a line of the file? */
static bool counts_lines(const struct export *e)
{
    return e->format == FORMAT_CSV || e->format == FORMAT_JSONL;
}

static void show_progress(struct export *e, bool last)
{
    uint64_t now = clock_monotonic();
    char share[16] = "";
    if (!e->shows || (!last && now - e->told_at < PROGRESS_EACH))
        return;
    uint64_t rows = e->before + (e->reader != NULL ? arrow_reader_rows(e->reader) : e->rows);
    bool counts = e->reader != NULL || counts_lines(e);
    e->told_at = now;
    if (!last && e->all > 0 && rows <= e->all)
        (void)snprintf(share, sizeof(share), ", %d %%",
                       (int)(100.0 * (double)rows / (double)e->all));
    terminal_over();
    fprintf(stderr, "%s: ", e->path);
    if (counts)
        fprintf(stderr, "%llu rows, ", (unsigned long long)rows);
    fprintf(stderr, "%.1f MB%s%s", (double)e->bytes / 1e6, share, last ? "      \n" : "");
}

/* Rows in lines that are not taken apart. */
static void count_rows(struct export *e, const char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (data[i] == '"' && e->format == FORMAT_CSV)
            e->in_text = !e->in_text;
        if (data[i] != '\n' || e->in_text)
            continue;
        e->rows += e->format != FORMAT_CSV || e->has_head;
        e->has_head = true;
    }
}

static int write_output(struct export *e, const char *data, size_t size)
{
    if (size > 0 && fwrite(data, 1, size, e->file) != size)
        return err_set(-errno, "%s cannot be written: %s", e->path, output_why(errno));
    e->bytes += size;
    if (e->shows && e->reader == NULL && counts_lines(e))
        count_rows(e, data, size);
    show_progress(e, /* last= */ false);
    return 0;
}

static int flush_output(struct export *e)
{
    int rc = e->out.failed ? err_set(e->out.failed, "no memory for a part of the file")
                           : write_output(e, e->out.data, e->out.size);
    buf_reset(&e->out);
    return rc;
}

static int on_bytes(void *arg, const char *data, size_t size)
{
    struct export *e = arg;
    int rc = e->reader != NULL ? arrow_reader_feed(e->reader, data, size) : 0;

    return rc < 0 ? rc : is_made_here(e) ? flush_output(e) : write_output(e, data, size);
}

static int finish_output(struct export *e)
{
    int rc = e->reader != NULL ? arrow_reader_end(e->reader) : 0;

    if (rc < 0 || !is_made_here(e))
        return rc;
    answer_say_lost(e->reader);
    if (arrow_reader_truncated(e->reader))
        terminal_say("incomplete: the answer was truncated after %llu rows",
                     (unsigned long long)arrow_reader_rows(e->reader));
    if (is_of_tracks(e))
        return 0;
    if (arrow_reader_empty(e->reader)[0] != '\0')
        terminal_say("%s", arrow_reader_empty(e->reader));
    rc = e->writer.end(e->writer.to.arg);
    return rc < 0 ? rc : flush_output(e);
}

/* ---- where they come from ---- */

static const char *wire_format(const struct export *e)
{
    return is_made_here(e) ? "arrow" : formats[e->format];
}

/* Arrow that goes into the file as it is, is read, too: to count its rows, and to see its end. */
static int new_reader(struct export *e)
{
    struct answer_sink to = {.rows = answer_pass_rows};

    if (is_made_here(e))
        to = e->writer.to;
    to.batch_bytes = ANSWER_ALONE_BYTES;
    return arrow_reader_new(&to, &e->reader);
}

static int ask_rows(struct export *e, const char *statement)
{
    struct answer_ask ask = e->how;
    ask.statement = statement;
    ask.format = wire_format(e);
    ask.width = 0;
    ask.quiet = e->asked;
    ask.reader = is_made_here(e) ? e->reader : NULL;
    e->asked = true;
    int rc = answer_bytes(e->target, &ask, on_bytes, e);
    e->missing = rc > 0 ? rc : e->missing;
    return rc < 0 ? rc : 0;
}

static int ask_track(void *arg, const char *name, const char *statement)
{
    struct export *e = arg;
    int rc = new_reader(e);
    if (rc < 0)
        return rc;
    export_trace_kind(&e->writer, name);
    rc = ask_rows(e, statement);
    if (rc == 0)
        rc = finish_output(e);
    e->before += arrow_reader_rows(e->reader);
    arrow_reader_free(e->reader);
    e->reader = NULL;
    return rc;
}

/* One answer after the other into the same trace, which ends once. */
static int ask_tracks(struct export *e)
{
    const struct export_tracks wanted = {
        .names = e->tracks, .last_ns = e->last_ns, .each = ask_track, .arg = e};
    int rc = export_tracks_each(e->target, &wanted);
    if (rc == 0)
        rc = e->writer.end(e->writer.to.arg);
    if (rc == 0)
        rc = flush_output(e);
    if (rc == 0 && e->before == 0)
        terminal_say("nothing is on the tracks of %s yet", e->target->text);
    return rc;
}

/* Find out how many rows a whole table has, when it is stored: for the progress. */
static void count_table(const struct target *t, struct export *e)
{
    struct sql_value n;
    struct buf statement;

    buf_init(&statement, 4096);
    (void)buf_addf(&statement,
                   "select rows + buffered from probing.tables where kind = 'stored' and "
                   "'%s' in (name, schema || '.' || name)",
                   e->table);
    if (answer_value(t, buf_text(&statement), &n) == 0 && answer_int(&n) > 0)
        e->all = (uint64_t)answer_int(&n);
    buf_done(&statement);
}

/* ---- all together ---- */

static bool is_binary(const struct export *e)
{
    return e->format == FORMAT_ARROW || e->format == FORMAT_PERFETTO || e->format == FORMAT_PARQUET;
}

static int open_file(struct export *e)
{
    bool out = e->path == NULL || strcmp(e->path, "-") == 0;
    if (out && is_binary(e) && isatty(STDOUT_FILENO) == 1)
        return err_set(-EINVAL, "export --format %s needs a file: -o FILE", formats[e->format]);
    if (out) {
        e->path = "standard output";
        e->file = stdout;
        terminal_exact();
        return 0;
    }
    int rc = output_open(&e->output, e->path);
    if (rc < 0)
        return rc;
    e->file = e->output.file;
    e->shows = isatty(STDERR_FILENO) == 1;
    return 0;
}

/* Under its name at last, or away with it. */
static int close_file(struct export *e, int rc)
{
    if (e->output.file == NULL)
        return rc;
    rc = output_close(&e->output, rc);
    if (rc == 0)
        show_progress(e, /* last= */ true);
    return rc;
}

static int make_writer(const struct target *t, struct export *e)
{
    int rc = 0;
    if (t->kind == TARGET_MANY && (e->format == FORMAT_PERFETTO || e->format == FORMAT_CHROME))
        return err_set(-EINVAL,
                       "a trace is of one process, and '%s' names several: name one, or "
                       "export a table as csv, jsonl, arrow or parquet",
                       t->text);
    if (e->format == FORMAT_PARQUET)
        rc = export_parquet_new(&e->out, &e->writer);
    else if (is_made_here(e))
        rc = export_trace_new(t, e->format == FORMAT_PERFETTO, &e->out, &e->writer);
    if (rc == 0 && !is_of_tracks(e) && (is_made_here(e) || e->format == FORMAT_ARROW))
        rc = new_reader(e);
    return rc;
}

/* statement: "" of tracks. */
static int write_file(const struct target *t, struct export *e, const char *statement)
{
    buf_init(&e->out, (size_t)3 << 30);
    int rc = make_writer(t, e);
    if (rc == 0)
        rc = open_file(e);
    if (rc == 0) {
        if (e->shows && e->table != NULL)
            count_table(t, e);
        rc = is_of_tracks(e) ? ask_tracks(e) : ask_rows(e, statement);
        if (rc == 0 && !is_of_tracks(e))
            rc = finish_output(e);
        rc = close_file(e, rc);
    }
    if (e->writer.free != NULL)
        e->writer.free(e->writer.to.arg);
    arrow_reader_free(e->reader);
    buf_done(&e->out);
    return rc < 0 ? rc : e->missing;
}

const char *export_format_at(const char *path)
{
    struct export e = {.format = FORMAT_CSV};
    if (!format_of_path(path, &e.format))
        return NULL;
    bool engines = e.format != FORMAT_PARQUET && e.format != FORMAT_PERFETTO;
    return engines ? formats[e.format] : "";
}

int export_answer(const struct target *t, const struct answer_ask *how, const char *format,
                  const char *path)
{
    struct export e = {.target = t, .sql = how->statement, .path = path, .how = *how};
    int rc = format != NULL ? format_named(format, &e.format) : 0;
    if (format == NULL && !format_of_path(path, &e.format))
        rc = err_set(-EINVAL,
                     "the name '%s' says no format; it may end in .csv, .json, .jsonl, .parquet, "
                     ".arrow, .txt (a table) or .pftrace, or --format says it",
                     path);
    return rc < 0 ? cli_misuse(rc) : write_file(t, &e, how->statement);
}

int command_export(struct target *t, int argc, char **argv)
{
    struct export e = {.format = FORMAT_CSV, .target = t};
    struct buf statement;
    int rc = cli_parse(argc, argv, parse_option, &e);
    if (rc == 0 && !e.has_format && !format_of_path(e.path, &e.format))
        rc = err_set(-EINVAL, "export needs --format csv, json, jsonl, table, arrow, parquet, "
                              "perfetto or chrome, or a FILE that ends so: -o rows.csv");
    if (rc < 0)
        return cli_misuse(rc);
    if (e.sql != NULL && e.table == NULL && e.sql[0] != '\0' && is_table_name(e.sql)) {
        e.table = e.sql; /* one word is no statement */
        e.sql = NULL;
    }
    buf_init(&statement, 1u << 20);
    rc = cli_misuse(statement_of(&e, &statement));
    if (rc == 0 && t->kind == TARGET_THERE && is_of_tracks(&e))
        rc = err_set(-ESRCH,
                     "no core answers in %s; a trace of what it has left is written on its "
                     "machine: probing -t %s export --format %s",
                     t->text, t->there->what, formats[e.format]);
    if (rc == 0)
        rc = write_file(t, &e, buf_text(&statement));
    buf_done(&statement);
    return rc;
}
